"""What was found, in plain words."""

from collections.abc import Mapping
from typing import Any

from pagelab.quantities import size_text
from pagelab.report.figures import (
    paging_cycles,
    percent,
    share,
    stage_cycles,
)
from pagelab.results.headline import busy_cycles, faults
from pagelab.results.results import Results, SystemResult
from pagelab.results.spread import spreads
from pagelab.results.table import short

# A cost below these shares, or a difference above these, gets a sentence.
_SMALL = 0.01
_SAME = 0.005


def _how_sure(first: SystemResult) -> str:
    """A remark on a share of translation."""
    overlaps = first.config["machine"]["core"]["model"] != "in-order"
    return (
        ", as estimated on a core that overlaps accesses; what larger pages save is more reliable" if overlaps else ""
    )


def of_replays(first: SystemResult) -> str:
    """A description of the replays behind advice."""
    stats = first.stats
    cost = share(paging_cycles(stats), busy_cycles(stats))
    return (
        f"The replays behind it, on the core that overlaps accesses: there, paging takes {percent(cost)} of the cycles "
        "of the program as it is"
    )


def costs(first: SystemResult) -> list[str]:
    """Where the first system's cycles of paging go."""
    stats = first.stats
    busy, walks = busy_cycles(stats), stats.get("walk.count", 0)
    accesses = stats.get("accesses", 0)
    sentences = [
        f"Address translation takes {percent(share(stats.get('cycles.translation', 0), busy))} of all cycles"
        f"{_how_sure(first)}. "
        f"{_one_in(accesses, walks)} needs a page walk, which takes "
        f"{share(stats.get('walk.cycles', 0), walks):.0f} cycles and makes "
        f"{share(stats.get('walk.refs', 0), walks):.2f} references to memory or caches."
        if walks
        else "No access needed a page walk: the TLBs held every page."
    ]
    count = faults(stats)
    if count:
        stages = sorted(stage_cycles(stats).items(), key=lambda item: -item[1])[:2]
        most_expensive = " and ".join(
            f"{stage} ({percent(share(cycles, stats.get('fault.cycles', 0)))})" for stage, cycles in stages
        )
        sentences.append(
            f"Page faults take {percent(share(stats.get('cycles.fault', 0), busy))} of all cycles: {short(count)} of "
            f"{share(stats.get('cycles.fault', 0), count):,.0f} cycles each. The most expensive stages are "
            f"{most_expensive}."
        )
    else:
        sentences.append("There were no page faults.")
    reading = stats.get("cycles.io", 0)
    if share(reading, busy) > _SMALL:
        sentences.append(f"Waiting for devices takes {percent(share(reading, busy))} of all cycles.")
    footprint = sum(
        size * count
        for name, count in stats.items()
        for suffix, size in ((".pages.4K", 4 << 10), (".pages.2M", 2 << 20), (".pages.1G", 1 << 30))
        if name.startswith(f"layer.{first.sources[0].layer}.") and name.endswith(suffix)
    )
    if footprint:
        sentences.append(f"The program's kernel mapped {size_text(footprint)} in all.")
    return sentences


def comparisons(results: list[SystemResult]) -> list[tuple[str, str, str]]:
    """For each further system its label, the ratio of its cycles to the first's, and what changed."""
    first, *others = results
    return [(other.label, _ratio(first, other), _change(first, other)) for other in others]


def _ratio(first: SystemResult, other: SystemResult) -> str:
    return f"×{share(busy_cycles(other.stats), busy_cycles(first.stats)):.2f}"


def _change(first: SystemResult, other: SystemResult) -> str:
    before, after = busy_cycles(first.stats), busy_cycles(other.stats)
    change = share(after - before, before)
    if abs(change) < _SAME:
        verdict = "The same cycles, within half a per cent."
    elif change < 0:
        verdict = f"{percent(-change)} fewer cycles."
    else:
        verdict = f"{percent(change)} more cycles."
    parts = []
    for words, name in (("walks", "walk.count"), ("cycles of translation", "cycles.translation")):
        parts.append(f"{words} {_from_to(first.stats.get(name, 0), other.stats.get(name, 0))}")
    parts.append(f"page faults {_from_to(faults(first.stats), faults(other.stats))}")
    cycles = [share(result.stats.get("cycles.fault", 0), faults(result.stats)) for result in (first, other)]
    if all(cycles):
        parts.append(f"cycles per fault {_from_to(*cycles)}")
    text = "; ".join(parts)
    return f"{verdict} {text[0].upper()}{text[1:]}."


def _from_to(before: float, after: float) -> str:
    if short(before) == short(after):
        return f"stay {short(before)}"
    return f"from {short(before)} to {short(after)}"


def _one_in(whole: int, part: int) -> str:
    if whole < 1.05 * part:
        return "Almost every access"
    return f"One access in {whole / part:,.0f}" if whole >= 10 * part else f"One access in {whole / part:.1f}"


def orders(run: Results) -> list[str]:
    """How much the figures depend on the order of the sources' threads."""
    if run.is_one_order:
        return [
            "The program has several threads, and one of their many legal orders was replayed. "
            "`pagelab run --interleavings K` shows how much the figures depend on it."
        ]
    sentences = []
    for result in run.systems:
        if result.orders:
            spread = spreads(result.orders)["busy cycles"]
            low, high = spread.interval
            sentences.append(
                f"{result.label}: in {len(result.orders)} orders of the threads, busy cycles are {short(spread.mean)} "
                f"on average, from {short(spread.least)} to {short(spread.most)}; the mean of all orders is between "
                f"{short(max(low, 0.0))} and {short(high)} with a confidence of 95 %. Everything else on this page is "
                "for the recorded order."
            )
    return sentences


def _core(core: Mapping[str, Any]) -> str:
    """What the cycles of a core model do not include."""
    predictor = core.get("branch_predictor", _PERFECT)
    branches = "predicts every branch" if predictor == _PERFECT else f"predicts branches ({predictor})"
    if core["model"] == "in-order":
        return f"an in-order core that {branches} and waits for every access; a real core overlaps much of that"
    return f"a core whose window overlaps accesses; it {branches}, and memory has no limit of bandwidth"


_PERFECT = "perfect"


def trust(results: list[SystemResult]) -> list[str]:
    """What to know before the figures are believed."""
    cores = "; ".join(dict.fromkeys(_core(result.config["machine"]["core"]) for result in results))
    sentences = [
        f"Counts of walks, references and faults are exact for the model. Cycles come from latencies and {cores}. "
        "Use cycles to compare systems; they do not predict run time."
    ]
    shares = [
        (result.label, share(result.stats.get("fault.preset.cycles", 0), result.stats.get("fault.cycles", 0)))
        for result in results
    ]
    stated = ", ".join(f"{percent(part)} ({label})" for label, part in shares if part > _SMALL)
    if stated:
        sentences.append(
            f"Of the cycles of page faults, a part is stated by the kernel preset rather than simulated: {stated}. "
            "Where the preset calls such a number an estimate, so does the list of estimates below."
        )
    return sentences
