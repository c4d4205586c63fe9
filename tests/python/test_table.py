"""The side-by-side table."""

import io
import re

from rich.console import Console

from pagelab.results.table import blocks, comparison, headings, wrap_name

STATS = {
    "accesses": 1_000_000,
    "cycles": 5_000_000,
    "elapsed_cycles": 3_000_000,
    "cycles.base": 1_000_000,
    "cycles.translation": 3_000_000,
    "cycles.idle": 1_000_000,
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
    rows = [re.split(r"\s{2,}|\s(?=×)", line.strip()) for line in output.getvalue().splitlines() if line.strip()]
    return {row[0]: row[1:] for row in rows}


def test_rates_shares_and_ratios() -> None:
    rows = lines(("radix", STATS), ("slow", STATS | {"cycles": 7_000_000, "cycles.translation": 5_000_000}))
    assert rows["accesses"] == ["1M", "1M"]
    assert rows["elapsed cycles"] == ["3M", "3M", "×1.00"]
    assert rows["busy cycles"] == ["4M", "6M", "×1.50"]
    assert rows["busy cycles/access"] == ["4.00", "6.00", "×1.50"]
    assert rows["% translation"] == ["75.00", "83.33"]
    assert rows["references per walk"] == ["1.50", "1.50", "×1.00"]
    assert rows["native, level 2"] == ["0.500", "0.500"]
    assert rows["all stages"] == ["2,600", "2,600", "×1.00"]


def test_idle_cpus_are_in_no_share() -> None:
    rows = lines(("radix", STATS))
    shares = [float(rows[label][0]) for label in ("% instructions", "% translation")]
    assert sum(shares) == 100
    assert rows["% of CPU time idle"] == ["20.00"]


def test_rows_that_nobody_counted_are_left_out() -> None:
    rows = lines(("radix", STATS | {"cycles.idle": 0}))
    assert "% of CPU time idle" not in rows
    assert "major faults" not in rows
    assert "TLBs" not in rows


def test_numbers_keep_four_digits_or_so() -> None:
    counts = {"0": 0, "9,999": 9_999, "10k": 10_000, "12.35M": 12_345_678, "1T": 10**12, "2.5P": 25 * 10**14}
    for text, count in counts.items():
        rows = lines(("radix", STATS | {"instructions": count}))
        assert rows.get("instructions", ["0"]) == [text]
    slow = {text: int(4_000_000 * times) + 1_000_000 for text, times in [("×<.01", 0.001), ("×9.99", 9.99)]}
    slow |= {text: int(4_000_000 * times) + 1_000_000 for text, times in [("×12.3", 12.34), ("×123", 123.4)]}
    for text, cycles in slow.items():
        assert lines(("radix", STATS), ("other", STATS | {"cycles": cycles}))["busy cycles"][-1] == text


def test_names_are_broken_at_their_punctuation() -> None:
    assert wrap_name("radix", 8) == "radix"
    assert wrap_name("nested-radix-shared-page-walk-cache", 13).split("\n") == [
        "nested-radix-",
        "shared-page-",
        "walk-cache",
    ]
    assert wrap_name("hashed-compact (1)", 13).split("\n") == ["hashed-", "compact (1)"]
    assert wrap_name("radix (1)", 8).split("\n") == ["radix", "(1)"]
    assert wrap_name("radix@linux-4.9 #2 (3)", 12).split("\n") == ["radix@linux-", "4.9 #2 (3)"]
    assert wrap_name("a_name_without_a_place", 8).split("\n") == ["a_name_w", "ithout_a", "_place"]


def test_settings_stand_below_the_table_and_no_word_is_broken() -> None:
    labels = [
        "radix",
        "hashed-compact{table_bytes=128MiB,seed=3}",
        'radix{placement={"kind":"eager","largest_block":"8KiB"},levels=5}',
        "radix@linux-4.9{seed=3} #2",
    ]
    assert headings(labels) == [
        ("radix", ""),
        ("hashed-compact (1)", "(1) hashed-compact: table_bytes=128MiB, seed=3"),
        ("radix (2)", '(2) radix: placement={"kind":"eager","largest_block":"8KiB"}, levels=5'),
        ("radix@linux-4.9 #2 (3)", "(3) radix@linux-4.9: seed=3"),
    ]
    tables = blocks([(label, STATS) for label in labels], 60)
    output = io.StringIO()
    for table in tables:
        Console(width=60, file=output).print(table)
    words = output.getvalue().split()
    # Each number stands above its column, and below its own table.
    assert [words.count(f"({number})") for number in (1, 2, 3)] == [2, 2, 2]
    assert {"table_bytes=128MiB,", "seed=3", "levels=5"} < set(words)
    first = str(tables[0].caption)
    assert "(1)" in first
    assert "(2)" not in first


def test_systems_that_do_not_fit_are_in_a_table_below() -> None:
    systems = [
        (name, STATS | {"cycles": cycles})
        for name, cycles in zip("abcdef", range(5_000_000, 11_000_000, 10**6), strict=True)
    ]
    for width, columns in [(80, [4, 2]), (60, [2, 2, 2]), (30, [1, 1, 1, 1, 1, 1]), (200, [6])]:
        tables = blocks(systems, width)
        assert [len(table.columns) - 1 for table in tables] == columns
        output = io.StringIO()
        for table in tables:
            Console(width=200, file=output).print(table)
        # All of them are compared with the first system.
        ratios = re.findall(r"×\S+", "".join(line for line in output.getvalue().splitlines() if "busy cycles " in line))
        assert ratios == ["×1.25", "×1.50", "×1.75", "×2.00", "×2.25"]


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
    assert rows["elapsed cycles"] == ["2M"]
    assert rows["% page faults"] == ["25.00"]
    assert rows["cycles, come to exit"] == ["20k"]
    assert rows["99 % at most"] == ["30k"]
    assert "Beside them" not in lines(("radix", STATS))


def test_layers_of_a_stack_are_told_apart() -> None:
    stack = {
        "walk.refs": 30_000,
        "walk.refs.l3": 6_000,
        "walk.refs.remote": 1_500,
        "walk.refs.dram": 3_000,
        "walk.layer.guest.level1.refs": 10_000,
        "walk.layer.guest.level1.refs.l3": 1_000,
        "walk.layer.host.level1.refs": 15_000,
        "walk.layer.host.level1.refs.remote": 1_500,
        "walk.layer.host.level1.refs.dram": 3_000,
        "walk.layer.host.level2.refs": 5_000,
        "walk.layer.host.level2.refs.l3": 500,
        "layer.guest.fault.count": 100,
        "layer.guest.fault.stage.entry.cycles": 40_000,
        "layer.guest.fault.stage.zeroing.cycles": 20_000,
        "layer.host.fault.count": 50,
        "layer.host.fault.stage.entry.cycles": 100_000,
    }
    nested = {name: count for name, count in STATS.items() if "native" not in name} | stack
    rows = lines(("nested", nested))
    assert rows["% beyond L2"] == ["35.00"]
    assert rows["% from memory"] == ["10.00"]
    assert (rows["guest, % beyond L2"], rows["host, % beyond L2"]) == (["10.00"], ["25.00"])
    assert rows["host, % from memory"] == ["15.00"]
    assert "Cycles per fault, guest" in rows
    tables = "\n".join(rows)
    assert tables.index("Cycles per fault, guest") < tables.index("Cycles per fault, host")
    native = STATS | {"layer.native.fault.count": 100, "layer.native.fault.stage.entry.cycles": 40_000}
    alone = lines(("radix", native))
    assert not [label for label in alone if label.startswith(("native, %", "Cycles per fault, "))]


def test_main_sources_have_their_own_walks() -> None:
    main = {
        "main.cycles": 1_000_000,
        "main.walk.count": 100,
        "main.walk.refs": 300,
        "main.walk.refs.l3": 60,
        "main.walk.refs.dram": 30,
    }
    only = {"accesses": 1000} | main
    rows = lines(("nested", only))
    assert rows["references per walk"] == ["3.00"]
    assert (rows["% beyond L2"], rows["% from memory"]) == (["30.00"], ["10.00"])


ENGINE = "layer.native.fault_engine."
UNIT = STATS | {
    "instructions": 2_000_000,
    "cycles.data_stall": 400_000,
    "walk.cycles": 300_000,
    "walk.aborted.count": 4_000,
    "walk.aborted.cycles": 100_000,
    f"{ENGINE}mapped": 4_000,
    f"{ENGINE}empty": 30,
    f"{ENGINE}failed": 2,
    f"{ENGINE}gone": 1,
    f"{ENGINE}full": 7,
    f"{ENGINE}joined": 5,
    f"{ENGINE}latency.cycles": 8_000_000,
    f"{ENGINE}latency.p50": 1_900,
    f"{ENGINE}latency.p99": 2_500,
    f"{ENGINE}step.submit.cycles": 350_000,
    f"{ENGINE}step.map.cycles": 50_000,
    f"{ENGINE}kpted.pages": 3_000,
    f"{ENGINE}accounted_by_calls": 900,
}


def test_a_storage_management_unit_has_a_section() -> None:
    rows = lines(("osdp", STATS), ("hwdp", UNIT))
    assert "Fault engine" in rows
    assert rows["pages mapped"] == ["–", "4,000"]
    assert rows["cycles each"] == ["–", "2,000"]
    assert rows["50 % at most"] == ["–", "1,900"]
    assert rows["99 % at most"] == ["–", "2,500"]
    assert rows["waited for a register"] == ["–", "7"]
    assert rows["joined another miss"] == ["–", "5"]
    assert rows["left to the kernel"] == ["–", "33"]
    assert rows["no page ready"] == ["–", "30"]
    assert rows["read failed"] == ["–", "2"]
    assert rows["entry had changed"] == ["–", "1"]
    assert rows["pages accounted for"] == ["–", "3,900"]


def test_a_minor_fault_offload_engine_has_the_same_section() -> None:
    counts = {"hits": 2_000, "huge.hits": 500, "misses": 70, "huge.misses": 8, "raced": 3, "gone": 4, "accounted": 900}
    mfoe = STATS | {f"{ENGINE}{name}": count for name, count in counts.items()}
    rows = lines(("mfoe", mfoe | {f"{ENGINE}mapped.cycles": 500_000, f"{ENGINE}mapped.p50": 190}))
    assert rows["pages mapped"] == ["2,500"]
    assert rows["cycles each"] == ["200.00"]
    assert rows["50 % at most"] == ["190"]
    assert rows["left to the kernel"] == ["85"]
    assert rows["no page ready"] == ["78"]
    assert rows["entry had changed"] == ["7"]
    software = lines(("mfoe-software", mfoe))
    assert software["pages mapped"] == ["2,500"]
    assert "cycles each" not in software, "the engine in software does not time its hits"
    two = {name.replace("native", "host"): count for name, count in mfoe.items() if ENGINE in name}
    assert {"Fault engine, native", "Fault engine, host"} <= set(lines(("nested-mfoe", mfoe | two)))


def test_without_an_engine_nothing_is_said_of_one() -> None:
    rows = lines(("radix", STATS | {"walk.aborted.count": 100, "instructions": 1_000_000}))
    assert "Fault engine" not in rows
    assert "user IPC (estimate)" not in rows
    assert rows["walks"] == ["10k"]


def test_walks_that_end_in_a_miss_are_told_apart_beside_an_engine() -> None:
    kernel = STATS | {"walk.cycles": 200_000, "walk.aborted.count": 4_000, "walk.aborted.cycles": 80_000}
    rows = lines(("osdp", kernel), ("hwdp", UNIT | {"walk.count": 6_000}))
    assert rows["walks completed"] == ["10k", "6,000", "×0.60"]
    assert rows["cycles per walk"] == ["20.00", "50.00", "×2.50"]
    assert rows["walks aborted"] == ["4,000", "4,000", "×1.00"]
    assert rows["cycles per aborted"] == ["20.00", "25.00", "×1.25"]
    assert rows["walk cycles/access"] == ["0.280", "0.400", "×1.43"]


def test_user_ipc_leaves_out_page_faults_devices_and_the_engine_s_steps() -> None:
    kernel = STATS | {"instructions": 2_000_000, "cycles.fault": 9_000_000, "cycles.io": 9_000_000}
    rows = lines(("osdp", kernel), ("hwdp", UNIT))
    # 4 M cycles by the kernel's way; by the engine's as many, and 0.4 M of data less 0.4 M of steps.
    assert rows["user IPC (estimate)"] == ["0.500", "0.500", "×1.00"]
