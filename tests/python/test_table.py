"""The side-by-side table."""

import io

from rich.console import Console

from pagelab.table import comparison

STATS = {
    "accesses": 1_000_000,
    "cycles": 4_000_000,
    "cycles.base": 1_000_000,
    "cycles.translation": 3_000_000,
    "cycles.idle": 0,
    "walk.count": 10_000,
    "walk.refs": 15_000,
    "walk.layer.native.level1.refs": 10_000,
    "walk.layer.native.level2.refs": 5_000,
    "walk.refs.l1": 15_000,
    "fault.minor.count": 100,
    "fault.major.count": 0,
    "fault.cycles": 260_000,
}


def lines(*systems: tuple[str, dict[str, int]]) -> dict[str, list[str]]:
    """Rows by label; the cells follow two or more blanks."""
    output = io.StringIO()
    Console(width=200, file=output).print(comparison(systems))
    rows = [line.strip().split("  ") for line in output.getvalue().splitlines() if line.strip()]
    return {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}


def test_rates_shares_and_ratios() -> None:
    rows = lines(("radix", STATS), ("slow", STATS | {"cycles": 6_000_000, "cycles.translation": 5_000_000}))
    assert rows["accesses"] == ["1 M", "1 M"]
    assert rows["cycles"] == ["4 M", "6 M", "×1.50"]
    assert rows["cycles per access"] == ["4.00", "6.00", "×1.50"]
    assert rows["waiting for translation"] == ["75.00 %", "83.33 %"]
    assert rows["references per walk"] == ["1.50", "1.50", "×1.00"]
    assert rows["native, level 2"] == ["0.500", "0.500"]
    assert rows["cycles per fault"] == ["2,600.0", "2,600.0", "×1.00"]


def test_the_shares_of_the_cycle_classes_sum_to_one() -> None:
    rows = lines(("radix", STATS))
    shares = [float(rows[label][0].split()[0]) for label in ("instructions", "waiting for translation")]
    assert sum(shares) == 100


def test_rows_that_nobody_counted_are_left_out() -> None:
    rows = lines(("radix", STATS))
    assert "idle" not in rows
    assert "major faults" not in rows
    assert "TLBs" not in rows


def test_a_layer_that_only_one_system_has_is_a_dash_for_the_others() -> None:
    rows = lines(("radix", STATS), ("nested", STATS | {"walk.layer.guest.level1.refs": 20_000}))
    assert rows["guest, level 1"] == ["–", "2.00"]


def test_main_sources_and_what_runs_beside_them_have_sections() -> None:
    beside = {
        "main.elapsed_cycles": 2_000_000,
        "main.cycles": 1_000_000,
        "main.cycles.fault": 250_000,
        "arrivals.count": 4,
        "arrivals.sojourn.cycles": 80_000,
        "arrivals.sojourn.p99_cycles": 30_000,
    }
    rows = lines(("radix", STATS | beside))
    assert rows["cycles to their end"] == ["2 M"]
    assert rows["page faults"] == ["25.00 %"]
    assert rows["cycles from arrival to exit, mean"] == ["20 k"]
    assert rows["99 of 100 at most"] == ["30 k"]
    assert "Beside them" not in lines(("radix", STATS))
