"""Statements that follow from tables alone, Fig 9a of MFOE, and the designs of section 6: by made-up figures."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pagelab_studies import (
    hardware_demand_paging_events,
    hardware_demand_paging_tables,
    hash_dont_cache_related,
    hash_dont_cache_tables,
    mfoe_changes,
    mfoe_figure_9a,
    ptemagnet_runs,
    ptemagnet_tables,
    study,
    undecided,
    window_core,
)
from pagelab_studies import hash_dont_cache_clusters as clusters
from pagelab_studies.hardware_demand_paging_runs import LSM, STORE
from pagelab_studies.hash_dont_cache_related import (
    COALESCED,
    LINEAR,
    LRU,
    RADIX_HOST,
    SPECULATIVE,
    SPECULATIVE_HASHED,
    VARIABLE,
)
from pagelab_studies.hash_dont_cache_runs import CACTUS
from pagelab_studies.interval import Interval
from pagelab_studies.study import Findings, Series

Cells = Mapping[tuple[str, str], Interval]


def _with(title: str, cells: Cells) -> Findings:
    return Findings(series=[Series.within("Fig 1", title, "", cells)])


def _around(value: float, margin: float) -> Interval:
    return Interval(value - margin, value, value + margin)


def _holds(findings: Findings) -> dict[str, bool | None]:
    return {claim.text: claim.holds for claim in findings.claims}


@pytest.mark.parametrize(("margin", "holds"), [(4.9, True), (5.1, False)])
def test_samples_are_as_exact_as_their_widest_interval(margin: float, holds: bool) -> None:
    findings = _with(
        hash_dont_cache_tables.WALKS, {("a", "radix"): _around(50, 1), ("b", "radix"): _around(100, margin)}
    )
    hash_dont_cache_tables.precision(findings)
    assert list(_holds(findings).values()) == [holds]
    assert "(b, radix)" in findings.claims[0].detail


def test_a_window_that_is_too_small_leaves_the_precision_open() -> None:
    cells = {("a", "radix"): _around(50, 1), ("b", "radix"): _around(100, 1)}
    findings = _with(hash_dont_cache_tables.WALKS, cells)
    findings.series[0] = Series.from_values("Fig 1", hash_dont_cache_tables.WALKS, "", dict.fromkeys(cells, 1.0))
    hash_dont_cache_tables.precision(findings)
    assert list(_holds(findings).values()) == [None]


def test_references_of_spec_are_the_mean_of_the_analogues() -> None:
    member = "radix table: references of a walk"
    cells = {("a", member): _around(1.1, 0.01), ("b", member): _around(1.5, 0.01), ("a", "fewer"): _around(9, 0)}
    findings = _with(hash_dont_cache_tables.IN_TOTAL, cells)
    hash_dont_cache_tables.references_of_spec(findings)
    assert [(row.item, round(row.ours, 6)) for row in findings.comparisons] == [
        ("four analogues, mean", 1.3),
        ("a", 1.1),
        ("b", 1.5),
    ]
    assert all(row.unjudged for row in findings.comparisons), "the paper's is an average of all of SPEC"


def test_references_in_total_are_a_question_of_our_own_by_program() -> None:
    member = hash_dont_cache_tables.FEWER
    findings = _with(hash_dont_cache_tables.IN_TOTAL, {("a", member): _around(-30, 1), ("b", member): _around(12, 1)})
    hash_dont_cache_tables.references_in_total(findings)
    assert [(claim.holds, claim.ours) for claim in findings.claims] == [(False, True), (True, True)]
    assert [(row.item, row.ours, bool(row.unjudged)) for row in findings.comparisons] == [
        ("a", -30, True),
        ("b", 12, True),
    ]


@pytest.mark.parametrize(("gains", "faster"), [((16, 40), True), ((-1, 16), None), ((-2, 16), False)])
def test_guests_become_faster_or_not_by_an_amount_that_is_not_judged(
    gains: tuple[float, float], faster: bool | None
) -> None:
    cells = {(name, "free"): _around(gain, 1.5) for name, gain in zip("ab", gains, strict=True)}
    findings = _with(hash_dont_cache_tables.SPEED_UP, cells)
    hash_dont_cache_tables.nested_walk_cache(findings)
    assert [claim.holds for claim in findings.claims] == [faster]
    assert [row.ours for row in findings.comparisons] == list(gains)
    assert all(row.unjudged for row in findings.comparisons), "the paper quotes AMD's programs on AMD's processor"


@pytest.mark.parametrize(("half", "holds"), [(12, True), (10.5, None), (8, False)])
def test_slots_of_half_a_line_are_judged_by_cycles(half: float, holds: bool | None) -> None:
    title, columns = hash_dont_cache_tables.CYCLES_BY_CLUSTER, [f"{size} pages per slot" for size in clusters.SIZES]
    cells = {("a", column): _around(cycles, 0.5) for column, cycles in zip(columns, (half, 10, 99), strict=True)}
    findings = _with(title, cells)
    hash_dont_cache_tables.slots_of_half_a_line(findings)
    assert [(claim.holds, claim.ours) for claim in findings.claims] == [(holds, False)]


@pytest.mark.parametrize(("virtual", "holds"), [(20, True), (10.5, None), (5, False)])
def test_figs_10_and_11_are_judged_without_the_constructed_analogue(virtual: float, holds: bool | None) -> None:
    for number, (title, design) in hash_dont_cache_tables.SAVED.items():
        cells = {(CACTUS.name, f"bare {design}"): _around(99, 1), (CACTUS.name, f"virtual {design}"): _around(1, 1)}
        cells |= {("a", f"bare {design}"): _around(10, 1), ("a", f"virtual {design}"): _around(virtual, 1)}
        findings = _with(title, cells)
        hash_dont_cache_tables.without_conflicts("a core")(findings)
        assert [(claim.figure, claim.holds, claim.ours) for claim in findings.claims] == [(number, holds, False)]
        (judged,) = (undecided.of_claim("hash-dont-cache", replace(claim, holds=None)) for claim in findings.claims)
        with_it = replace(findings.claims[0], text=findings.claims[0].text.partition(", without")[0], holds=None)
        assert "hash functions" in judged
        assert "placements of cactusADM*'s frames" in undecided.of_claim("hash-dont-cache", with_it)


@pytest.mark.parametrize(("left", "holds"), [(0, True), (99, None), (120, False)])
def test_a_fully_associative_cache_leaves_fewer_misses(left: float, holds: bool | None) -> None:
    cells = {("8 ways", "radix"): _around(98, 2), ("64 ways", "radix"): _around(left, 1)}
    findings = _with(hash_dont_cache_tables.MISSES, cells)
    hash_dont_cache_tables.fully_associative(findings)
    assert [claim.holds for claim in findings.claims] == [holds]


def test_no_table_says_nothing() -> None:
    for add in (
        hash_dont_cache_tables.precision,
        hash_dont_cache_tables.of_variants,
        hash_dont_cache_tables.fully_associative,
        ptemagnet_tables.add,
        hardware_demand_paging_tables.pollution,
    ):
        findings = Findings()
        add(findings)
        assert not findings.claims
        assert not findings.comparisons


@pytest.mark.parametrize(("with_it", "fewer", "ideal"), [(1.0, True, True), (1.4, True, False), (2.5, False, False)])
def test_lines_of_host_ptes_are_judged_by_state(with_it: float, fewer: bool, ideal: bool) -> None:
    cells = {("alone", "order-0"): _around(2, 0.1), ("alone", ptemagnet_runs.EQUAL_COST): _around(with_it, 0.001)}
    findings = _with(ptemagnet_tables.LINES, cells)
    ptemagnet_tables.add(findings)
    assert list(_holds(findings).values()) == [fewer, ideal]


def test_each_program_of_figure_6_is_judged() -> None:
    cells = {(at.name, state): _around(1, 0.5) for at in ptemagnet_runs.JUDGED for state in ptemagnet_tables.STATES}
    cells |= {
        ("bfs", ptemagnet_tables.STATES[0]): _around(0, 0.5),
        ("cc", ptemagnet_tables.STATES[1]): _around(-1, 0.5),
    }
    findings = _with(ptemagnet_tables.SAVED, cells)
    ptemagnet_tables.add(findings)
    verdicts = _holds(findings)
    assert len(verdicts) == 8
    assert verdicts.pop(f"bfs becomes faster ({ptemagnet_tables.STATES[0]})") is None
    assert verdicts.pop(f"cc becomes faster ({ptemagnet_tables.STATES[1]})") is False
    assert set(verdicts.values()) == {True}


def test_pollution_needs_a_difference_of_one_per_cent() -> None:
    tables, events = hardware_demand_paging_tables, hardware_demand_paging_tables.POLLUTED
    titles, saved = hardware_demand_paging_events, hardware_demand_paging_events.FEWER
    changes = (_around(10, 8.5), _around(-10, 1), _around(1, 0.5), _around(0, 0.5), _around(0, 2))
    fewer = dict(zip(events, changes, strict=True))
    cells = {(event, system): _around(100, 0) for event in events for system in ("kernel", "unit")}
    findings = Findings()
    for store in (LSM, STORE):
        findings.series += _with(titles.events_title(store), cells).series
        of_store = {(event, saved): one for event, one in fewer.items()}
        findings.series += _with(titles.fewer_title(store), of_store).series
    tables.pollution(findings)
    assert list(_holds(findings).values()) == 2 * [True, False, None, False, None]
    papers = [claim.text for claim in findings.claims if not claim.ours]
    assert len(papers) == 3
    assert all(LSM in text and "TLB" not in text for text in papers), "the slides' store is like the LSM tree"


def test_figure_9a_is_in_nanoseconds_and_its_ratios_as_the_paper_computes_them() -> None:
    findings = Findings()
    means = {"kernel": [3000.0, 3300.0, 4000.0], "call": [1500.0] * 3, "engine": [60.0, 60.0, 160.0]}
    tails = {"kernel": [6000.0, 9000.0, 7200.0], "call": [3000.0] * 3, "engine": [120.0, 200.0, 144.0]}
    mfoe_figure_9a.add(findings, means, tails, [40.0] * 3, 3.0)
    ours = {(row.figure, row.item, row.quantity): (row.paper, row.ours) for row in findings.comparisons}
    assert ours["Fig 9a", "kernel", "latency of a fault, mean"] == (1270.0, 1000.0)
    assert ours["Fig 9a", "kernel", "latency of a fault, 95th percentile"] == (3200.0, 2000.0)
    assert ours["Fig 9a", "call", "latency of a fault, 95th percentile"] == (1757.0, 1000.0)
    assert ours["Fig 9a", "hardware", "gain of the mean"] == (33.0, 30.0)
    assert ours["Fig 9a", "hardware", "gain of the tail"] == (51.0, 50.0)
    assert ours["Table 4", "hit", "latency"] == (78, 100)
    judged_in_size = {(row.item, row.quantity) for row in findings.comparisons if not row.unsized}
    assert judged_in_size == {
        ("engine", "latency of a fault, mean"),
        ("engine", "latency of a fault, 95th percentile"),
        ("hardware", "gain of the mean"),
        ("hit", "latency"),
    }
    # A run's kernel by the same run's engine: the slowest kernel with the fastest engine is no run.
    gains = {row.quantity: row.interval for row in findings.comparisons if row.quantity.startswith("gain of")}
    assert gains == {"gain of the mean": Interval(20, 30, 33), "gain of the tail": Interval(45, 50, 50)}


def test_latencies_by_change_are_those_of_their_run() -> None:
    engine = "layer.native.fault_engine"
    made = []
    for run in mfoe_changes.changed_runs():
        quicker = 2 if run.label == mfoe_changes.BOTH else 1
        stats = {
            f"{engine}.hits": 10,
            f"{engine}.mapped.cycles": 800 // quicker,
            f"{engine}.mapped.deviation": 4000,
            f"{engine}.mapped.p95": 200 // quicker,
            f"{engine}.replaced": 10,
            f"{engine}.replaced.cycles": 30_000,
            f"{engine}.first_filled": 10,
            f"{engine}.first_filled.cycles": 15_000,
            "fault.handling.cycles": 32_000,
            "fault.minor.count": 10,
            "fault.minor.latency.p95": 6000,
            f"{engine}.ahead.mapped.cycles": 16_000,
            f"{engine}.ahead.mapped.count": 10,
            f"{engine}.ahead.mapped.p95": 3000,
            # Of the event model: three of ten faults hit, one fewer while tables are filled.
            "model.faults": 10,
            "model.hits": 3 - ("filled" in run.system),
            "model.duration_ns": 1_000_000,
            "model.parallelism_ppm": 1_000_000,
            "model.before_ns": 100_000,
            "model.after_ns": 50_000,
            "model.cut": 0,
        }
        made.append(study.Measurement(run, run.accesses, stats))
    findings = mfoe_changes.evaluate(study.Measurements(made))
    table, filled = findings.series
    assert {value for (_, member), value in filled.values.items() if member == "hit rate, full at the start"} == {30}
    assert {value for (_, member), value in filled.values.items() if member == "hit rate, filled from the start"} == {
        20
    }
    assert any("the hit rate is 10.00 to 10.00 points lower, and the gain 0.00" in note for note in findings.notes)
    # Of the tail's 75 cycles beyond the paper's both changes take 100.
    assert any(" to 133 % of the differences" in note for note in findings.notes)
    usual, both = (
        {member: value for (change, member), value in table.values.items() if change == which}
        for which in (mfoe_changes.PRESET, mfoe_changes.BOTH)
    )
    assert (usual["micro-benchmark, hit, mean"], both["micro-benchmark, hit, mean"]) == (80, 40)
    assert (usual["hit, latency"], both["hit, latency"]) == (120, 80)
    assert (usual["hardware, kernel's mean by its own"], both["hardware, kernel's mean by its own"]) == (40, 80)
    assert (usual["hardware, gain of the tail"], both["hardware, gain of the tail"]) == (30, 60)
    assert usual["call, kernel's mean by its own"] == both["call, kernel's mean by its own"] == 2
    assert (usual["background thread, throughput"], usual["first filling, throughput"]) == (1000, 2000)


_WALKS = {"radix": 100, "perfect": 50, LRU: 90, VARIABLE: 80, COALESCED: 52, "direct segment": 10}
_WALKS |= {"nested dual direct": 0, SPECULATIVE: 200, SPECULATIVE_HASHED: 202}


def _related(changes: Mapping[str, Mapping[str, int]]) -> Findings:
    """What is found if statistics of some systems are others than those of a world in which the paper is right."""
    made = []
    for run in hash_dont_cache_related.related_runs():
        cycles = 1000 * _WALKS.get(run.system, 300 if run.system == "nested radix" else 100)
        lines = {LRU: 2.1, VARIABLE: 2.0, "perfect": 1.0, RADIX_HOST: 24.0, LINEAR: 9.0}.get(run.system, 1.5)
        stats = {
            "accesses": 10_000,
            "walk.count": 100 if run.system == "direct segment" else 1000,
            "walk.refs": round(1000 * lines),
            "walk.cycles": cycles,
            "speculation.refs.critical": 1000,
            "cycles.base": 100_000,
            "cycles.data_stall": 900_000,
            "cycles.translation": cycles,
            **changes.get(run.system, {}),
        }
        made.append(study.Measurement(run, run.accesses, stats, (stats,) * study.PARTS))
    return hash_dont_cache_related.evaluate(study.Measurements(made))


def test_designs_of_section_6_are_as_the_paper_says_in_a_world_of_its_own() -> None:
    findings = _related({})
    assert [text for text, holds in _holds(findings).items() if holds is not True] == []
    assert [row.quantity for row in findings.comparisons if not row.unjudged] == []
    removed = [row.ours for row in findings.comparisons if row.quantity == "TLB misses that a direct segment removes"]
    assert removed == [90] * len(hash_dont_cache_related.PROGRAMS)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({VARIABLE: {"walk.refs": 2100}}, "fewer references with a variable insertion point"),
        ({VARIABLE: {"walk.cycles": 50_000}}, "not able to close the gap"),
        ({COALESCED: {"walk.cycles": 61_000}}, "alone comes close to perfect"),
        ({SPECULATIVE: {"cycles.translation": 310_000}}, "saves run time of a virtual machine"),
        ({SPECULATIVE_HASHED: {"cycles.translation": 260_000}}, "have little effect on run time"),
        ({"nested VMM direct": {"cycles.translation": 300_000}}, "VMM direct: near bare metal"),
        ({"nested dual direct": {"walk.cycles": 20_000}}, "almost no translation overhead"),
    ],
)
def test_a_design_that_is_otherwise_breaks_its_statement(changes: Mapping[str, Mapping[str, int]], text: str) -> None:
    verdicts = {statement: holds for statement, holds in _holds(_related(changes)).items() if text in statement}
    assert verdicts
    assert set(verdicts.values()) == {False}


def test_runs_on_a_core_with_a_window_differ_in_the_core_alone() -> None:
    (run,) = [run for run in hash_dont_cache_related.related_runs() if run.key == ("mcf*", "radix", "")]
    (other,) = window_core.on_window_core("hash-dont-cache", [run])
    assert other.settings == (*run.settings, "machine.core=sandy-bridge", "machine.core.kernel_overlap=on")
    assert other.key == run.key
    assert window_core.cost(lambda _: study.Cost(10, 3, 2))(other) == study.Cost(16, 3, 2)
