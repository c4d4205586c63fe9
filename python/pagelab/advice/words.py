"""The text of a page of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagelab.advice import verdict
from pagelab.advice.allocators import Owner
from pagelab.advice.amounts import change_text, range_text, seconds_text
from pagelab.advice.check import Checked, Unchecked
from pagelab.advice.gains import CHANGES, ESTIMATED, LEAST_SHARE, REMEDIES, Advice, Gain, Helped
from pagelab.advice.ways import THP, ways
from pagelab.quantities import counted, size_text
from pagelab.report import code
from pagelab.report.figures import paging_cost, percent, share
from pagelab.report.memory import area
from pagelab.report.parts import Heading, Listing, Paragraph, Part, Remedy, plain
from pagelab.results.table import short
from pagelab.results.windows import FEW_WINDOWS

_MOST_ROWS = 6
_SMALL_PART = 0.01
_MOST_OF_THE_GAIN = 0.9
_STARTING_SECONDS = 1e-3
"""Shorter programs mostly load and start libc: `true` takes 0.15 ms of simulated time, `perl -e 1` 0.9 ms"""


@dataclass(frozen=True)
class Circumstances:
    """What to know about the recording."""

    interrupted: bool = False
    """Whether the user ended it."""
    tells_dependencies: bool = True
    """Whether it has dependencies between loads."""
    is_sampled: bool = False
    """Whether windows of a longer recording are replayed."""
    owners: Sequence[Owner] = (Owner.UNKNOWN,)
    """The owners of the memory that huge pages help."""
    recorded: int = 0
    """Recorded accesses, if a sample of them is replayed; else 0."""


ORDINARY = Circumstances()


def page(advice: Advice, checked: Checked | Unchecked | None = None, circumstances: Circumstances = ORDINARY) -> str:
    """The whole page as text, with a newline at its end; with the measurement if there is one."""
    return plain(parts_of(advice, checked, circumstances))


def parts_of(
    advice: Advice, checked: Checked | Unchecked | None = None, circumstances: Circumstances = ORDINARY
) -> list[Part]:
    """The same in parts; the first paragraph names the subject of the advice."""
    parts: list[Part] = verdict.first_line(advice, checked) if isinstance(checked, Checked) else []
    if circumstances.interrupted:
        made = counted(circumstances.recorded or advice.base.stats.get("accesses", 0), "access", "accesses")
        parts.append(Paragraph(f"Interrupted: the advice below covers the program's first {made}."))
    parts += [
        _title(advice, circumstances),
        _assumed(advice),
        *_observed(advice),
        *_start_alone(advice),
        *_few_windows(advice),
        _costs(advice),
    ]
    if advice.worth_it:
        parts += [
            Heading("Where the cost is"),
            *_payers(advice),
            Heading("What helps"),
            *_remedies(advice.worth_it, advice, circumstances),
        ]
    elif advice.helping:
        parts += [_too_short(advice), Heading("Where the cost is"), *_payers(advice)]
        parts += [Heading("What would help a longer run"), *_remedies(advice.helping, advice, circumstances)]
    else:
        parts.append(_nothing(advice))
    match checked:
        case Checked():
            parts.append(verdict.measured(advice, checked))
        case Unchecked(why):
            parts.append(Paragraph(f"Could not be checked: {why}"))
        case None:
            pass
    parts += [*_lost(advice), *_uncertain(advice), _elsewhere(advice), *_trust(advice, circumstances)]
    return parts


def _start_alone(advice: Advice) -> list[Part]:
    """The warning for a program that hardly does anything."""
    if advice.program_seconds is None or advice.program_seconds >= _STARTING_SECONDS:
        return []
    return [
        Paragraph(
            f"The program takes only {seconds_text(advice.program_seconds)} of simulated time, most of it for "
            "starting up. The figures below say little about a longer run."
        )
    ]


def _few_windows(advice: Advice) -> list[Part]:
    """The warning for so few windows that ranges may be far off."""
    count = len(advice.base.windows)
    if not advice.is_sampled or count >= FEW_WINDOWS:
        return []
    return [
        Paragraph(
            f"The estimate depends on {counted(count, 'recorded window', 'recorded windows')}: fewer than "
            f"{FEW_WINDOWS} give little information. The rest of the program is assumed to be like them, except for "
            "its page faults and calls, whose time is known. Record windows of the whole program (--windows) for a "
            "better estimate."
        )
    ]


def _title(advice: Advice, circumstances: Circumstances) -> Paragraph:
    choice, base = advice.trials.choice, advice.base
    why = f" ({choice.why_machine})" if choice.why_machine else ""
    where = " in a virtual machine" if choice.nested else ""
    accesses = counted(base.stats.get("accesses", 0), "access", "accesses")
    if advice.is_sampled:
        kind = "sampled" if circumstances.is_sampled else "recorded"
        accesses = f"{accesses} in {counted(len(base.windows), f'{kind} window', f'{kind} windows')}"
    kernel = base.config["kernel"]["name"]
    return Paragraph(
        f"{advice.name} on {choice.machine}{why}{where}, kernel {kernel}: {_simulated(advice)}, {accesses}"
    )


_WARM_GUEST = (
    "a guest that has used its memory before, on a host that maps it with pages of 2 MiB (the range for huge pages in "
    "the guest also covers a host with pages of 4 KiB)"
)


def _assumed(advice: Advice) -> Paragraph:
    """Where the program is replayed, and which option changes that."""
    choice = advice.trials.choice
    why = f", as {choice.why_nested}" if choice.why_nested else ""
    if choice.nested:
        return Paragraph(f"Assumed: a virtual machine{why}: {_WARM_GUEST}. --no-nested replays without.")
    return Paragraph(f"Assumed: no virtual machine{why}. --nested replays in one.")


def _observed(advice: Advice) -> list[Part]:
    """The machine that the program was observed on, and whether pages lie in the replay as there."""
    observed = advice.trials.choice.observed
    if observed is None:
        return []
    layer = advice.base.config["system"]["layers"][0]["name"]
    names = [f"layer.{layer}.contiguity.{name}" for name in ("pte_lines", "groups")]
    lines, groups = (advice.base.stats.get(name, 0) for name in names)
    here = f" In the replay without a remedy they have {lines / groups:.2f}." if groups and observed.pte_lines else ""
    return [Paragraph(f"{observed.sentence}{here}")]


def _simulated(advice: Advice) -> str:
    if advice.is_sampled:
        whole = "the whole program" if advice.program_seconds is not None else "the program until it was stopped"
        return (
            f"about {seconds_text(advice.estimated_seconds)} of simulated time for {whole}, estimated from "
            f"{seconds_text(advice.seconds)} of it"
        )
    text = f"{seconds_text(advice.seconds)} of simulated time"
    if advice.program_seconds is None:
        return f"{text} until the program was stopped"
    if advice.program_seconds > advice.seconds * (1 + _SMALL_PART):
        return f"{text}, of about {seconds_text(advice.program_seconds)} of the whole program"
    return text


def _costs(advice: Advice) -> Paragraph:
    walks, what, alone = short(advice.walk_count), "the time", ""
    if advice.is_sampled:
        walks, what = f"about {walks}", "the whole program's time"
        alone = f" Within the windows, it takes {range_text(advice.replayed_paging)}."
    return Paragraph(
        f"Paging takes {range_text(advice.paging)} of {what}: {range_text(advice.walks)} go to address translation "
        f"({walks} page walks), {range_text(advice.faults)} to {short(advice.fault_count)} page faults.{alone}"
    )


def _too_short(advice: Advice) -> Paragraph:
    best = advice.helping[0]
    program, saved = seconds_text(advice.program_seconds or 0.0), seconds_text(best.saved_seconds or 0.0)
    return Paragraph(
        f"No change is worth making for this run, which is too short: it takes only {program} of simulated time. "
        f"Of that, {REMEDIES[best.key]} would save {saved} or more ({change_text(best.saved)} of the time). A longer "
        "run of the same kind would gain."
    )


def _nothing(advice: Advice) -> Paragraph:
    most = advice.paging.high * (1 + ESTIMATED)
    if most < LEAST_SHARE:
        why = (
            f"paging takes {percent(most)} of the time at most, and gains below {percent(LEAST_SHARE)} cannot be "
            "distinguished from errors of the estimate"
        )
    elif (most_saved := max(gain.saved.high for gain in advice.remedies)) <= LEAST_SHARE:
        why = f"no remedy saves more than {percent(max(most_saved, LEAST_SHARE))} of the time"
    else:
        best = max(advice.remedies, key=lambda gain: gain.saved.low)
        why = (
            f"the best remedy, {REMEDIES[best.key]}, changes the time by {change_text(best.saved)}, and gains below "
            f"{percent(LEAST_SHARE)} cannot be distinguished from errors of the estimate"
        )
    own = " The program asks for huge pages itself, and gets them." if advice.asks else ""
    return Paragraph(f"No change is worth making: {why}.{own}")


def _payers(advice: Advice) -> list[Part]:
    profile = advice.profile
    rows = profile["regions"]["rows"]
    whole = sum(paging_cost(row) for row in rows) + paging_cost(profile["regions"]["others_cost"])
    gains = {_mapping(mapping.row): mapping.of_gain for mapping in advice.mappings}
    shown = [row for row in rows if share(paging_cost(row), whole) >= _SMALL_PART][:_MOST_ROWS]
    titles = ("memory", "from", "size", "touched", "walks", "faults", "of paging", "of the saving")
    memory = [
        (
            area(row),
            f"{row['start']:#x}",
            size_text(row["end"] - row["start"]),
            size_text(row["touched_bytes"]),
            short(row["walks"]),
            short(row["faults"]),
            percent(share(paging_cost(row), whole)),
            percent(gains.get(_mapping(row), 0.0)),
        )
        for row in shown
    ]
    places, notes = code.rows(replace(advice.base, profile=dict(profile)))
    where = [
        (place.what, _line(place), place.walks, place.faults, place.cycles)
        for place in places[:_MOST_ROWS]
        if place.part >= _SMALL_PART
    ]
    return [
        Listing(titles, 2, memory),
        Listing(("code", "line", "walks", "faults", "of paging"), 2, where),
        *(Paragraph(note) for note in notes if "more places" not in note),
    ]


def _mapping(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The name of a region of memory."""
    return row["source"], row["process"], row["start"], row["kind"]


def _line(place: code.CodeRow) -> str:
    return (place.line or place.file).rpartition("/")[2]


def _remedies(gains: Sequence[Gain], advice: Advice, circumstances: Circumstances) -> list[Remedy]:
    observed = advice.trials.choice.observed
    return [
        Remedy(
            REMEDIES[gain.key],
            f"{change_text(gain.saved)} of the time{_memory(gain)}",
            _which(advice.mappings) if gain.key == advice.huge.key else [],
            ways(
                gain.key,
                advice.mappings,
                circumstances.owners,
                nested=advice.trials.choice.nested,
                malloc_apart="malloc-huge" in advice.trials.keys,
                never=observed is not None and observed.machine.huge_pages == "never",
            ),
        )
        for gain in gains
    ]


def _memory(gain: Gain) -> str:
    if abs(gain.memory_ratio - 1) < _SMALL_PART:
        return ", no more memory"
    sign = "+" if gain.added_bytes > 0 else "−"
    return f", {sign}{size_text(abs(gain.added_bytes))} of memory (×{gain.memory_ratio:.2f})"


def _which(mappings: Sequence[Helped]) -> list[str]:
    """How many mappings account for most of the gain."""
    parts, part = 0, 0.0
    while parts < len(mappings) and part < _MOST_OF_THE_GAIN:
        part += mappings[parts].of_gain
        parts += 1
    if not parts:
        return []
    first = mappings[0]
    name = f"{area(first.row)} at {first.row['start']:#x}"
    if parts == 1:
        return [
            f"One mapping accounts for {percent(first.of_gain)} of it: {name}. Advising only that mapping is enough."
        ]
    return [
        f"The first of {counted(len(mappings), 'mapping', 'mappings')}, {name}, accounts for {percent(first.of_gain)} "
        f"of it, and the first {parts} for {percent(part)}."
    ]


def _others(advice: Advice, *, lost: bool) -> list[str]:
    return [
        f"{REMEDIES[gain.key]} ({change_text(gain.saved)} of the time{_memory(gain)})"
        for gain in advice.remedies
        if not gain.helps and gain.is_lost == lost and (lost or gain.saved.high > LEAST_SHARE)
    ]


def _lost(advice: Advice) -> list[Part]:
    lost = _others(advice, lost=True)
    return [Paragraph(f"These would make it slower: {'; '.join(lost)}.")] if lost else []


def _uncertain(advice: Advice) -> list[Part]:
    open_ = _others(advice, lost=False) if advice.helping else []
    return [Paragraph(f"These may or may not help: {'; '.join(open_)}.")] if open_ else []


def _elsewhere(advice: Advice) -> Paragraph:
    changes = {gain.key: gain for gain in advice.changes}
    tlb, elsewhere = changes["tlb"], changes["elsewhere"]
    sentences = []
    if tlb.is_worth_it:
        sentences.append(f"A processor with {CHANGES['tlb']} would change the time by {change_text(tlb.saved)}.")
    where = "Outside a virtual machine" if advice.trials.choice.nested else "In a virtual machine"
    sentences.append(f"{where}, the time of the unchanged program would change by {change_text(elsewhere.saved)}.")
    if small := changes.get("small-host"):
        sentences.append(
            f"On a host that backs the guest with pages of 4 KiB, it would change by {change_text(small.saved)}. "
            f"The host gives the guest huge pages by echo always > {THP}/enabled, or from hugetlbfs (QEMU: -mem-path)."
        )
    if (cold := changes.get("cold")) and advice.huge_when_cold:
        sentences.append(
            "In a guest that has just booted, first touches also fault in the host: there it would change by "
            f"{change_text(cold.saved)}, and by {change_text(advice.huge_when_cold)} with huge pages."
        )
    return Paragraph(" ".join(sentences))


_INDEPENDENT = (
    "The trace does not say which loads wait for which. The core that overlaps accesses treats them as independent of "
    "each other. So it hides more waiting than a real core, and its figures for paging and for gains are too low."
)
_SERIAL = (
    "The trace does not say which loads wait for which. The core that overlaps accesses makes each load wait for the "
    "one before. So it hides less waiting than a real core, and its figures for paging and for gains are too high."
)


def _trust(advice: Advice, circumstances: Circumstances) -> list[Part]:
    sentences = [
        "Each range spans two core models, one that waits for each access and one that overlaps them. It also allows "
        f"for {percent(ESTIMATED)} fewer or more cycles, because latencies are estimates."
    ]
    if advice.is_sampled:
        sentences.append(
            f"They also include the 95 % intervals over {counted(len(advice.base.windows), 'window', 'windows')}. Page "
            "faults and calls are known for the whole program; its other time is estimated from the windows."
        )
    parts: list[Part] = [Paragraph(" ".join(sentences))]
    if not circumstances.tells_dependencies:
        serial = advice.base.config["machine"]["core"].get("unknown_dependencies") == "serial"
        parts.append(Paragraph(_SERIAL if serial else _INDEPENDENT))
    return parts
