"""Parses a guest's console: steps with their results, and problems that the kernel reports.

Source: the texts are those of Linux 6.12: kernel/panic.c, kernel/locking/lockdep.c, mm/kasan/report.c, lib/bug.c,
mm/slub.c, mm/page_poison.c, kernel/hung_task.c, kernel/watchdog.c, kernel/rcu/tree_stall.h, lib/debugobjects.c.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PASSED, FAILED, USAGE, SKIPPED = 0, 1, 2, 4
"""Exit statuses of the test programs, as of the kernel's own selftests"""

_REPORTS = re.compile(
    r"""\bWARNING:\s | \bBUG:\s | \bBUG\s | \bKASAN: | kernel\ BUG\ at | \bOops: | \bUBSAN: | \bODEBUG:
    | possible\ (?:circular|recursive|irq\ lock|deadlock) | inconsistent\ lock\ state | inconsistent\ \{
    | suspicious\ RCU\ usage | bad\ unlock\ balance | held\ lock\ freed | lock\ held\ when\ returning
    | Invalid\ wait\ context
    | general\ protection\ fault | unable\ to\ handle | Kernel\ panic | double\ fault | stack\ guard\ page
    | blocked\ for\ more\ than | soft\ lockup | hard\ LOCKUP | detected\ stalls | self-detected\ stall
    | pagealloc:\ (?:memory\ corruption|single\ bit\ error) | Bad\ (?:page|rss-counter)\ | bad:\ scheduling
    | list_(?:add|del)\ corruption | DEBUG_LOCKS_WARN_ON | invoked\ oom-killer | Out\ of\ memory
    """,
    re.VERBOSE,
)
_KERNEL_LINE = re.compile(r"^(?:<\d>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
_VALUE = re.compile(r"^([A-Za-z_][\w.()-]*)=(.*)$")
_MARK = re.compile(r"PAGELAB (kernel|begin|end|tainted|done)\b ?(.*)$")
_LONGEST_REPORT = 60
_TAINTS = {
    4: "machine check",
    5: "bad page",
    7: "oops",
    9: "warning",
    14: "lockup",
}
"""Bits of the kernel's taint that show a problem; others only show what was loaded."""


@dataclass
class GuestStep:
    """One step of the guest."""

    command: str
    values: list[tuple[str, str]] = field(default_factory=list)
    """What it printed as KEY=VALUE"""
    output: list[str] = field(default_factory=list)
    """What else it printed"""
    status: int | None = None
    """None if it did not end"""

    def all(self, key: str) -> list[str]:
        return [value for name, value in self.values if name == key]

    def last(self, key: str) -> str | None:
        """Its last value for this key; none if there is none."""
        return next((value for name, value in reversed(self.values) if name == key), None)


@dataclass
class Console:
    """The report of a guest."""

    release: str | None = None
    steps: list[GuestStep] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    """Problems that the kernel reports, each with the lines that follow it"""
    tainted: int | None = None
    done: bool = False
    """Whether the guest reached its end"""
    waited: float = 0.0
    """Share of their time in which pinned CPUs waited for the host's"""

    def problems(self) -> list[str]:
        """Problems, one line each, the kernel's first; none if all is well."""
        problems = [report.partition("\n")[0] for report in self.reports]
        taints = [name for bit, name in _TAINTS.items() if (self.tainted or 0) >> bit & 1]
        if taints and not problems:
            problems.append(f"the kernel is tainted: {', '.join(taints)}")
        for step in self.steps:
            why = step.last("reason")
            if step.status is None:
                problems.append(f"{step.command}: did not end")
            elif step.status not in (PASSED, SKIPPED):
                problems.append(f"{step.command}: status {step.status}" + (f", {why}" if why else ""))
        if self.release is None:
            problems.append("the kernel did not reach its first process")
        elif not self.done:
            problems.append("the guest did not reach its end")
        return problems


def parse(text: str, allowed: Sequence[str] = ()) -> Console:
    """Parses a console's text. Lines of the kernel with one of the allowed texts are no problem."""
    console = Console()
    step: GuestStep | None = None
    for line in _lines(text):
        mark = _MARK.search(line)
        if mark:
            step = _marked(console, step, mark[1], mark[2])
        elif _KERNEL_LINE.match(line) or _REPORTS.search(line):
            continue
        elif step is not None:
            value = _VALUE.match(line)
            if value:
                step.values.append((value[1], value[2]))
            elif line:
                step.output.append(line)
    console.reports = list(reports(text, allowed))
    return console


def reports(text: str, allowed: Sequence[str] = ()) -> Iterator[str]:
    """Problems that the kernel reports. A report within the lines of another one belongs to it."""
    current: list[str] = []
    for line in _lines(text):
        message = _KERNEL_LINE.sub("", line)
        ends = (
            "end trace" in message
            or "end Kernel panic" in message
            or _MARK.search(line)
            or len(current) >= _LONGEST_REPORT
        )
        if not current and _REPORTS.search(message) and not _harmless(message, allowed):
            current = [message.strip()]
        elif current and ends:
            yield "\n".join(current)
            current = []
        elif current and _KERNEL_LINE.match(line):
            current.append(message)
    if current:
        yield "\n".join(current)


def _marked(console: Console, step: GuestStep | None, kind: str, rest: str) -> GuestStep | None:
    if kind == "kernel":
        console.release = rest
    elif kind == "begin":
        step = GuestStep(rest.partition(" ")[2])
        console.steps.append(step)
    elif kind == "end" and step is not None:
        status = re.search(r"status=(\d+)", rest)
        step.status = int(status[1]) if status else None
        return None
    elif kind == "tainted":
        console.tainted = int(rest) if rest.isdecimal() else None
    elif kind == "done":
        console.done = True
    return step


def _harmless(line: str, allowed: Sequence[str]) -> bool:
    # A program's KEY=VALUE is not the kernel's.
    return bool(_VALUE.match(line)) or any(text in line for text in allowed)


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\r", "").split("\n"):
        yield line.rstrip()
