"""Presets: complete, documented, and every number with its origin."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import pagelab

PRESETS = sorted((ROOT / "presets").rglob("*.toml"))
QUANTITY = re.compile(r"[0-9.]+[KMGT]i?B")


def leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Keys of all values, elements of lists by their number."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*key, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from leaves(part, (*key, str(number)))
    else:
        yield key


def at(value: Any, key: tuple[str, ...]) -> Any:
    for part in key:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def is_number(value: Any) -> bool:
    if isinstance(value, str):
        return QUANTITY.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def origin_of(key: tuple[str, ...], origins: dict[str, str]) -> str | None:
    """The longest key of `origins` that is `key` or a prefix of it."""
    prefixes = (".".join(key[:length]) for length in range(len(key), 0, -1))
    return next((prefix for prefix in prefixes if prefix in origins), None)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_number_has_an_origin(path: Path) -> None:
    preset = tomllib.loads(path.read_text())
    origins = preset.pop("origin")
    keys = list(leaves(preset))
    without = [".".join(key) for key in keys if is_number(at(preset, key)) and not origin_of(key, origins)]
    assert not without
    unused = origins.keys() - {origin_of(key, origins) for key in keys}
    assert not unused, "these origins belong to no key"


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_are_named_after_their_file_and_built_in(path: Path) -> None:
    preset = tomllib.loads(path.read_text())
    assert preset["name"] == path.stem
    assert preset["description"]
    registry = (ROOT / "crates/pagelab-engine/src/config/preset.rs").read_text()
    assert f'"{path.stem}"' in registry


def test_a_4k_fault_costs_about_a_microsecond() -> None:
    kernel = tomllib.loads((ROOT / "presets/kernels/linux-6.12.toml").read_text())
    cycles = sum(stage["cycles"] for stage in kernel["fault"].values())
    assert 1.0 <= cycles / 2.0e3 <= 1.3
    assert cycles / 3.0e3 >= 0.8


CLASSES = {"server", "desktop", "mobile", "simulated"}


@pytest.mark.parametrize("path", sorted((ROOT / "presets" / "machines").glob("*.toml")), ids=lambda path: path.stem)
def test_machines_say_their_year_and_class(path: Path) -> None:
    machine = tomllib.loads(path.read_text())
    assert machine["class"] in CLASSES
    # What was never made has no year.
    assert ("year" in machine) is (machine["class"] != "simulated")
    if "year" in machine:
        year = machine["year"]
        assert 2005 <= year <= 2026
        assert "launch" in machine["origin"]["year"]
        assert str(year) in machine["origin"]["year"]


@pytest.mark.parametrize("name", ["epyc-7763", "epyc-9654", "ryzen-9950x"])
def test_lines_between_complexes_take_longer(name: str) -> None:
    path = ROOT / "presets" / "machines" / f"{name}.toml"
    machine = tomllib.loads(path.read_text())
    near, far = machine["cache"]["cache_to_cache_latency_cycles"], machine["cache"]["far_cores"]
    # The preset itself is one complex, to which the distance does not matter.
    assert [group["cores"] for group in far] == [machine["cores"]] == [8]
    for core, latency in ((1, near), (7, near), (8, far[0]["latency_cycles"])):
        # Two CPUs store to one line in turns: each store moves it.
        source = f"random:size=64,granularity=8,write=1,threads=2,regions=shared,accesses=40K@0,{core}"
        changes = {"machine.cores": 16, "machine.threads_per_core": 1, "engine.sync_quantum_cycles": 0}
        stats = pagelab.run(source, "radix", machine=path, set=changes).systems[0].stats
        per_transfer = stats["elapsed_cycles"] / stats["coherence.remote"]
        assert latency <= per_transfer <= 1.1 * latency, f"core {core}: {per_transfer} cycles"
