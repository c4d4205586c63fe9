"""Progress where standard error is no terminal."""

import pytest

from pagelab.cli.outlook import Outlook, windows_option
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


def test_another_one_of_the_same_name_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines("accesses", 10.0, clock)
    for begin in (0.0, 500.0):
        for second in range(12):
            clock.seconds = begin + second
            lines.report("radix", 2_000_000 * second, 200_000_000)
    assert capsys.readouterr().err.splitlines() == 2 * ["radix: 20.0/200.0 M accesses, 2.0 M/s, 10 %, 0:01:30 left"]
    # The one before has ended, and this one is heard of late.
    clock.seconds = 1000.0
    lines.report("radix", 200_000_000, 200_000_000)
    capsys.readouterr()
    clock.seconds = 2000.0
    lines.report("radix", 210_000_000, 400_000_000)
    clock.seconds = 2010.0
    lines.report("radix", 240_000_000, 400_000_000)
    assert capsys.readouterr().err.splitlines() == ["radix: 240.0/400.0 M accesses, 24.0 M/s, 60 %, 0:00:07 left"]


def test_short_runs_and_quiet_ones_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as report:
        assert report is not None
        report("radix", 1, 10)
        report("radix", 10, 10)
    with progress_bars(quiet=True) as report:
        assert report is None
    assert capsys.readouterr().err == ""


def _told(capsys: pytest.CaptureFixture[str], per_second: int, instructions: int | None) -> list[str]:
    clock = Clock()
    passed: list[tuple[str, int, int | None]] = []
    outlook = Outlook(lambda *arguments: passed.append(arguments), instructions, clock)
    for second in range(20):
        clock.seconds = 100.0 + second
        for number in (1, 2):
            outlook(f"replay {number} of 12: huge pages, core that waits", per_second * second, 549_000_000)
    assert len(passed) == 40
    return capsys.readouterr().err.splitlines()


def test_long_replays_are_told_once_with_what_makes_them_short(capsys: pytest.CaptureFixture[str]) -> None:
    # After 5 s one replay has told of 25 M accesses, and one of 20 M. Six replays of 549 M take 366 s at that rate, and
    # the other six four times as long.
    (line,) = _told(capsys, 5_000_000, 2_000_000_000)
    assert line.startswith("12 replays of 549 M accesses: about 30 min; --windows every=20M,length=1M,warm=1M ")
    (line,) = _told(capsys, 5_000_000, None)
    assert line == "12 replays of 549 M accesses: about 30 min"
    assert _told(capsys, 200_000_000, None) == []


def test_windows_are_round_numbers() -> None:
    assert windows_option(123_456_789_012) == "--windows every=1G,length=50M,warm=50M"
    assert windows_option(10) == "--windows every=1,length=1,warm=1"
