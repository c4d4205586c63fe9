"""The page of all statements and figures of the papers, with their verdicts, and the counts of those."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab_studies import REPRODUCTIONS, reasons, shipped, undecided, verdicts
from pagelab_studies.report import VERDICTS, number, size_left_out, words
from pagelab_studies.study import Claim, Comparison, Reproduction
from pagelab_studies.window_core import SUFFIX


@dataclass(frozen=True)
class Filed:
    """A study and its results on file."""

    reproduction: Reproduction
    document: shipped.Document
    rows: list[Comparison]
    claims: list[Claim]


def read(results: Path) -> dict[str, Filed]:
    """All studies that have results in a folder, by name."""
    filed = {}
    for name, reproduction in REPRODUCTIONS.items():
        if (results / name / "results.json").exists():
            document = shipped.read(results / name)
            filed[name] = Filed(reproduction, document, shipped.rows(document), shipped.claims(document))
    return filed


def page(studies: Mapping[str, Filed]) -> str:
    """`docs/claims.md`."""
    return "\n".join(_lines(studies)) + "\n"


def _lines(studies: Mapping[str, Filed]) -> Iterator[str]:
    yield from (
        "# What holds",
        "",
        "This page lists the statements and printed figures of papers that were measured again, each with its verdicts",
        "and the evidence. *Bare* means on bare metal, *virtual* in a virtual machine, and names with * are workloads",
        "that stand for SPEC programs. `make reproductions` writes this page. [Reproductions](reproductions.md)",
        "explains the method. The [glossary](glossary.md) explains the terms.",
        "",
        "There are three kinds of verdicts. A statement has one of them; a printed figure can have all three:",
        "",
        "- **sign**: the effect has the same direction as in the paper, such as faster or fewer;",
        "- **order**: designs, sizes or programs rank as in the paper. Each pair that the paper gives different",
        "  figures for counts;",
        f"- **size**: the effect is within {verdicts.TOLERANCE * 100:.0f} % of the paper's, or in the range that the",
        "  paper gives or that its rounding allows. The effect of a ratio is its distance from 1. If the paper gives",
        "  a bound, such as *less than 0.2 %*, the figure must be on its side. The limits are next to the figure.",
        "",
        "*Yes* means that the whole interval of the figure measured here agrees with the paper, *no* that no part of",
        "it does, and *open* that the interval crosses a limit. What makes the interval so wide stands next to the",
        "verdict. A cell is empty if the paper says nothing that could be judged. Figures without an interval count as",
        "exact. Printed figures that are not figures of the same thing as ours, or that follow from the model, have no",
        "verdict; a table of their own says why. Where only the sizes cannot be compared, the table says so instead of",
        "why they differ.",
        "",
        "The default core waits for each access. Some studies were also run on a core with a window, which overlaps",
        "accesses. Their tables also have the figures and verdicts of that core; *not run* means that a figure was not",
        "measured on it.",
        "",
        *_by_figure(studies),
    )
    for name, study in studies.items():
        yield from _study(name, study, studies)
    for name, reproduction in REPRODUCTIONS.items():
        if name not in studies:
            yield from (
                "",
                f"## {reproduction.title}",
                "",
                f"{reproduction.paper}. No complete run is here yet: `pagelab",
            )
            yield f"reproduce {name}` makes one."


def paper_of(name: str) -> str:
    """The study of a paper that others extend: `mfoe` for `mfoe-variants`."""
    return next(base for base in REPRODUCTIONS if name == base or name.startswith(f"{base}-"))


def by_figure(studies: Mapping[str, Filed]) -> dict[str, dict[str, dict[str, Counter[bool | None]]]]:
    """Counts of verdicts by paper, figure and aspect."""
    papers: dict[str, dict[str, dict[str, Counter[bool | None]]]] = {}
    for name, study in studies.items():
        figures = papers.setdefault(paper_of(name), {})
        judged = zip(study.rows, verdicts.judge(study.rows), strict=True)
        verdicts_of = [(claim.figure, {claim.aspect: claim.holds}) for claim in study.claims if not claim.ours]
        verdicts_of += [(row.figure, dict(of_row)) for row, of_row in judged]
        for figure, of_one in verdicts_of:
            counts = figures.setdefault(figure, {aspect: Counter() for aspect in verdicts.ASPECTS})
            for aspect, verdict in of_one.items():
                counts[aspect][verdict] += 1
    return papers


def _by_figure(studies: Mapping[str, Filed]) -> Iterator[str]:
    yield from (
        "## By figure",
        "",
        "For each figure or section of a paper: how many of its statements and printed figures hold (*yes*), do not",
        "hold (*no*), or are undecided (*open*). A row without numbers has no verdict.",
        "",
    )
    yield "| paper | figure | sign | order | size |"
    yield "|---|---|---|---|---|"
    for paper, figures in by_figure(studies).items():
        for figure, counts in figures.items():
            cells = (REPRODUCTIONS[paper].title, figure, *(_counted(counts[aspect]) for aspect in verdicts.ASPECTS))
            yield f"| {' | '.join(cells)} |"


def _counted(counts: Counter[bool | None]) -> str:
    known = ((counts[True], "yes"), (counts[False], "**no**"), (counts[None], "open"))
    return ", ".join(f"{count} {word}" for count, word in known if count)


def _study(name: str, study: Filed, studies: Mapping[str, Filed]) -> Iterator[str]:
    document = study.document
    claims, questions = ([claim for claim in study.claims if claim.ours is ours] for ours in (False, True))
    count = {verdict: sum(claim.holds is verdict for claim in claims) for verdict in VERDICTS}
    yield from (
        "",
        f"## {study.reproduction.title}",
        "",
        f"{study.reproduction.paper}. {len(document['runs'])} runs at scale {document['scale']:g} on",
        f"`{document['machine']}`, by pagelab {document['version']}: [report](reproductions/{name}/REPORT.md),",
        f"[JSON](reproductions/{name}/results.json).",
    )
    if not study.claims:
        yield "It judges no statement; experiments of its tables are reasons of other studies' differences."
        return
    if claims:
        yield f"**{count[True]} statements hold, {count[False]} do not, {count[None]} are not decided.**"
        yield from _judged(name, "the paper says", claims, studies)
    if questions:
        yield from (
            "",
            "Questions of our own, of which the paper says nothing or gives no bound; they are not counted:",
        )
        yield from _judged(name, "question", questions, studies)
    printed = [(row, judged) for row, judged in zip(study.rows, verdicts.judge(study.rows), strict=True) if judged]
    # The rows of a study on a core with a window stand beside those of the other core.
    if printed and not name.endswith(SUFFIX):
        yield from _figures(name, printed, studies)
    unjudged = [row for row in study.rows if row.unjudged]
    if unjudged and not name.endswith(SUFFIX):
        yield from _unjudged(name, unjudged, studies)


def _judged(name: str, what: str, claims: Sequence[Claim], studies: Mapping[str, Filed]) -> Iterator[str]:
    yield from (
        "",
        f"| figure | {what} | about | here | on a core with a window | measured | what the verdict depends on |",
        "|---|---|---|---|---|---|---|",
    )
    beside = studies.get(name + SUFFIX)
    on_window = {(claim.figure, claim.text): VERDICTS[claim.holds] for claim in (beside.claims if beside else ())}
    for claim in claims:
        window = on_window.get((claim.figure, claim.text), "" if name.endswith(SUFFIX) else "not run")
        why = undecided.of_claim(name, claim)
        here = f"{VERDICTS[claim.holds]}: {why}" if why else VERDICTS[claim.holds]
        cells = (claim.figure, claim.text, claim.aspect, here, window, claim.detail, claim.rests_on)
        yield f"| {' | '.join(cells)} |"


def _figures(
    name: str, printed: Sequence[tuple[Comparison, verdicts.Verdicts]], studies: Mapping[str, Filed]
) -> Iterator[str]:
    beside = studies.get(name + SUFFIX)
    window = {
        _key(row): (row, judged)
        for row, judged in (zip(beside.rows, verdicts.judge(beside.rows), strict=True) if beside else ())
    }
    yield ""
    yield (
        "| figure | item | quantity | paper | limits of the size | in order | sign | order | size | "
        "core with a window | sign | order | size | why the size differs | why a verdict is open |"
    )
    yield "|---|---|---|---:|---|---:|---|---|---|---:|---|---|---|---|---|"
    for row, judged in printed:
        beside_it = window.get(_key(row))
        open_there = undecided.of_figure(name + SUFFIX, *beside_it) if beside_it else ""
        cells = [
            *(row.figure, row.item, row.quantity, verdicts.printed_in_words(row), verdicts.limits_in_words(row)),
            *_of_core(row, judged),
            *(_of_core(*beside_it) if beside_it else ("not run", "", "", "")),
            size_left_out(row) or reasons.why(name, row, {name: one.document for name, one in studies.items()}),
            undecided.of_figure(name, row, judged) or open_there,
        ]
        yield f"| {' | '.join(cells)} |"


def _unjudged(name: str, rows: Sequence[Comparison], studies: Mapping[str, Filed]) -> Iterator[str]:
    beside = studies.get(name + SUFFIX)
    window = {_key(row): row for row in (beside.rows if beside else ())}
    yield from (
        "",
        "Printed figures without a verdict:",
        "",
        "| figure | item | quantity | paper | in order | core with a window | why it has none |",
        "|---|---|---|---:|---:|---:|---|",
    )
    for row in rows:
        other = window.get(_key(row))
        figures = [f"{number(one.ours, one.interval)} {one.unit}" if one else "not run" for one in (row, other)]
        cells = (row.figure, row.item, row.quantity, verdicts.printed_in_words(row), *figures, row.unjudged)
        yield f"| {' | '.join(cells)} |"


def _key(row: Comparison) -> tuple[str, str, str]:
    return row.figure, row.item, row.quantity


def _of_core(row: Comparison, judged: verdicts.Verdicts) -> tuple[str, ...]:
    return (f"{number(row.ours, row.interval)} {row.unit}", *words(judged))


def table_of_counts(studies: Mapping[str, Filed]) -> Iterator[str]:
    """The counts of each verdict, by study, for `docs/accuracy.md`."""
    yield (
        "| study | sign: yes, no, open | order: yes, no, open | size: yes, no, open "
        "| beyond the size: open | explained | unexplained |"
    )
    yield "|---|---|---|---|--:|--:|--:|"
    documents = {name: one.document for name, one in studies.items()}
    total: dict[str, Counter[bool | None]] = {aspect: Counter() for aspect in verdicts.ASPECTS}
    total_off: Counter[str] = Counter()
    for name, study in studies.items():
        counted = verdicts.counts(study.claims, study.rows)
        for aspect, counts in counted.items():
            total[aspect] += counts
        off = Counter(reasons.kind(name, row, documents) for row in study.rows if verdicts.differs(row))
        total_off += off
        yield _count_row(f"`{name}`", counted, off)
    yield _count_row("all", total, total_off)


def _count_row(name: str, counted: Mapping[str, Counter[bool | None]], off: Counter[str]) -> str:
    cells = [", ".join(str(counted[aspect][verdict]) for verdict in (True, False, None)) for aspect in verdicts.ASPECTS]
    return f"| {' | '.join((name, *cells, *(str(off[kind]) for kind in reasons.KINDS)))} |"
