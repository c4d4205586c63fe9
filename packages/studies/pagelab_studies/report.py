"""A reproduction's findings as a folder: REPORT.md, results.json, and a picture of each figure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pagelab
from pagelab.output import write_atomically
from pagelab_studies import verdicts
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, FrameMap, Measurement, Measurements, Reproduction, Series

VERDICTS = {True: "holds", False: "**does not hold**", None: "not decided"}
WORDS = {True: "yes", False: "**no**", None: "open"}
"""The same of a figure, in a column for each aspect."""
# Pages that a map of frames shows.
MAPPED_PAGES = 512


def write(
    folder: Path,
    reproduction: Reproduction,
    scale: float,
    measured: Measurements,
    findings: Findings,
    pictures: bool = True,
) -> list[Path]:
    """Writes the files and returns their paths. Pictures need matplotlib (`pip install pagelab[pictures]`)."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        folder / "REPORT.md": markdown(reproduction, scale, findings),
        folder / "results.json": _json(reproduction, scale, measured, findings),
    }
    for path, text in files.items():
        write_atomically(path, text)
    return [*files, *(_pictures(folder, findings) if pictures else [])]


def _json(reproduction: Reproduction, scale: float, measured: Measurements, findings: Findings) -> str:
    """The findings, and for each run its description and the statistics that figures were computed from."""
    runs = [_of_run(measurement, read) for measurement, read in measured.with_read()]
    return document(reproduction, scale, findings, runs)


def document(reproduction: Reproduction, scale: float, findings: Findings, runs: Sequence[Mapping[str, Any]]) -> str:
    """`results.json`, of findings and what is kept of runs."""
    return in_lines({**_found(reproduction, scale, findings), "runs": runs})


def in_lines(document: Mapping[str, Any]) -> str:
    """A document as JSON with a line per key and per item of a list: small, and a change affects one line."""
    lines = [f" {_compact(key)}: {_listed(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _listed(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _compact(value)
    return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_KEYS = {"settling_accesses": "settle"}
"""Keys of `results.json` that are not the names of their fields."""


def _of_run(measurement: Measurement, read: Mapping[str, int]) -> dict[str, Any]:
    run = measurement.run
    requested = {
        _KEYS.get(option.name, option.name): getattr(run, option.name)
        for option in fields(run)
        if getattr(run, option.name) != option.default
    }
    return {**requested, "window": measurement.window, "stats": read}


def _found(reproduction: Reproduction, scale: float, findings: Findings) -> dict[str, Any]:
    return {
        "reproduction": reproduction.name,
        "version": pagelab.__version__,
        "machine": reproduction.machine,
        "scale": scale,
        "comparisons": [
            {
                **_without_unused(row),
                "interval": _bounds(row.interval),
                "limits": None if row.bound else verdicts.limits(row),
                "verdicts": judged,
            }
            for row, judged in zip(findings.comparisons, verdicts.judge(findings.comparisons), strict=True)
        ],
        "claims": [
            {key: value for key, value in vars(claim).items() if key != "ours" or value} for claim in findings.claims
        ],
        "series": [
            {
                "figure": series.figure,
                "title": series.title,
                "unit": series.unit,
                "values": [
                    [group, member, value, _bounds(series.intervals.get((group, member)))]
                    for (group, member), value in series.values.items()
                ],
            }
            for series in findings.series
        ],
    }


def _without_unused(row: Comparison) -> dict[str, Any]:
    return {key: value for key, value in vars(row).items() if key not in ("bound", "unjudged", "unsized") or value}


def _bounds(interval: Interval | None) -> dict[str, float] | None:
    """The interval of a figure; none if it is unbounded, for which JSON has no number."""
    return asdict(interval) if interval is not None and interval.is_known else None


def markdown(reproduction: Reproduction, scale: float, findings: Findings) -> str:
    """`REPORT.md`."""
    claims, questions = ([claim for claim in findings.claims if claim.ours is ours] for ours in (False, True))
    lines = [
        f"# {reproduction.title}",
        "",
        f"{reproduction.paper}. Measured with pagelab {pagelab.__version__} on `{reproduction.machine}`, windows at "
        f"scale {scale:g}. Nothing was tuned to meet a figure.",
        "",
        *findings.incomplete,
    ]
    if claims:
        holding, broken = (sum(claim.holds is verdict for claim in claims) for verdict in (True, False))
        lines += [
            f"**{holding} of {len(claims)} of the paper's statements hold here, {broken} do not, "
            f"{len(claims) - holding - broken} are not decided.**",
            "",
            *_judged("the paper says", claims),
        ]
    else:
        lines.append("No statement of the paper is judged.")
    if questions:
        lines += [
            "",
            "## Questions of our own",
            "",
            "The paper says nothing of these, or gives no bound. They do not count as its statements.",
            "",
            *_judged("question", questions),
        ]
    lines += [
        "",
        "## Figures side by side",
        "",
        "Brackets give the range in which a figure lies by all that is known about it. The verdicts are about the sign "
        f"of an effect, its order among the paper's figures, and its size: within {verdicts.TOLERANCE:.0%} of the "
        "paper's effect, or in the range that the paper gives or rounds to. *Open* means that the bracket crosses a "
        "limit.",
        "",
        "| figure | item | quantity | paper | here | sign | order | size | limits of the size | remark |",
        "|---|---|---|---:|---:|---|---|---|---|---|",
        *map(_row, findings.comparisons, verdicts.judge(findings.comparisons)),
    ]
    for series in findings.series:
        lines += ["", f"## {series.figure}: {series.title} ({series.unit})", "", *_grid(series)]
    if findings.notes:
        lines += ["", "## What to know", "", *(f"- {note}" for note in findings.notes)]
    return "\n".join([*lines, ""])


def _judged(what: str, claims: Iterable[Claim]) -> Iterable[str]:
    yield f"| figure | {what} | about | here | measured | what the verdict depends on |"
    yield "|---|---|---|---|---|---|"
    for c in claims:
        yield f"| {c.figure} | {c.text} | {c.aspect} | {VERDICTS[c.holds]} | {c.detail} | {c.rests_on} |"


def _row(row: Comparison, judged: verdicts.Verdicts) -> str:
    paper, limits = verdicts.printed_in_words(row), verdicts.limits_in_words(row)
    ours = f"{number(row.ours, row.interval)} {row.unit}"
    without = row.unjudged and f"no verdict: {row.unjudged}", size_left_out(row)
    remark = "; ".join(part for part in (row.reason, *without) if part)
    cells = (row.figure, row.item, row.quantity, paper, ours, *words(judged), limits, remark)
    return f"| {' | '.join(cells)} |"


def size_left_out(row: Comparison) -> str:
    """Why only the size of a figure is not judged, in words; empty if it is."""
    return row.unsized and f"no verdict on the size: {row.unsized}"


def words(judged: verdicts.Verdicts) -> list[str]:
    """A word for each aspect; empty where there is nothing to judge."""
    return [WORDS[judged[aspect]] if aspect in judged else "" for aspect in verdicts.ASPECTS]


def _grid(series: Series) -> Iterable[str]:
    yield "| | " + " | ".join(series.members) + " |"
    yield "|---|" + "---:|" * len(series.members)
    for group in series.groups:
        cells = (
            number(series.values[group, member], series.intervals.get((group, member)))
            if (group, member) in series.values
            else ""
            for member in series.members
        )
        yield f"| {group} | " + " | ".join(cells) + " |"


def number(value: float, interval: Interval | None) -> str:
    """A figure with its interval."""
    if interval is None:
        return f"{value:.3g}"
    where = f"{interval.low:.3g} to {interval.high:.3g}" if interval.is_known else "window too small"
    return f"{value:.3g} ({where})"


def _pictures(folder: Path, findings: Findings) -> list[Path]:
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    paths = []
    pictures: list[Series | FrameMap] = [*findings.series, *findings.maps]
    for number, picture in enumerate(pictures):
        figure = _bars(plt, picture) if isinstance(picture, Series) else _map(plt, picture)
        path = folder / f"{number + 1:02}-{''.join(c if c.isalnum() else '-' for c in picture.figure.lower())}.svg"
        partial = path.with_suffix(".part")
        # The same findings give the same bytes.
        with mpl.rc_context({"svg.hashsalt": "pagelab"}):
            figure.savefig(partial, format="svg", metadata={"Date": None})
        plt.close(figure)
        partial.replace(path)
        paths.append(path)
    return paths


def _bars(plt: Any, series: Series) -> Any:
    figure, axes = plt.subplots(figsize=(max(6.0, 1.1 * len(series.groups) + 2), 3.6), layout="constrained")
    width = 0.8 / len(series.members)
    for index, member in enumerate(series.members):
        at = [group + (index - (len(series.members) - 1) / 2) * width for group in range(len(series.groups))]
        heights = [series.values.get((group, member), 0.0) for group in series.groups]
        axes.bar(at, heights, width, label=member, yerr=_whiskers(series, member))
    axes.set_xticks(range(len(series.groups)), series.groups, rotation=20, ha="right")
    axes.set_ylabel(series.unit)
    axes.set_title(f"{series.figure}: {series.title}", fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _whiskers(series: Series, member: str) -> list[list[float]] | None:
    """How far the intervals of a member reach below and above its bars; none if no interval is known."""
    cells = [(group, member) for group in series.groups]
    known = {
        cell: interval for cell in cells if (interval := series.intervals.get(cell)) is not None and interval.is_known
    }
    if not known:
        return None
    below = [max(0.0, known[cell].value - known[cell].low) if cell in known else 0.0 for cell in cells]
    above = [max(0.0, known[cell].high - known[cell].value) if cell in known else 0.0 for cell in cells]
    return [below, above]


def _map(plt: Any, picture: FrameMap) -> Any:
    """Some pages from the middle of the largest array, with a line per run from its first to its last frame."""
    figure, row = plt.subplots(
        1, len(picture.panels), figsize=(4 * len(picture.panels) + 1, 3.6), layout="constrained", squeeze=False
    )
    for axes, (system, runs) in zip(row[0], picture.panels.items(), strict=True):
        first = _middle_of_largest(runs)
        shown = [run for run in runs if first <= run[0] < first + MAPPED_PAGES]
        for page, frame, pages in shown:
            axes.plot([page - first, page - first + pages], [frame / 1024, (frame + pages) / 1024], color="C0", lw=1.5)
        axes.set_title(f"{system}: {len(shown)} runs", fontsize=10)
        axes.set_xlabel("page of 4 KiB")
        axes.spines[["top", "right"]].set_visible(False)
    row[0][0].set_ylabel("frame / 1024")
    figure.suptitle(f"{picture.figure}: {picture.title}, {MAPPED_PAGES} pages", fontsize=10)
    return figure


def _middle_of_largest(runs: Sequence[tuple[int, int, int]]) -> int:
    """The first of `MAPPED_PAGES` pages in the middle of the longest stretch of adjacent pages."""
    best, start, end = (0, 0), 0, 0
    for page, _, pages in runs:
        if page != end:
            start = page
        end = page + pages
        best = max(best, (end - start, start))
    length, start = best
    return start + max(0, (length - MAPPED_PAGES) // 2)
