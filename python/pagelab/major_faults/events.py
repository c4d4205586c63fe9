"""The tracepoints of a major fault, and perf's output for them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pagelab.major_faults import MajorFaultError

Kind = Literal["fault", "cached", "queued", "issued", "interrupt", "completed", "waking", "away", "back"]


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint, and the filter of its events; `{thread}` stands for the name of the touching thread."""

    name: str
    filter: str | None
    what: str


TRACEPOINTS = (
    Tracepoint("exceptions:page_fault_user", 'COMM == "{thread}"', "the handler of page faults begins"),
    Tracepoint("filemap:mm_filemap_add_to_page_cache", 'COMM == "{thread}"', "the page's frame is in the page cache"),
    Tracepoint("block:block_bio_queue", 'COMM == "{thread}"', "the read goes to the block layer"),
    Tracepoint("block:block_rq_issue", None, "the request goes to the driver"),
    Tracepoint("irq:irq_handler_entry", None, "the driver's handler of interrupts begins"),
    Tracepoint("block:block_rq_complete", None, "the driver has completed the request"),
    Tracepoint("block:block_bio_complete", None, "the read is complete, of devices without requests"),
    Tracepoint("sched:sched_waking", 'comm == "{thread}"', "the thread is being woken up"),
    Tracepoint("sched:sched_switch", 'prev_comm == "{thread}" || next_comm == "{thread}"', "the thread stops or runs"),
)
"""In the order in which a fault passes them."""

_AROUND = (
    "block:block_bio_queue",
    "block:block_rq_issue",
    "irq:irq_handler_entry",
    "block:block_rq_complete",
    "block:block_bio_complete",
)
AROUND_DEVICE = tuple(tracepoint for tracepoint in TRACEPOINTS if tracepoint.name in _AROUND)
"""Tracepoints that separate the device's time from the kernel's"""
OTHERS = tuple(tracepoint for tracepoint in TRACEPOINTS if tracepoint.name not in _AROUND)


@dataclass(frozen=True)
class Event:
    """One event of interest."""

    kind: Kind
    time_ns: int
    sector: str = ""
    """Of a request or read: its first sector"""
    irq: str = ""
    """Of an interrupt: its number and name"""


_LINE = re.compile(
    r"\s*(?P<comm>.*?)\s+(?P<tid>-?\d+)\s+\[\d+\]\s+(?P<seconds>\d+)\.(?P<ns>\d{9}):\s+(?P<event>\w+:\w+):\s?(?P<text>.*)"
)
_SECTOR = re.compile(r"\d+,\d+ \S+ .*?(\d+) \+ \d+")
_IRQ = re.compile(r"irq=(\d+) name=(.*)")
_OF_REQUESTS: dict[str, Kind] = {
    "block:block_bio_queue": "queued",
    "block:block_rq_issue": "issued",
    "block:block_rq_complete": "completed",
    "block:block_bio_complete": "completed",
}


def parse(lines: Iterable[str], thread: str) -> list[Event]:
    """The events of a text of `perf script --ns -F comm,tid,cpu,time,event,trace`, in the order of time.

    Args:
        thread: The name of the thread that touches.

    Raises:
        MajorFaultError: a line is not one of perf's.
    """
    events = [event for line in lines if line.strip() for event in _event(line, thread)]
    return sorted(events, key=lambda event: event.time_ns)


def _event(line: str, thread: str) -> Iterator[Event]:
    match = _LINE.match(line)
    if not match:
        raise MajorFaultError(
            f"perf script printed {line.strip()!r}; expected NAME TID [CPU] SECONDS.NANOSECONDS: EVENT: TEXT"
        )
    name, text = match["event"], match["text"]
    time_ns = int(match["seconds"]) * 1_000_000_000 + int(match["ns"])
    own = match["comm"] == thread
    if name in _OF_REQUESTS:
        sector = _SECTOR.match(text)
        # Flushes have no sector; the sector distinguishes reads of others.
        if sector and (own or name != "block:block_bio_queue"):
            yield Event(_OF_REQUESTS[name], time_ns, sector=sector[1])
    elif name == "irq:irq_handler_entry":
        irq = _IRQ.match(text)
        if irq:
            yield Event("interrupt", time_ns, irq=f"{irq[1]} {irq[2]}".strip())
    elif name == "sched:sched_switch":
        if f"prev_comm={thread} " in text:
            yield Event("away", time_ns)
        if f"next_comm={thread} " in text:
            yield Event("back", time_ns)
    elif name == "sched:sched_waking":
        if f"comm={thread} " in text:
            yield Event("waking", time_ns)
    elif own and name == "exceptions:page_fault_user":
        yield Event("fault", time_ns)
    elif own and name == "filemap:mm_filemap_add_to_page_cache":
        yield Event("cached", time_ns)
