"""Progress where standard error is no terminal."""

import pytest

from pagelab.cli.terminal import Lines, progress_bars


class Clock:
    """A clock that is set by hand."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_line_each_ten_seconds_with_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines("accesses", 10.0, clock)
    for second in range(25):
        clock.seconds = 100.0 + second
        lines.report("radix", 2_000_000 * second, 200_000_000)
        if second % 2 == 0:
            lines.report("sorting", 1_000_000 * second, None)
    assert capsys.readouterr().err.splitlines() == [
        "radix: 20.0/200.0 M accesses, 2.0 M/s, 10 %, 0:01:30 left",
        "sorting: 10.0 M accesses, 1.0 M/s",
        "radix: 40.0/200.0 M accesses, 2.0 M/s, 20 %, 0:01:20 left",
        "sorting: 20.0 M accesses, 1.0 M/s",
    ]


def test_short_runs_and_quiet_ones_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as report:
        assert report is not None
        report("radix", 1, 10)
        report("radix", 10, 10)
    with progress_bars(quiet=True) as report:
        assert report is None
    assert capsys.readouterr().err == ""
