"""Hardware events of a program, counted by `perf stat`.

Source: perf-stat(1). Intel: events of the Software Developer's Manual, vol. 3B, by perf's names. AMD: PMCx045 of the
    Processor Programming References of families 17h and 19h (L1 DTLB misses; unit masks F0h: those that missed the L2).
Deviations: AMD's processors count no cycles of walks; these then come from replay. The CPU time of counted runs
    includes perf's own start, some milliseconds.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GENERIC: Mapping[str, Sequence[str]] = {
    "cycles_user": ("cycles:u",),
    "cycles_kernel": ("cycles:k",),
    "instructions": ("instructions:u",),
}
"""Counted events, each with possible names in perf, of which the first known one is used."""
BY_VENDOR: Mapping[str, Mapping[str, Sequence[str]]] = {
    "GenuineIntel": {
        "load_walk_cycles": ("dtlb_load_misses.walk_active:u", "dtlb_load_misses.walk_duration:u"),
        "store_walk_cycles": ("dtlb_store_misses.walk_active:u", "dtlb_store_misses.walk_duration:u"),
        "load_misses": ("dtlb_load_misses.walk_completed:u",),
        "store_misses": ("dtlb_store_misses.walk_completed:u",),
        "load_hits": ("dtlb_load_misses.stlb_hit:u",),
        "store_hits": ("dtlb_store_misses.stlb_hit:u",),
    },
    "AuthenticAMD": {
        "l1_misses": ("cpu/event=0x45,umask=0xff/u",),
        "misses": ("cpu/event=0x45,umask=0xf0/u",),
    },
}
_SEPARATOR = "\t"


@dataclass(frozen=True)
class Counters:
    """The events that can be counted here."""

    events: Mapping[str, str]
    """perf's names by ours."""
    missing: str | None
    """Why there are no events, or none for walk cycles."""

    def command(self, output: Path) -> list[str]:
        """perf's command, before the program's."""
        events = [word for event in self.events.values() for word in ("-e", event)]
        return ["perf", "stat", "-x", _SEPARATOR, "-o", str(output), *events, "--"]

    def read(self, text: str) -> dict[str, int]:
        """Counts by our names, from perf's output; events that it did not count are missing."""
        names = {event: name for name, event in self.events.items()}
        counts = {}
        for line in text.splitlines():
            words = line.split(_SEPARATOR)
            if len(words) > 2 and words[2] in names and words[0].isdecimal():
                counts[names[words[2]]] = int(words[0])
        return counts


def find(vendor: str, *, in_guests: bool = False) -> Counters:
    """The events that perf can count on this machine: in user mode, or with `in_guests` in virtual machines alone.

    A guest's `cycles_user` are all its cycles, and it has no `cycles_kernel`.
    """
    if not shutil.which("perf"):
        return Counters({}, "perf is not installed")
    wanted = {**GENERIC, **BY_VENDOR.get(vendor, {})}
    if in_guests:
        # perf-list(1): the modifier G counts while a guest runs.
        wanted = {
            name: [f"{event[:-1]}G" for event in candidates]
            for name, candidates in wanted.items()
            if name != "cycles_kernel"
        }
    events, whys = {}, []
    for name, candidates in wanted.items():
        for event in candidates:
            # Nothing is counted before a guest runs, but perf knows the event.
            why = _refusal(event)
            if why is None:
                events[name] = event
                break
            whys.append(why)
    if "cycles_user" not in events:
        return Counters({}, whys[0])
    if "load_walk_cycles" not in events:
        return Counters(events, f"this processor ({vendor}) does not count walk cycles")
    return Counters(events, None)


def _refusal(event: str) -> str | None:
    """Why perf does not count an event; none if it does."""
    with tempfile.NamedTemporaryFile(prefix="pagelab-perf-", mode="r") as output:
        command = [*Counters({"tried": event}, None).command(Path(output.name)), "true"]
        tried = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        text = output.read()
    if tried.returncode == 0 and Counters({"tried": event}, None).read(text):
        return None
    if "<not supported>" in text:
        return "there are no hardware counters, as in most virtual machines"
    return "perf may not count (kernel.perf_event_paranoid), or does not know the event"


def translation(counts: Mapping[str, float]) -> dict[str, float]:
    """Walk cycles, misses and hits of the last-level TLB from counted events, as far as available."""
    known = {}
    for name, parts in (
        ("walk_cycles", ("load_walk_cycles", "store_walk_cycles")),
        ("tlb_misses", ("load_misses", "store_misses")),
        ("tlb_hits", ("load_hits", "store_hits")),
    ):
        if all(part in counts for part in parts):
            known[name] = sum(counts[part] for part in parts)
    if "misses" in counts and "l1_misses" in counts:
        known |= {"tlb_misses": counts["misses"], "tlb_hits": counts["l1_misses"] - counts["misses"]}
    return known
