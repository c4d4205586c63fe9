"""`pagelab calibrate --hardware`: how long lines take between cores, by their distance."""

import dataclasses

from conftest import ROOT
from test_calibrate_machine import benchmarks, facts, series

from pagelab.hardware import distances, measured, preset, repair


def on_two_packages() -> tuple[distances.Cpu, ...]:
    """Two packages of two caches each, with two cores of two hardware threads: CPUs 0 to 15."""
    return tuple(distances.Cpu(cpu, cpu // 2 % 4, cpu // 8, f"{cpu // 4 * 4}-{cpu // 4 * 4 + 3}") for cpu in range(16))


def test_pairs_of_each_distance_are_measured() -> None:
    # The other thread of the core shares its caches.
    assert list(distances.pairs(on_two_packages())) == [(0, 2), (0, 3), *((0, n) for n in range(4, 8))] + [
        (0, n) for n in (8, 10, 12, 14)
    ]
    assert not list(distances.pairs(on_two_packages()[:2]))


def test_lines_take_longer_to_distant_cores() -> None:
    cpus = on_two_packages()
    text = benchmarks() + series("transfer", [("0-2", 80), ("0-3", 84), ("0-4", 380), ("0-8", 720), ("0-12", 740)])
    here = dataclasses.replace(facts(virtualised=False), cpus=cpus)
    made = preset.make(here, measured.parse(text))
    cache = made.preset["cache"]
    assert cache["cache_to_cache_latency_cycles"] == 80
    # Two cores have a cache, four a package.
    assert cache["far_cores"] == [{"cores": 2, "latency_cycles": 380}, {"cores": 4, "latency_cycles": 720}]
    assert repair.refusal(made.preset) is None
    assert not [text for text in made.warnings if "line" in text]
    origins = made.preset["origin"]
    assert origins["cache.cache_to_cache_latency_cycles"].startswith("measured: 2 pairs of CPUs on cores that share")
    assert origins["cache.far_cores.1"].startswith("measured: 2 pairs of CPUs on cores in different packages")


def test_measured_distances_replace_those_of_the_other_preset() -> None:
    here = dataclasses.replace(facts(virtualised=False), cpus=on_two_packages()[:4])
    base = str(ROOT / "presets" / "machines" / "epyc-7763.toml")
    # Its complexes are 377 cycles apart, less than the measured cores are.
    made = preset.make(here, measured.parse(benchmarks() + series("transfer", [("0-2", 500)])), base)
    assert made.preset["cache"]["cache_to_cache_latency_cycles"] == 500
    assert "far_cores" not in made.preset["cache"]
    assert repair.refusal(made.preset) is None
    assert preset.make(here, measured.parse(benchmarks()), base).preset["cache"]["far_cores"]


def test_a_line_that_cannot_take_so_long_is_left_to_the_other_preset() -> None:
    here = dataclasses.replace(facts(virtualised=False), cpus=on_two_packages())
    made = preset.make(here, measured.parse(benchmarks() + series("transfer", [("0-2", 9000), ("0-8", 40)])))
    base = preset.make(here, measured.parse(benchmarks())).preset["cache"]
    assert made.preset["cache"]["cache_to_cache_latency_cycles"] == base["cache_to_cache_latency_cycles"]
    assert "far_cores" not in made.preset["cache"]
    assert any("9,000 is outside of 20 to 3,000" in text for text in made.warnings)
    assert any("no more than a nearer one" in text for text in made.warnings)


def test_cpus_that_are_not_where_linux_says_are_told() -> None:
    here = dataclasses.replace(facts(), cpus=on_two_packages())
    apart = preset.make(here, measured.parse(benchmarks() + series("transfer", [("0-2", 80), ("0-3", 400)])))
    assert any("5.0 times as long for some CPUs" in text for text in apart.warnings)
    moved = benchmarks() + series("transfer", [("0-2", 80)]) + series("transfer", [("0-2", 400)])
    made = preset.make(here, measured.parse(moved))
    assert any("80 cycles at one time and 400 at another" in text for text in made.warnings)
    unmeasured = preset.make(here, measured.parse(benchmarks()))
    assert any("could not be measured: they take as in" in text for text in unmeasured.warnings)
