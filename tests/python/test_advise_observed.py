"""`pagelab advise --observed`: replays with what an observation says of its machine."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab.advice import Observed, Owner, choose
from pagelab.advice.trials import systems
from pagelab.advice.ways import ways
from pagelab.observe.difference import FORMAT
from pagelab.observe.machine_state import MachineState, free_bytes, machine_state

GIB, MIB = 1 << 30, 1 << 20
# Free: 2 x 4 KiB, 1 x 8 KiB and 3 x 2 MiB; 1 x 4 MiB.
BUDDYINFO = """\
Node 0, zone      DMA      2      1      0      0      0      0      0      0      0      3      0
Node 0, zone   Normal      0      0      0      0      0      0      0      0      0      0      1
"""
MACHINE = MachineState("A processor", False, "madvise", 16 * GIB, 8 * GIB, 4 * GIB, GIB, 2 * GIB)
WORKLOAD = "gups:size=32MiB,updates=100K"
TLB = {"l2": [{"entries": 1024}]}
AGE = "system.layers.0.age"


def _observation(folder: Path, machine: MachineState | None = MACHINE, **others: Any) -> Path:
    contiguity = {"groups": 10, "pte_lines": 25}
    memory = [{"layout": {"contiguity": contiguity}}, {"layout": None}, {"layout": {"contiguity": None}}]
    document = {"format": FORMAT, "machine": asdict(machine) if machine else None, "memory": memory} | others
    file = folder / "seen.json"
    file.write_text(json.dumps(document))
    return file


def _advice(pagelab: Pagelab, folder: Path, machine: MachineState) -> dict[str, Any]:
    """The advice on a workload for that machine."""
    file = _observation(folder, machine)
    result = pagelab("advise", "-q", "--json", "-", "-m", "kabylake-7700hq", "--observed", file, WORKLOAD)
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def _saved(document: dict[str, Any]) -> tuple[float, float]:
    (huge,) = (one["saved"] for one in document["remedies"] if one["name"] == "huge")
    return huge["low"], huge["high"]


def test_free_memory_is_that_of_all_zones_and_orders() -> None:
    assert free_bytes(BUDDYINFO) == (16 * 1024 + 6 * MIB + 4 * MIB, 10 * MIB)
    assert free_bytes("") == (0, 0)


def test_the_state_of_a_machine_is_read_from_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "buddyinfo").write_text(BUDDYINFO)
    amounts = {"MemTotal": 1000, "MemAvailable": 600, "SUnreclaim": 30, "PageTables": 12, "Slab": 99}
    lines = [f"{name}:  {value} kB" for name, value in amounts.items()]
    (tmp_path / "meminfo").write_text("\n".join([*lines, "HugePages_Total:  0"]))
    state = machine_state(tmp_path)
    assert state is not None
    assert (state.memory_bytes, state.available_bytes, state.unmovable_bytes) == (1000 << 10, 600 << 10, 42 << 10)
    assert (state.free_bytes, state.huge_free_bytes) == free_bytes(BUDDYINFO)
    (tmp_path / "buddyinfo").unlink()
    assert machine_state(tmp_path) is None


def test_an_observation_says_how_free_memory_lies(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("observe", "--json", "seen.json", "--", "sleep", "0.3").returncode == 0
    if machine_state() is None:
        # Where the kernel hides it, the observation says so.
        assert json.loads((tmp_path / "seen.json").read_text())["machine"] is None
        return
    machine = Observed.read(tmp_path / "seen.json").machine
    assert 0 < machine.huge_free_bytes <= machine.free_bytes < machine.memory_bytes
    assert machine.available_bytes <= machine.memory_bytes
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert machine.memory_bytes == int(total.split()[1]) << 10


def test_memory_is_aged_by_what_could_be_free(tmp_path: Path) -> None:
    observed = Observed.read(_observation(tmp_path))
    assert observed.age == {"free_fraction": 0.5, "huge_free_fraction": 0.25, "unmovable_fraction": 0.25, "seed": 1}
    assert observed.pte_lines == 2.5
    assert "50% could be free, and 25% of the free memory lies in blocks of 2 MiB" in observed.sentence
    full = Observed("", replace(MACHINE, free_bytes=0, huge_free_bytes=0, unmovable_bytes=99 * GIB), None)
    assert (full.age["huge_free_fraction"], full.age["unmovable_fraction"]) == (0, 1)
    assert "lines of PTEs" not in full.sentence


@pytest.mark.parametrize(
    ("mode", "key"), [("always", "large_pages"), ("madvise", "large_pages"), ("never", "page_size")]
)
@pytest.mark.parametrize("nested", [False, True])
def test_replays_without_a_remedy_have_the_observed_huge_pages(mode: str, key: str, nested: bool) -> None:
    observed = Observed("", replace(MACHINE, huge_pages=mode), None)
    tried = systems(choose("kabylake-7700hq", None, nested=nested, observed=observed), TLB, malloc_heap=True)
    settings = {name: dict(system[1]) for name, system in tried.items() if not isinstance(system, str)}
    assert settings.keys() == tried.keys(), "each has the observed memory"
    key, wanted = ("page_size", "4K") if mode == "never" else ("large_pages", mode)
    without = {"base", "tlb", "elsewhere"} | ({"small-host", "cold"} if nested else {"elsewhere-small"})
    for name, own in settings.items():
        assert (own.get(f"system.layers.0.{key}") == wanted) is (name in without), name
        assert (own.get(AGE) == observed.age) is not name.startswith("cold"), name


def test_the_observed_machine_counts_and_options_override_it() -> None:
    observed = Observed("", replace(MACHINE, virtualised=True, cpu_model="Intel Xeon Silver 4114"), None)
    choice = choose(None, None, cpu_model="another", virtualised=False, observed=observed)
    assert (choice.machine, choice.nested) == ("xeon-silver-4114", True)
    assert choice.why_nested == "the program was observed in one"
    other = choose("epyc-7763", None, nested=False, observed=observed)
    assert (other.machine, other.nested, other.why_nested) == ("epyc-7763", False, "")


def test_with_huge_pages_for_all_nothing_is_left_to_save(pagelab: Pagelab, tmp_path: Path) -> None:
    asked = _advice(pagelab, tmp_path, MACHINE)
    always = _advice(pagelab, tmp_path, replace(MACHINE, huge_pages="always"))
    assert _saved(asked)[0] > 0.2
    assert _saved(always) == (0, 0)
    assert asked["observed"]["machine"]["huge_pages"] == "madvise"
    assert asked["observed"]["age"]["huge_free_fraction"] == 0.25


def test_huge_pages_save_less_where_free_memory_is_in_pieces(pagelab: Pagelab, tmp_path: Path) -> None:
    whole, pieces = (
        _saved(_advice(pagelab, tmp_path, replace(MACHINE, huge_free_bytes=huge))) for huge in (4 * GIB, 0)
    )
    # Nothing is left that could be made whole.
    assert whole[0] > 0.2
    assert pieces[1] < whole[0]


def test_the_first_setting_is_named_if_huge_pages_are_never_given(pagelab: Pagelab, tmp_path: Path) -> None:
    file = _observation(tmp_path, replace(MACHINE, huge_pages="never", virtualised=True))
    page = pagelab("advise", "-q", "-m", "kabylake-7700hq", "--observed", file, WORKLOAD)
    text = " ".join(page.stdout.split())
    assert "Observed (" in text
    assert "2.50 lines of PTEs per group of eight there. In the replay without a remedy they have" in text
    assert "before the others, in the guest, as root: echo madvise >" in text
    assert "before the others" not in "\n".join(ways("huge", [], [Owner.GLIBC], nested=True))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not an observation"),
        ('{"format": "another"}', "is not an observation"),
        ("[]", "is not an observation"),
        (json.dumps({"format": FORMAT, "memory": []}), "says nothing of the machine"),
        (json.dumps({"format": FORMAT, "machine": {"cpu_model": "A"}, "memory": []}), "has no 'virtualised'"),
        (json.dumps({"format": FORMAT, "machine": asdict(MACHINE)}), "has no 'memory'"),
        (json.dumps({"format": FORMAT, "machine": "A", "memory": []}), "is damaged"),
        *(
            (json.dumps({"format": FORMAT, "machine": asdict(MACHINE) | {name: value}, "memory": []}), says)
            for name, value, says in (
                ("memory_bytes", 0, "more of the machine's memory is free than there is"),
                ("available_bytes", -GIB, "available_bytes of the machine is -1073741824"),
                ("free_bytes", "much", "free_bytes of the machine is 'much'"),
                ("huge_free_bytes", 5 * GIB, "free in large blocks than in all"),
                ("huge_pages", "sometimes", "huge_pages of the machine is 'sometimes', and not always, madvise"),
            )
        ),
        (json.dumps({"format": FORMAT, "machine": asdict(MACHINE), "memory": [{}]}), "is damaged"),
    ],
)
def test_files_that_are_no_observation_are_refused(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UsageError, match=says):
        Observed.read(tmp_path / "a.json")


def test_an_observation_is_read_before_anything_is_recorded(pagelab: Pagelab, tmp_path: Path) -> None:
    missing = pagelab("advise", "--observed", "none.json", "--keep", "a.trace", "--", "true")
    assert_fails(missing, 2, "none.json", "No such file")
    impossible = _observation(tmp_path, replace(MACHINE, available_bytes=-GIB))
    refused = pagelab("advise", "--observed", impossible, "--keep", "a.trace", "--", "true")
    assert_fails(refused, 2, "seen.json is damaged", "available_bytes")
    assert not (tmp_path / "a.trace").exists()
