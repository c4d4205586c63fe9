"""The page of advice as plain text."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagelab.advice.check import Checked
from pagelab.advice.gains import CHANGES, ESTIMATED, LEAST_SHARE, REMEDIES, Advice, Bar, Gain, Helped
from pagelab.quantities import counted, size_text
from pagelab.report import code
from pagelab.report.figures import paging_cost, percent, share
from pagelab.report.memory import area
from pagelab.stretches import is_sampled
from pagelab.table import short

WIDTH = 100
"""Columns of the page at most; names of files may be longer"""
_MOST_ROWS = 6
_SMALL_PART = 0.01
_MOST_OF_THE_GAIN = 0.9
_THP = "/sys/kernel/mm/transparent_hugepage"
_IN_SHARED_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV")


def page(advice: Advice, checked: Checked | None = None) -> str:
    """The whole page, with a newline at its end; with what was measured, if it was."""
    parts = [_title(advice), _costs(advice)]
    if advice.worth_it:
        parts += ["What pays", *_payers(advice), "What helps", *_remedies(advice)]
    else:
        parts.append(_nothing(advice))
    if checked:
        parts.append(_measured(advice, checked))
    parts += [text for text in (_lost(advice), _uncertain(advice)) if text]
    parts += [*_elsewhere(advice), _trust(advice)]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _title(advice: Advice) -> str:
    choice, base = advice.trials.choice, advice.base
    why = f" ({choice.why_machine})" if choice.why_machine else ""
    where = " in a virtual machine" if choice.nested else ""
    kernel = base.config["kernel"]["name"]
    return _wrapped(
        f"{advice.name} on {choice.machine}{why}{where}, kernel {kernel}: {_seconds(advice.seconds)}, "
        f"{counted(base.stats.get('accesses', 0), 'access', 'accesses')}"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _costs(advice: Advice) -> str:
    walks = advice.base.stats.get("walk.count", 0)
    return _wrapped(
        f"Paging takes {_range(advice.paging)} of the time: {_range(advice.walks)} go to address translation "
        f"({short(walks)} page walks), {_range(advice.faults)} to {short(advice.fault_count)} page faults."
    )


def _range(bar: Bar) -> str:
    low, high = percent(bar.low), percent(bar.high)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _change(bar: Bar) -> str:
    """What becomes of the time: less is a minus."""
    low, high = (_signed(-100 * end) for end in (bar.high, bar.low))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _signed(value: float) -> str:
    text = f"{value:+.1f}" if abs(value) < 9.95 else f"{value:+.0f}"
    return "0" if not text.strip("+-0.") else text.replace("-", "−")


def _nothing(advice: Advice) -> str:
    most = advice.paging.high * (1 + ESTIMATED)
    if most < LEAST_SHARE:
        why = (
            f"paging takes {percent(most)} of the time at most, and gains below {percent(LEAST_SHARE)} cannot be told "
            "from the errors of the estimate"
        )
    elif (most_saved := max(gain.saved.high for gain in advice.remedies)) <= LEAST_SHARE:
        why = f"no remedy saves more than {percent(max(most_saved, LEAST_SHARE))} of the time"
    else:
        best = max(advice.remedies, key=lambda gain: gain.saved.low)
        why = (
            f"the best remedy, {REMEDIES[best.key]}, changes the time by {_change(best.saved)}. Its smaller end, "
            f"{_seconds(abs(best.saved_seconds))}, is no more than the errors of the estimate"
        )
    own = " The program asks for huge pages of its own accord, and has them." if advice.asks else ""
    return _wrapped(f"Nothing is to be had: {why}.{own}")


def _payers(advice: Advice) -> list[str]:
    profile = advice.base.profile or {}
    rows = profile["regions"]["rows"]
    whole = sum(paging_cost(row) for row in rows) + paging_cost(profile["regions"]["others_cost"])
    gains = {id(of.row): of.of_gain for of in advice.mappings}
    shown = [row for row in rows if share(paging_cost(row), whole) >= _SMALL_PART][:_MOST_ROWS]
    memory = _table("memory", "from", "size", "touched", "walks", "faults", "of paging", "of what huge pages save")
    for row in shown:
        memory.add_row(
            Text(area(row)),
            f"{row['start']:#x}",
            size_text(row["end"] - row["start"]),
            size_text(row["touched_bytes"]),
            short(row["walks"]),
            short(row["faults"]),
            percent(share(paging_cost(row), whole)),
            percent(gains.get(id(row), 0.0)),
        )
    places, notes = code.rows(advice.base)
    where = _table("code", "line", "walks", "faults", "of paging")
    for place in places[:_MOST_ROWS]:
        if place.part >= _SMALL_PART:
            where.add_row(Text(place.what), Text(_line(place)), place.walks, place.faults, place.cycles)
    return [_drawn(memory), _drawn(where), *(_wrapped(note) for note in notes if "more places" not in note)]


def _line(place: code.CodeRow) -> str:
    return (place.line or place.file).rpartition("/")[2]


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, justify="left" if title in ("memory", "from", "code", "line") else "right")
    return table


def _drawn(table: Table) -> str:
    console = Console(highlight=False, width=1000, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").splitlines())


def _remedies(advice: Advice) -> list[str]:
    parts = []
    for gain in advice.worth_it:
        lines = [f"* {REMEDIES[gain.key]}: {_change(gain.saved)} of the time{_memory(gain)}"]
        if gain.key == "huge":
            lines += [_wrapped(text, "    ") for text in _which(advice.mappings)]
        lines += [f"    {line}" for line in _ways(gain.key, advice.mappings, nested=advice.trials.choice.nested)]
        parts.append("\n".join(lines))
    return parts


def _memory(gain: Gain) -> str:
    if gain.added_bytes is None:
        return "; what memory it takes, samples do not tell"
    if abs(gain.memory_ratio - 1) < _SMALL_PART:
        return ", no more memory"
    sign = "+" if gain.added_bytes > 0 else "−"
    return f", {sign}{size_text(abs(gain.added_bytes))} of memory (×{gain.memory_ratio:.2f})"


def _which(mappings: Sequence[Helped]) -> list[str]:
    """How many mappings bring most of the gain."""
    parts, part = 0, 0.0
    while parts < len(mappings) and part < _MOST_OF_THE_GAIN:
        part += mappings[parts].of_gain
        parts += 1
    if not parts:
        return []
    first = mappings[0]
    name = f"{area(first.row)} at {first.row['start']:#x}"
    if parts == 1:
        return [f"One mapping brings {percent(first.of_gain)} of it: {name}. To advise that one is enough."]
    return [
        f"The first of {counted(len(mappings), 'mapping', 'mappings')}, {name}, brings {percent(first.of_gain)} of it, "
        f"and the first {parts} bring {percent(part)}."
    ]


def _ways(key: str, mappings: Sequence[Helped], *, nested: bool) -> list[str]:
    """Commands and calls that get a remedy."""
    where = ", in the guest" if nested else ""
    if key == "huge":
        return [*_ways_to_huge_pages(mappings), f"for all programs{where}: echo always > {_THP}/enabled"]
    ways = {
        "folios": [f"for all programs{where} (Linux 6.8): echo always > {_THP}/hugepages-32kB/enabled"],
        "populate": [
            "MAP_POPULATE in the flags of mmap, or madvise(address, length, MADV_POPULATE_WRITE) (Linux 5.14),",
            "for memory that the program will touch as a whole",
        ],
        "host": [f"in the host: echo always > {_THP}/enabled, or a guest's memory in hugetlbfs (QEMU: -mem-path)"],
    }
    return ways[key]


def _ways_to_huge_pages(mappings: Iterable[Helped]) -> list[str]:
    files = [str(of.row.get("file")) for of in mappings if of.row["kind"] == "file"]
    private = any(of.row["kind"] in ("anonymous", "heap") for of in mappings)
    ways = []
    if private:
        ways += [
            "memory of malloc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment (glibc 2.35)",
            "mappings of its own: madvise(address, length, MADV_HUGEPAGE) before the first touch",
        ]
    if any(file.startswith(_IN_SHARED_MEMORY) for file in files):
        ways.append("shared memory: mount -o remount,huge=advise /dev/shm, and madvise(…, MADV_HUGEPAGE)")
    return ways


def _measured(advice: Advice, checked: Checked) -> str:
    foretold = next(gain.saved for gain in advice.remedies if gain.key == "huge")
    against = "; the program's own are not among the former" if advice.asks else ""
    return _wrapped(
        f"Measured on this machine, {counted(len(checked.saved), 'run', 'runs')} without and with huge pages by turns: "
        f"{_change(Bar.around([checked.median]))} of the CPU time, from {_seconds(checked.small_seconds)} to "
        f"{_seconds(checked.huge_seconds)}; in single pairs {_change(Bar.around(checked.saved))}. "
        f"{percent(checked.huge_share)} of the anonymous memory became huge{against}. Foretold are {_change(foretold)}."
    )


def _others(advice: Advice, *, lost: bool) -> list[str]:
    helped = advice.worth_it
    return [
        f"{REMEDIES[gain.key]} ({_change(gain.saved)} of the time{_memory(gain)})"
        for gain in advice.remedies
        if gain not in helped and gain.is_lost == lost and (lost or gain.saved.high > LEAST_SHARE)
    ]


def _lost(advice: Advice) -> str:
    lost = _others(advice, lost=True)
    return _wrapped(f"What makes it slower: {'; '.join(lost)}.") if lost else ""


def _uncertain(advice: Advice) -> str:
    open_ = _others(advice, lost=False) if advice.worth_it else []
    return _wrapped(f"What may help or not: {'; '.join(open_)}.") if open_ else ""


def _elsewhere(advice: Advice) -> list[str]:
    tlb, elsewhere = (next(gain for gain in advice.changes if gain.key == key) for key in ("tlb", "elsewhere"))
    sentences = []
    if tlb.is_worth_it:
        sentences.append(f"A processor with {CHANGES['tlb']} would change the time by {_change(tlb.saved)}.")
    where = "Outside a virtual machine" if advice.trials.choice.nested else "In a virtual machine"
    sentences.append(f"{where}, the program as it is would change by {_change(elsewhere.saved)}.")
    return [_wrapped(" ".join(sentences))]


def _trust(advice: Advice) -> str:
    sentences = [
        "Each change is a range: what paging takes more or less on an in-order core, which waits for all of it, what "
        "the whole program does on a core that overlaps accesses, and both if "
        f"{percent(ESTIMATED)} fewer or more cycles were at stake: latencies are estimates."
    ]
    if is_sampled(advice.base.stats):
        sentences.append("Figures are of the recorded windows; faults between them are not in it.")
    return _wrapped(" ".join(sentences))
