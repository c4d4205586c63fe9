"""What the plugin recorded, fault by fault. The format is in `kernel/plugin/fault_trace.c`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagelab_linux import LinuxError

COUNTS = ("instructions", "repetitions", "loads", "stores", "lines", "new_lines")
"""What is counted of each stage of a fault"""
_FORMAT = "pagelab-fault-records 1"


@dataclass(frozen=True)
class Fault:
    """One fault."""

    run: int
    met: int
    """Bits of the functions that tell its kind"""
    interrupts: int
    interrupt_instructions: int
    stages: Mapping[int, tuple[int, ...]]
    """`COUNTS` by number of the stage; stages that executed nothing are left out"""

    @property
    def instructions(self) -> int:
        return sum(counts[0] for counts in self.stages.values())


@dataclass(frozen=True)
class Group:
    """What a function executed in a stage, in all faults of a run that met the same functions."""

    run: int
    met: int
    stage: int
    faults: int
    counts: tuple[int, ...]
    """`COUNTS` without lines"""
    function: str


@dataclass(frozen=True)
class Rest:
    """What the kernel executed during a run that is of no recorded fault."""

    left_out: int
    """Faults that are not recorded"""
    left_out_instructions: int
    beside: int
    """Instructions beside faults: interrupts of user code, and other tasks"""


@dataclass
class Records:
    """All that the plugin wrote."""

    faults: list[Fault] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    rests: dict[int, Rest] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    """Faults that are not recorded, by reason"""


def read(path: Path, stages: int) -> Records:
    """The records of a file.

    Raises:
        LinuxError: it is missing, is of another format, or ends too early.
    """
    try:
        with path.open(encoding="ascii") as lines:
            return parse(lines, stages, str(path))
    except FileNotFoundError:
        raise LinuxError(f"{path}: no such file; QEMU ran without the plugin") from None
    except UnicodeDecodeError:
        raise LinuxError(f"{path}: is no text; it must begin with {_FORMAT} {stages}") from None


def parse(lines: Iterable[str], stages: int, name: str) -> Records:
    """The records of these lines.

    Raises:
        LinuxError: naming the line that is wrong.
    """
    records, ended = Records(), False
    # Most faults are alike: hundreds of thousands of them have some hundred different counts.
    known: dict[str, Mapping[int, tuple[int, ...]]] = {}
    for number, line in enumerate(lines, start=1):
        if number == 1:
            if line.strip() != f"{_FORMAT} {stages}":
                raise LinuxError(f"{name}: begins with {line.strip()!r} and not with {_FORMAT} {stages}")
            continue
        if ended:
            raise LinuxError(f"{name}: line {number}: comes after the end (E)")
        try:
            if line.startswith("F "):
                records.faults.append(_fault(line, stages, known))
            else:
                ended = _take(records, line.split(), stages)
        except (ValueError, IndexError):
            raise LinuxError(
                f"{name}: line {number}: {line.strip()[:80]!r} is no record; kernel/plugin/fault_trace.c says what is"
            ) from None
    if not ended:
        raise LinuxError(f"{name}: ends without its last line (E): QEMU did not reach its end")
    return records


def _take(records: Records, words: Sequence[str], stages: int) -> bool:
    """Adds a record that is no fault; returns whether it is the last one."""
    kind = words[0]
    if kind == "G":
        _ensure(len(words) == 10)
        stage = int(words[3])
        _ensure(0 <= stage < stages)
        counts = tuple(map(int, words[5:9]))
        records.groups.append(Group(int(words[1]), int(words[2], 16), stage, int(words[4]), counts, words[9]))
    elif kind == "R":
        run, *numbers = map(int, words[1:])
        _ensure(len(numbers) == 3)
        records.rests[run] = Rest(*numbers)
    elif kind == "D":
        records.dropped = {name: int(number) for name, number in zip(words[1::2], words[2::2], strict=True)}
    else:
        _ensure(kind == "E" and len(words) == 1)
        return True
    return False


def _fault(line: str, stages: int, known: dict[str, Mapping[int, tuple[int, ...]]]) -> Fault:
    _, run, met, interrupts, instructions, *rest = line.split(maxsplit=5)
    counts_text = rest[0] if rest else ""
    if counts_text not in known:
        known[counts_text] = _stages(counts_text, stages)
    return Fault(int(run), int(met, 16), int(interrupts), int(instructions), known[counts_text])


def _stages(text: str, stages: int) -> Mapping[int, tuple[int, ...]]:
    each, numbers = 1 + len(COUNTS), list(map(int, text.split()))
    _ensure(len(numbers) % each == 0)
    counts = {numbers[at]: tuple(numbers[at + 1 : at + each]) for at in range(0, len(numbers), each)}
    _ensure(len(counts) * each == len(numbers) and all(0 <= stage < stages for stage in counts))
    return counts


def _ensure(condition: bool) -> None:
    if not condition:
        raise ValueError
