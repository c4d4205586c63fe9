"""What follows from the tables of a study, whether just made or on file."""

from pagelab_studies.interval import Interval
from pagelab_studies.study import Findings, Series


def table(findings: Findings, title: str) -> Series | None:
    """The table of a title; none if its runs are not finished."""
    return next((one for one in findings.series if one.title == title), None)


def cell(of_table: Series, group: str, member: str) -> Interval:
    """A figure of a table; one without an interval is taken as exact."""
    value = of_table.values[group, member]
    return of_table.intervals.get((group, member), Interval(value, value, value))
