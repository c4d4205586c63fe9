"""Results of a study that are on file: what they say, read again without a run.

Statements and figures are evaluated anew from the statistics of the runs. Statistics of the parts of windows and maps
of frames are not on file. So a study that needs them keeps its figures and intervals as they were, and gets from the
code what each statement is about, what a verdict compares with, and which notes there are: a note that differs from
the one on file in its numbers alone keeps those on file.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pagelab
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, Measurement, Measurements, Reproduction, Series

Document = Mapping[str, Any]


def read(folder: Path) -> Document:
    """The results of a study in its folder."""
    document: Document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return document


def rows(document: Document) -> list[Comparison]:
    """The figures of a study, as they are on file."""
    derived = ("verdicts", "limits", "interval", "printed")
    return [
        Comparison(
            **{key: value for key, value in row.items() if key not in derived},
            interval=_interval(row["interval"]),
            printed=tuple(row["printed"]) if row.get("printed") else None,
        )
        for row in document["comparisons"]
    ]


def claims(document: Document) -> list[Claim]:
    """The statements, as they are on file."""
    return [Claim(**claim) for claim in document["claims"]]


def series(document: Document) -> list[Series]:
    """The tables, as they are on file. Rows and columns are in the order in which values are."""
    tables = []
    for one in document["series"]:
        cells = {(group, member): value for group, member, value, _ in one["values"]}
        intervals = {(group, member): Interval(**known) for group, member, _, known in one["values"] if known}
        table = Series.from_values(one["figure"], one["title"], one["unit"], cells)
        tables.append(replace(table, intervals=intervals))
    return tables


def _interval(bounds: Mapping[str, float] | None) -> Interval | None:
    return Interval(**bounds) if bounds else None


def evaluate(reproduction: Reproduction, document: Document, report: str) -> Findings:
    """What results on file say. `report` is the text of their report, for its notes.

    Raises:
        UsageError: the study has runs that are not on file, so results would be lost.
    """
    findings = reproduction.evaluate(_measurements(reproduction, document))
    if findings.incomplete:
        raise pagelab.UsageError(
            f"{reproduction.name}: runs are not on file: {findings.incomplete[0]}; make them with `pagelab reproduce "
            f"{reproduction.name} --scale {document['scale']:g}`, and copy its results"
        )
    if not any(run.in_parts or run.contiguity_map for run in reproduction.runs()):
        return _with_tables(reproduction, findings)
    known_rows = {(row.figure, row.item, row.quantity): row for row in rows(document)}
    known_claims = {(claim.figure, claim.text): claim for claim in claims(document)}
    known_series = {(one.figure, one.title): one for one in series(document)}
    current = {_without_numbers(note) for note in findings.notes}
    notes = [note for note in _notes(report) if _without_numbers(note) in current]
    texts = {_without_numbers(note) for note in notes}
    merged = Findings(
        comparisons=[
            _as_filed(row, known_rows.get((row.figure, row.item, row.quantity))) for row in findings.comparisons
        ],
        claims=[_claim_as_filed(claim, known_claims.get((claim.figure, claim.text))) for claim in findings.claims],
        series=[_series_as_filed(one, known_series.get((one.figure, one.title))) for one in findings.series],
        notes=[*notes, *(note for note in findings.notes if _without_numbers(note) not in texts)],
    )
    return _with_tables(reproduction, merged)


def _with_tables(reproduction: Reproduction, findings: Findings) -> Findings:
    if reproduction.of_tables:
        reproduction.of_tables(findings)
    return findings


def _claim_as_filed(claim: Claim, filed: Claim | None) -> Claim:
    return replace(claim, holds=filed.holds, detail=filed.detail) if filed else claim


def _series_as_filed(one: Series, filed: Series | None) -> Series:
    return replace(one, values=filed.values, intervals=filed.intervals) if filed else one


def _as_filed(row: Comparison, filed: Comparison | None) -> Comparison:
    return replace(row, ours=filed.ours, interval=filed.interval, reason=filed.reason) if filed else row


def key(run: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """What distinguishes a run on file: workload, system, label and seed."""
    return run["workload"], run["system"], run.get("label", ""), run.get("seed", 1)


def _measurements(reproduction: Reproduction, document: Document) -> Measurements:
    """The runs on file, each with stand-ins for its parts and its map, of which no figure is kept."""
    by_key = {key(run): run for run in document["runs"]}
    measured = []
    for run in reproduction.runs():
        filed = by_key.get((*run.key, run.seed))
        if filed:
            part = defaultdict(lambda: 1, filed["stats"])
            measured.append(Measurement(run, filed["window"], filed["stats"], (part,) * run.parts, {"guest": []}))
    return Measurements(measured)


def _notes(report: str) -> list[str]:
    _, _, notes = report.partition("## What to know\n")
    return [line.removeprefix("- ") for line in notes.splitlines() if line.startswith("- ")]


def _without_numbers(note: str) -> str:
    return re.sub(r"\([^)]*\)|[\d.,\s–-]+", "", note)
