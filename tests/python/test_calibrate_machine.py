"""Machine presets of the user's own processor: what cpuid says, what chases say, and files that runs take."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import Pagelab, assert_fails
from hypothesis import given, settings
from hypothesis import strategies as st
from test_presets import at, is_number, leaves, origin_of

import pagelab
from pagelab import native
from pagelab.hardware import clock, described, measured, preset, repair, walks
from pagelab.hardware.described import Cache, Tlb
from pagelab.hardware.measured import Figure
from pagelab.run_time import host

# An EPYC of family 19h, model 11h, as a virtual machine sees it.
ZEN_4 = {
    (0x0, 0): (28, 1752462657, 1145913699, 1769238117),
    (0x1, 0): (10555153, 133120, 4294586883, 395049983),
    (0x80000005, 0): (4282974016, 4282974016, 537395520, 537395520),
    (0x80000006, 0): (1543512576, 1811956224, 67133760, 167809344),
    (0x8000001D, 3): (16739, 62914623, 32767, 1),
}
GENUINE_INTEL = (0x20, 0x756E6547, 0x6C65746E, 0x49656E69)
CLOCK_NS = 0.25


def series(name: str, cycles: Iterable[tuple[int | str, float]]) -> str:
    """Lines of the benchmarks: three repetitions, of which the first is the quickest."""
    return "".join(
        f"{name} {argument} "
        + " ".join(f"{factor * value * CLOCK_NS}:{CLOCK_NS}" for factor in (1.0, 1.0, 1.02))
        + "\n"
        for argument, value in cycles
    )


def chains(**rates: float) -> str:
    """What chains of instructions tell of the clock, in cycles per nanosecond."""
    return "".join(
        f"chain {name.replace('_', '-')} {' '.join(f'{1 / rate:.5f}' for _ in range(3))}\n"
        for name, rate in rates.items()
    )


def benchmarks(slow: float = 1.0) -> str:
    """A processor with latencies of 4, 14, 50 and 400 cycles, a second-level TLB of 7, and 16 misses at once."""
    sizes = [4096 << number for number in range(17)]
    # Memory as large as the first cache is not all in it.
    caches = ((16 << 10, 4), (32 << 10, 6), (1 << 20, 14), (32 << 20, 50))
    latency = {size: next((cycles for limit, cycles in caches if size <= limit), 407) for size in sizes}
    pages = [*(8 << number for number in range(12)), 6144]
    lines = "".join(f"cpuid {leaf:x}.{part} {a} {b} {c} {d}\n" for (leaf, part), (a, b, c, d) in ZEN_4.items())
    lines += chains(additions_of_registers=4.0, exclusive_or=4.0, rotations=4.0, multiplications=3.96)
    lines += "huge 262144 262144\n"
    lines += series("chase", ((size, slow * cycles) for size, cycles in latency.items()))
    small = ((count, 4 if count <= 72 else 11 if count <= 3072 else 40) for count in pages)
    lines += series("pages4K", small) + series("pages2M", ((count, 4 if count <= 72 else 11) for count in pages[:5]))
    lines += series("pieces", ((count, 4 if count <= 72 else 11) for count in pages))
    lines += series("parallel", ((chases, 400 / min(chases, 16)) for chases in (1, 2, 4, 8, 16, 32)))
    lines += zeroing_and_copying()
    return lines + f"read 268435456 {' '.join(3 * [f'{0.3125 * CLOCK_NS}:{CLOCK_NS}'])}\n"


def zeroing_and_copying(copied: float = 1.0, large: float = 2.0) -> str:
    """A core that writes 40, 20, 10 and 4 bytes per cycle to its levels, and reads 80, 40, 20 and 8.

    Args:
        copied: Factor of the time of copies.
        large: How many times faster 2 MiB are zeroed at once.
    """
    sizes, most = [8192 << number for number in range(16)], 8192 << 15
    limits = ((32 << 10, 40), (1 << 20, 20), (32 << 20, 10))
    store = {size: 1 / next((rate for limit, rate in limits if size <= limit), 4) for size in sizes}
    lines = series("zero4K", store.items()) + series("copy4K", ((size, 1.5 * copied * store[size]) for size in sizes))
    lines += series("zero2M", [(most, 1 / 4 / large)]) + series("copy2M", [(most, 1 / 6)])
    return lines + series("stream4K", [(most, 1 / 5)]) + series("stream2M", [(most, 1 / 12)])


def facts(virtualised: bool = True) -> preset.Facts:
    machine = host.Machine("Linux 6.12.1", "Imaginary", "AuthenticAMD", 2600.0, 8, virtualised, "madvise", 0.0)
    return preset.Facts(machine, 4, 2, 24 << 30, (Cache(1, 32 << 10, 8), Cache(2, 1 << 20, 8), Cache(3, 32 << 20, 16)))


def test_latencies_and_parallelism_are_those_of_the_processor() -> None:
    made = preset.make(facts(), measured.parse(benchmarks()), name="mine")
    cache, core = made.preset["cache"], made.preset["core"]
    assert [cache[level]["latency_cycles"] for level in ("l1", "l2", "l3")] == [4, 14, 50]
    # Memory's chase misses the first-level TLB, whose entries reach 144 MiB.
    assert cache["dram_latency_cycles"] == 400
    assert cache["l3"] == {
        "size_bytes": "32768KiB",
        "ways": 16,
        "latency_cycles": 50,
        "policy": "lru",
        "inclusion": "non-inclusive",
    }
    assert made.preset["tlb"]["l2_latency_cycles"] == 7
    assert "guest" not in made.preset["tlb"]
    assert core["fill_buffers"] == 16
    assert (core["window"], core["load_queue"], core["store_queue"], core["page_walkers"]) == (320, 88, 64, 6)
    # 64 bytes at 0.3125 cycles each.
    assert cache["bulk_parallelism"] == 20
    assert made.preset["frequency_mhz"] == 4000
    assert (made.preset["cores"], made.preset["threads_per_core"]) == (4, 2)
    assert made.preset["mmu_cache"]["page_walk_cache"]["entries"] == 64
    # Its core is that of the preset.
    assert made.preset["origin"]["mmu_cache"].startswith("estimated: as in epyc-9654")
    assert "clock: 4.000 GHz ± 0.5 %" in made.comments[0]
    assert "up to 64 of them hit the L1 TLB" in made.comments[1]
    assert "takes 26 cycles more" in made.comments[3]
    assert [warning.split(":")[0] for warning in made.warnings] == [
        "this is a virtual machine",
        "the TLBs hold large pages whole, so the host maps this machine with large pages; replays with --nested assume "
        "a host with small pages",
    ]
    assert not preset.make(facts(virtualised=False), measured.parse(benchmarks())).warnings


def test_zeroing_and_copying_have_the_rates_of_each_level() -> None:
    made = preset.make(facts(virtualised=False), measured.parse(benchmarks()))
    bulk, origin = made.preset["bulk"], made.preset["origin"]
    assert bulk == {
        "cost": "bandwidth",
        "store_bytes_per_cycle": {"l1": 40.0, "l2": 20.0, "l3": 10.0, "memory": 4.0, "non_temporal": 8.0},
        "load_bytes_per_cycle": {"l1": 80.0, "l2": 40.0, "l3": 20.0, "memory": 8.0},
        "non_temporal_bytes": "2MiB",
    }
    memory = origin["bulk.store_bytes_per_cycle.memory"]
    assert memory == (
        "measured: zeroing 4 KiB in about 262144 KiB takes 1024 (median 1024, upper quartile 1034, 3 repeats) cycles"
    )
    assert "copying 4 KiB in about 128 KiB" in origin["bulk.load_bytes_per_cycle.l2"]
    rows = {row.what: round(row.cycles.value) for row in made.rows}
    assert rows["zeroing 4 KiB of memory (non-temporal stores)"] == 819
    assert rows["copying 2 MiB of memory (rep movsb)"] == (2 << 20) // 6
    # Not half as fast again: the caches are not passed.
    slow = preset.make(facts(), measured.parse(benchmarks() + zeroing_and_copying(large=1.4))).preset["bulk"]
    assert "non_temporal_bytes" not in slow
    assert "non_temporal" not in slow["store_bytes_per_cycle"]


def test_a_zeroed_page_costs_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(preset.make(facts(), measured.parse(benchmarks()), name="mine").to_toml())
    by_pages = {}
    for system, page in (("radix", 4096), ("radix-2m", 2 << 20)):
        once, twice = (
            pagelab.run(f"seq:size={count * page},step={page},write=1,passes=1", system, machine=file).systems[0].stats
            for count in (128, 256)
        )
        by_pages[page] = (twice["fault.stage.zeroing.cycles"] - once["fault.stage.zeroing.cycles"]) / 128
    # Beside it, the stage refers to a few lines of its own.
    assert 1024 <= by_pages[4096] < 1024 + 200
    assert 2**21 / 8 <= by_pages[2 << 20] < 1.01 * 2**21 / 8


def test_a_rate_that_cannot_be_is_left_to_the_other_preset() -> None:
    # Copies that take less time than zeroing alone.
    made = preset.make(
        facts(virtualised=False), measured.parse(benchmarks() + zeroing_and_copying(copied=0.5)), base="kabylake-7700hq"
    )
    assert made.preset["bulk"]["load_bytes_per_cycle"]["l2"] == 16.8
    assert "bulk.load_bytes_per_cycle.l2" not in made.preset["origin"]
    assert [text for text in made.warnings if text.startswith("load_bytes_per_cycle.l2 was not measured well: inf is")]
    assert [text for text in made.warnings if "bulk.load_bytes_per_cycle.l2 stays as in kabylake-7700hq, 16.8" in text]
    assert repair.refusal(made.preset) is None
    words = ("zero", "copy", "stream")
    without = "".join(line for line in benchmarks().splitlines(keepends=True) if not line.startswith(words))
    made = preset.make(facts(), measured.parse(without), base="kabylake-7700hq")
    assert made.preset["bulk"]["store_bytes_per_cycle"]["memory"] == 4.6
    assert [text for text in made.warnings if text.startswith("zeroing and copying of pages could not be measured")]


@pytest.mark.parametrize(
    ("cycles", "buffers", "least"),
    [
        # 24 chases at once have no more than 24 lines under way.
        ({1: 628, 8: 80, 24: 20.6, 32: 21}, 24, True),
        # More than there were chases may be under way where the most are the best.
        ({1: 640, 8: 80, 32: 20.5}, 31, True),
        ({1: 400, 8: 50, 16: 25, 32: 25.5}, 16, False),
    ],
)
def test_chases_at_once_bound_the_misses_at_once(cycles: dict[int, float], buffers: int, least: bool) -> None:
    lines = [line for line in benchmarks().splitlines() if not line.startswith("parallel")]
    text = "\n".join(lines) + "\n" + series("parallel", cycles.items())
    made = preset.make(facts(), measured.parse(text))
    assert made.preset["core"]["fill_buffers"] == buffers
    assert made.preset["origin"]["core.fill_buffers"].startswith("measured: at least: ") == least


def of_a_machine(arrangement: walks.Arrangement, measured_walks: walks.Walks, nested: bool) -> walks.Walks:
    """What walks cost on the default machine with an arrangement."""
    return walks.simulated(machine(), arrangement, measured_walks, virtualised=nested)


def machine() -> dict[str, Any]:
    config = pagelab.run("seq:size=4KiB,passes=1").systems[0].config["machine"]
    return {key: value for key, value in preset._without_nulls(config).items() if key != "origin"}


def test_the_arrangement_is_found_that_walks_were_measured_of() -> None:
    counts = walks.Walks({4096: 20.0}, {4096: 20.0})
    for arrangement in (
        walks.Arrangement("l1", of_hosts=True, guest_tlb=False),
        walks.Arrangement("l2", of_hosts=True, guest_tlb=True),
        walks.Arrangement("l2", of_hosts=False, guest_tlb=True),
    ):
        cost = of_a_machine(arrangement, counts, nested=True)
        assert cost.small[4096] > cost.large[4096] > 10
        made = walks.fit(machine(), cost, virtualised=True)
        assert (made.arrangement, made.others, made.is_near) == (arrangement, 7, True)
        assert made.simulated == cost
    far = walks.Walks({4096: 3 * cost.small[4096]}, {4096: 11.0})
    assert not walks.fit(machine(), far, virtualised=True).is_near


def test_arrangements_of_guests_are_not_looked_for_on_bare_machines() -> None:
    counts = walks.Walks({4096: 1.0}, {4096: 0.5})
    for entry in ("l1", "l2"):
        arrangement = walks.Arrangement(entry, of_hosts=True, guest_tlb=False)
        for virtualised in (False, True):
            # A virtual one has a host with large pages then.
            cost = of_a_machine(arrangement, counts, nested=virtualised)
            measured_walks = walks.Walks(cost.small, {4096: 0.5})
            made = walks.fit(machine(), measured_walks, virtualised=virtualised)
            assert (made.arrangement, made.others) == (arrangement, 1)
    small = machine()
    del small["cache"]["l2"]
    assert walks.fit(small, measured_walks, virtualised=False).arrangement.walker_entry == "l1"


def test_walks_are_what_pages_cost_beyond_as_many_lines() -> None:
    # This processor tells of 3,072 entries; 384 KiB of lines take 14 cycles each.
    text = benchmarks() + series("pieces", [(6144, 44)]) + series("pages4K", [(6144, 120)])
    measured_walks = walks.measured_walks(measured.parse(text), 3072)
    assert measured_walks is not None
    assert measured_walks.in_pieces
    assert {count: round(cycles) for count, cycles in measured_walks.small.items()} == {6144: 106}
    assert {count: round(cycles) for count, cycles in measured_walks.large.items()} == {6144: 30}
    made = preset.make(facts(), measured.parse(text))
    # What memory's chase takes beyond a walk and a hit of the second-level TLB.
    assert made.preset["cache"]["dram_latency_cycles"] == 407 - 30
    assert "nearest of 8 arrangements" in made.preset["origin"]["cache.walker_entry"]
    assert "of 6,144 pages in turn: in pages of 4K 106; within pages of 2M 30 cycles" in made.comments[4]
    without = walks.measured_walks(measured.parse(text.replace("huge 262144 262144", "huge 262144 1024")), 3072)
    assert without is not None
    assert (dict(without.large), without.in_pieces) == ({}, False)
    few = measured.parse("".join(line for line in text.splitlines(keepends=True) if line.split()[1] != "6144"))
    assert walks.measured_walks(few, 3072) is None
    assert "walks could not be measured" in preset.make(facts(), few).warnings[-1]


def test_a_warning_tells_what_share_of_a_cache_a_chase_finds() -> None:
    text = benchmarks()
    # 16 MiB hit; of 24 MiB all but a quarter miss. Half-way to memory lies between them.
    slow = measured.parse(text + series("chase", [(16 << 20, 50), (24 << 20, 318), (32 << 20, 407)]))
    share = preset.share_bytes(slow.chase_cycles, 50)
    assert share == pytest.approx((16 << 20) * 1.5 ** ((228.5 - 50) / (318 - 50)))
    made = preset.make(facts(), slow)
    assert made.preset["cache"]["l3"]["size_bytes"] == "32768KiB"
    assert "a chase finds 21.0 MiB of the last cache of 32 MiB" in made.warnings[1]
    assert "--set machine.cache.l3.size_bytes=16384KiB" in made.warnings[1]
    host = facts()
    eleven = dataclasses.replace(host, caches=(*host.caches[:2], Cache(3, 38016 << 10, 11)))
    text_of_warning = next(text for text in preset.make(eleven, slow).warnings if "last cache" in text)
    setting = text_of_warning.split("--set ")[1].split()[0]
    assert setting == "machine.cache.l3.size_bytes=19008KiB"
    ways = "machine.cache.l3.ways=11"
    pagelab.run("seq:size=4KiB,passes=1", set=[setting, ways])
    assert "of the last cache of 32 MiB, a chase finds 21.0 MiB" in made.to_toml()
    whole = preset.share_bytes(measured.parse(text).chase_cycles, 50)
    assert whole is not None
    assert whole > 0.75 * (32 << 20)
    small = {size: figure for size, figure in slow.chase_cycles.items() if size <= 16 << 20}
    assert preset.share_bytes(small, 50) is None


def test_every_number_has_an_origin() -> None:
    made = tomllib.loads(preset.make(facts(), measured.parse(benchmarks())).to_toml())
    origins = made.pop("origin")
    keys = list(leaves(made))
    assert not [key for key in keys if is_number(at(made, key)) and not origin_of(key, origins)]
    assert not origins.keys() - {origin_of(key, origins) for key in keys}


def test_a_preset_is_a_machine_of_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(preset.make(facts(), measured.parse(benchmarks()), name="mine").to_toml())
    result = pagelab.run("chase:size=1MiB,accesses=1K", machine=file).systems[0]
    assert result.machine == "mine"
    assert result.config["machine"]["core"]["fill_buffers"] == 16


def test_what_is_below_a_cycle_is_not_taken() -> None:
    made = preset.make(facts(), measured.parse(benchmarks(slow=0.01)))
    assert made.preset["cache"]["l1"]["latency_cycles"] == 4
    assert [
        text for text in made.warnings if text.startswith("L1 hit was not measured well: 0.04 is outside of 2 to 10")
    ]
    assert "cache.l1.latency_cycles" not in made.preset["origin"]


def test_amds_leaves_tell_arrays_for_all_pages() -> None:
    assert described.vendor(ZEN_4) == "AuthenticAMD"
    assert described.family_and_model(ZEN_4) == (25, 17)
    assert described.tlbs(ZEN_4) == [
        Tlb(1, "data", ("4K", "2M", "1G"), 72, 72),
        Tlb(1, "instruction", ("4K", "2M", "1G"), 64, 64),
        Tlb(2, "both", ("4K", "2M"), 3072, 6),
    ]


@pytest.mark.parametrize(
    ("entries", "stated"),
    [(128, 0), (128, 1 << 14), (4095, 0)],
    ids=["the bit is cleared by a hypervisor", "units of 32", "entries"],
)
def test_zen_5_states_its_second_level_in_units_of_32(entries: int, stated: int) -> None:
    zen_5 = {
        (0, 0): ZEN_4[0, 0],
        (1, 0): (0xB00F21, 0, 0, 0),
        (0x80000005, 0): (0xFF60FF40, 0xFF60FF40, 0, 0),
        (0x80000006, 0): (0x4000_2040 | entries << 16, 0x6000_4040 | entries << 16, 0, 0),
        (0x80000021, 0): (stated, 0, 0, 0),
    }
    core = described.core(zen_5)
    assert core is not None
    assert core.name == "Zen 5"
    assert described.tlbs(zen_5)[-1] == Tlb(2, "both", ("4K", "2M"), 4096 if entries == 128 else 4095, 4)


def test_the_base_is_the_preset_with_the_same_core() -> None:
    known = [core for core, _ in described._INTEL_MODELS] + [described._ZEN3, described._ZEN4, described._ZEN5]
    named = {core.name: core.preset for core in known if core.preset}
    assert len(named) >= 6
    for name in named.values():
        preset.ensure_known(str(name))
    assert preset.make(facts(), measured.parse(benchmarks())).base == named["Zen 4"]
    assert preset.make(facts(), measured.parse(benchmarks()), base="gem5-timing").base == "gem5-timing"


def test_intels_leaves_tell_an_array_each() -> None:
    skylake = {
        (0, 0): GENUINE_INTEL,
        (1, 0): (0x506E3, 0, 0, 0),
        (0x18, 0): (3, 0, 0, 0),
        (0x18, 1): (0, 4 << 16 | 1, 16, 1 << 5 | 1),
        (0x18, 2): (0, 12 << 16 | 3, 128, 2 << 5 | 3),
        (0x18, 3): (0, 8 << 16 | 2, 1, 1 << 8 | 1 << 5 | 2),
        # Of stores alone.
        (0x18, 4): (0, 4 << 16 | 1, 4, 1 << 5 | 5),
    }
    assert described.tlbs(skylake) == [
        Tlb(1, "data", ("4K",), 64, 4),
        Tlb(2, "both", ("4K", "2M"), 1536, 12),
        Tlb(1, "instruction", ("2M",), 8, 8),
    ]
    core = described.core(skylake)
    assert core
    assert (core.name, core.window) == ("Skylake", 224)
    # Bytes of leaf 2; the lowest one of EAX is no descriptor, and a register with its highest bit has none.
    older = {(0, 0): GENUINE_INTEL, (1, 0): (0x206A7, 0, 0, 0), (2, 0): (0x00CA03B6, 0x80000063, 0x76, 0)}
    assert described.tlbs(older) == [
        Tlb(1, "data", ("4K",), 64, 4),
        Tlb(2, "both", ("4K",), 512, 4),
        Tlb(1, "instruction", ("2M",), 8, 8),
    ]
    assert described.core({(0, 0): GENUINE_INTEL, (1, 0): (0x306F2, 0, 0, 0)}) == described._HASWELL
    assert described.core({(0, 0): GENUINE_INTEL, (1, 0): (0xF00F0, 0, 0, 0)}) is None


def test_reach_ends_where_two_in_a_row_are_slower() -> None:
    figures = {at: Figure(value, value, value, 3) for at, value in ((8, 4), (16, 9), (32, 4), (64, 9), (128, 9))}
    assert measured.reach(figures, 7) == 32
    assert measured.reach(figures, 10) == 128
    assert measured.reach(figures, 3) == 0


def test_this_machine_has_caches() -> None:
    machine_here = measured.measure(repeats=5, mebibytes=16, large_pages=8)
    assert machine_here.chase_cycles[8 << 10].value < machine_here.chase_cycles[16 << 20].value
    assert machine_here.parallel_cycles[8].value < machine_here.parallel_cycles[1].value
    assert machine_here.bulk_cycles["zero4K"][8 << 10].value < machine_here.bulk_cycles["copy4K"][16 << 20].value
    assert all(machine_here.bulk_cycles[kind] for kind in measured.BULK)
    assert described.family_and_model(machine_here.leaves)[0] >= 6
    # The slowest core that saves power and the fastest there is; a busy machine lengthens single repetitions.
    assert 1 / 8 < machine_here.clock_ns.value < 1 / 0.4
    assert 0.4 <= machine_here.clock.cycles_per_nanosecond <= 8
    # Some virtual machines tell nothing of their caches.
    assert [cache.level for cache in described.caches()[:1]] in ([1], [])


def test_a_chain_that_the_core_carries_out_at_rename_does_not_make_the_clock() -> None:
    honest = measured.parse(benchmarks())
    lines = [line for line in benchmarks().splitlines() if not line.startswith("chain ")]
    # The chain beside the repetitions is five times too fast, as additions of immediates are on Golden Cove.
    fast = "\n".join(
        line if ":" not in line else re.sub(r":(\S+)", lambda time: f":{float(time[1]) / 5}", line) for line in lines
    )
    text = chains(additions_of_registers=20.0, exclusive_or=4.0, rotations=4.0, multiplications=3.96)
    parsed = measured.parse(text + fast)
    assert parsed.clock == honest.clock
    assert parsed.clock_ns.value == pytest.approx(honest.clock_ns.value)
    assert {size: figure.value for size, figure in parsed.chase_cycles.items()} == pytest.approx(
        {size: figure.value for size, figure in honest.chase_cycles.items()}
    )


def test_chains_that_disagree_are_an_error_without_a_preset(
    pagelab: Pagelab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = str(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    program = native.processor_benchmarks()
    lines = [line for line in benchmarks().splitlines(keepends=True) if not line.startswith("chain ")]
    text = chains(additions_of_registers=20.0, exclusive_or=4.0, rotations=19.0, multiplications=3.96)
    (tmp_path / "known.txt").write_text(text + "".join(lines))
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/known.txt\n")
    refused = pagelab("calibrate", "--hardware", XDG_CACHE_HOME=cache)
    assert refused.returncode == 2
    error = refused.stderr.splitlines()[-1]
    assert "error: the rate of the core's clock is not known" in error
    assert "additions-of-registers 20.00 GHz, exclusive-or 4.00 GHz" in error
    assert not (tmp_path / "this-machine.toml").exists()


def test_the_clock_is_compared_with_what_the_machine_states() -> None:
    slower = clock.StatedRate("cpuid, the highest frequency", 3.0)
    assert clock.Clock(3.1, 0.01, (slower,)).warnings == ()
    (warning,) = clock.Clock(3.9, 0.01, (slower,)).warnings
    assert "3.900 GHz ± 1.0 %" in warning
    assert "3 GHz (cpuid, the highest frequency)" in warning
    assert "neither the processor nor the kernel" in clock.Clock(3.9, 0.01).comparison


def test_the_command_writes_a_machine(pagelab: Pagelab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks' program is replaced by one that prints what is known."""
    cache = str(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    program = native.processor_benchmarks()
    (tmp_path / "known.txt").write_text(benchmarks())
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/known.txt\n")
    done = pagelab("calibrate", "--hardware", "-m", "xeon-e-2136", XDG_CACHE_HOME=cache)
    assert done.returncode == 0, done.stderr
    made = tomllib.loads((tmp_path / "this-machine.toml").read_text())
    assert made["name"] == "this-machine"
    assert made["cache"]["l1"]["latency_cycles"] == 4
    assert "as in xeon-e-2136" in made["origin"]["mmu_cache"]
    assert "4,000 MHz" in done.stdout
    ran = pagelab("run", "seq:size=64KiB", "-m", "this-machine")
    assert "on this-machine" in ran.stdout

    program.write_text("#!/bin/sh\necho there is not enough memory >&2\nexit 1\n")
    refused = pagelab("calibrate", "--hardware", "-o", "other.toml", XDG_CACHE_HOME=cache)
    assert refused.returncode == 2
    assert "the processor cannot be measured: there is not enough memory" in refused.stderr
    assert not (tmp_path / "other.toml").exists()


def test_options_that_do_not_go_together(pagelab: Pagelab) -> None:
    assert_fails(pagelab("calibrate", "--hardware", "--fio", "x.json"), 2, "--hardware cannot be combined with these")
    assert_fails(
        pagelab("calibrate", "--hardware", "--major-faults"), 2, "--major-faults cannot be combined with these"
    )
    assert_fails(pagelab("calibrate", "--hardware", "-o", "gem5-timing.toml"), 2, "a preset is called gem5-timing")
    assert_fails(pagelab("calibrate", "--hardware", "-o", "mine"), 2, "give mine.toml")


def test_an_unknown_machine_is_told_before_anything_is_measured(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("calibrate", "--hardware", "-m", "vax"), 2, "machine: `vax` is neither a preset")
    assert not list(tmp_path.iterdir())


def latencies(l1: float, l2: float, l3: float, memory: float) -> str:
    """Chases of the benchmarks with other latencies."""
    sizes = [4096 << number for number in range(17)]
    limits = ((16 << 10, l1), (32 << 10, (l1 + l2) / 2), (1 << 20, l2), (32 << 20, l3))
    return series("chase", ((size, next((c for limit, c in limits if size <= limit), memory + 7)) for size in sizes))


def test_a_figure_that_cannot_be_is_left_to_the_other_preset() -> None:
    made = preset.make(facts(), measured.parse(benchmarks() + latencies(4, 79, 90, 400)), base="kabylake-7700hq")
    assert made.preset["cache"]["l2"]["latency_cycles"] == 12
    (warning,) = (text for text in made.warnings if "L2 hit" in text)
    assert "79 is outside of 6 to 50" in warning
    assert "cache.l2.latency_cycles stays as in kabylake-7700hq, 12" in warning
    assert not [row for row in made.rows if row.what == "L2 hit"]
    assert "estimated" in made.preset["origin"]["cache"]
    assert repair.refusal(made.preset) is None


def test_latencies_of_the_other_preset_follow_those_that_were_measured() -> None:
    # In the preset L2 takes 12 cycles and L3 42. Here L2 takes 50, and L3 was not measured well.
    made = preset.make(facts(), measured.parse(benchmarks() + latencies(4, 50, 999, 2000)), base="kabylake-7700hq")
    cache, origin = made.preset["cache"], made.preset["origin"]
    assert cache["l2"]["latency_cycles"] == 50
    assert cache["l3"]["latency_cycles"] == 175
    assert "3.5 times cache.l2.latency_cycles, as in kabylake-7700hq" in origin["cache.l3.latency_cycles"]
    assert [text for text in made.warnings if text.startswith("cache.l3.latency_cycles: 42 is not more than")]
    assert repair.refusal(made.preset) is None


def test_geometries_that_cannot_be_are_left_to_the_other_preset() -> None:
    odd = dataclasses.replace(
        facts(),
        cores=1000,
        threads_per_core=16,
        caches=(Cache(1, 32 << 10, 8), Cache(2, 1000 << 10, 7), Cache(3, 32 << 20, 16)),
    )
    made = preset.make(odd, measured.parse(benchmarks()), base="kabylake-7700hq")
    assert (made.preset["cores"], made.preset["threads_per_core"]) == (64, 8)
    assert "1000; at most 64 are simulated" in made.preset["origin"]["cores"]
    assert made.preset["cache"]["l2"]["size_bytes"] == "256KiB"
    assert [text for text in made.warnings if text.startswith("cache.l2 stays as in kabylake-7700hq: machine.cache.l2")]
    assert repair.refusal(made.preset) is None


@settings(max_examples=25, deadline=None)
@given(
    cycles=st.tuples(*(st.floats(0.5, 3000) for _ in range(4))),
    kib=st.tuples(*(st.integers(1, 1 << 18) for _ in range(3))),
    ways=st.tuples(*(st.integers(1, 130) for _ in range(3))),
    cores=st.integers(1, 500),
    base=st.sampled_from(("kabylake-7700hq", "gem5-timing", "xeon-silver-4114")),
)
def test_whatever_is_measured_makes_a_machine(
    cycles: tuple[float, ...], kib: tuple[int, ...], ways: tuple[int, ...], cores: int, base: str
) -> None:
    caches = tuple(
        Cache(level, size << 10, associativity) for level, size, associativity in zip((1, 2, 3), kib, ways, strict=True)
    )
    host = dataclasses.replace(facts(virtualised=False), caches=caches, cores=cores)
    made = preset.make(host, measured.parse(benchmarks() + latencies(*cycles)), base=base)
    assert repair.refusal(made.preset) is None
    origins = made.preset["origin"]
    assert not [key for key in leaves(made.preset) if is_number(at(made.preset, key)) and not origin_of(key, origins)]


def test_a_model_that_its_features_contradict_is_not_believed() -> None:
    rocket_lake = {(0, 0): GENUINE_INTEL, (1, 0): (0xA0671, 0, 0, 0)}
    assert described.family_and_model(rocket_lake) == (6, 167)
    assert described.contradiction_in_leaves(rocket_lake) is None
    with_amx = {**rocket_lake, (7, 0): (0, 1 << 16, 0, 1 << 24)}
    doubt = described.contradiction_in_leaves(with_amx)
    assert doubt is not None
    assert "model 167 of family 6, which has no amx_tile" in doubt
    cascade = {(0, 0): GENUINE_INTEL, (1, 0): (0x50657, 0, 0, 0)}
    assert described.core(cascade) == described._SKYLAKE_SERVER
    assert described.core({**cascade, (7, 0): (0, 1 << 16, 0, 1 << 24)}) is None
    sapphire_rapids = {(0, 0): GENUINE_INTEL, (1, 0): (0xC06F2, 0, 0, 0), (7, 0): (0, 1 << 16, 0, 3 << 23)}
    assert described.core(sapphire_rapids) == described._GOLDEN_COVE
    text = (
        "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {}\nflags\t\t: fpu avx512f amx_tile\n\nprocessor\t: 1\n"
    )
    assert described.contradiction_in_cpuinfo(text.format(167)) is not None
    assert described.contradiction_in_cpuinfo(text.format(207)) is None
    assert described.contradiction_in_cpuinfo("") is None
    assert described.contradiction_in_cpuinfo(text.format(94).replace("amx_tile", "")) is not None
    made = preset.make(facts(), measured.parse(benchmarks()))
    assert not [text for text in made.warnings if "model" in text]
