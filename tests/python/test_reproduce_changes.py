"""Studies that change one thing, by made-up figures."""

import pytest

from pagelab_studies import hardware_demand_paging_changes, ptemagnet_changes, study
from pagelab_studies.ptemagnet_changes import AS_NEEDED, BEFORE, OWN, SHARED, WITHOUT


def _lines(by_place: dict[str, float], seeds: int = 5) -> dict[str, bool | None]:
    """Verdicts if a group of the guest's PTEs has so many lines of the host's, by where co-runners run."""
    made = []
    for run in ptemagnet_changes.changed_runs():
        place = run.label.split(", ")[0]
        lines = round(100 * by_place[place]) + run.seed
        stats = {"layer.guest.contiguity.groups": 100, "layer.guest.contiguity.pte_lines": lines}
        if run.seed <= seeds:
            made.append(study.Measurement(run, run.accesses, stats))
    claims = ptemagnet_changes.evaluate(study.Measurements(made)).claims
    return {claim.text: claim.holds for claim in claims}


def test_co_runners_are_judged_by_where_they_run() -> None:
    verdicts = _lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0})
    prefix = "co-runners scatter the host's PTEs of pagerank over more lines"
    assert len(verdicts) == 8
    for touched in (f"{BEFORE}, unused memory", f"{AS_NEEDED}, aged memory"):
        assert verdicts[f"{prefix} ({OWN}, pages {touched})"] is False
        assert verdicts[f"{prefix} ({SHARED}, pages {touched})"] is True
    assert set(_lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0}, seeds=4).values()) == {None}


def test_co_runners_on_its_cpu_differ_in_that_alone() -> None:
    runs = {run.key[2]: run for run in ptemagnet_changes.changed_runs() if run.seed == 2}
    own, shared, alone = (runs[f"{where}, {BEFORE}, aged memory"] for where in (OWN, SHARED, WITHOUT))
    assert [one.rsplit("@", 1)[0] for one in own.beside] == [one.rsplit("@", 1)[0] for one in shared.beside]
    assert all(one.endswith("@0") for one in shared.beside)
    assert not alone.beside
    assert own.spec == shared.spec == alone.spec
    assert ",init=pages" not in runs[f"{SHARED}, {AS_NEEDED}, aged memory"].spec
    assert not any("init" in one for one in runs[f"{SHARED}, {AS_NEEDED}, unused memory"].beside)


@pytest.mark.parametrize(("quarter", "holds"), [(110, True), (95, None), (90, None)])
def test_a_core_more_is_judged_over_the_costs_of_the_kernel(quarter: int, holds: bool | None) -> None:
    made = []
    for run in hardware_demand_paging_changes.changed_runs():
        kernel = quarter if run.label.startswith("quarter") else 150
        cycles = kernel if run.system == "kernel" else 100
        stats = {"elapsed_cycles": cycles, "walk.count": 1}
        made.append(study.Measurement(run, run.accesses, stats, (stats,) * study.PARTS))
    findings = hardware_demand_paging_changes.evaluate(study.Measurements(made))
    assert [claim.holds for claim in findings.claims] == [holds] * 3
    assert all("machine.cores=9" in run.settings for run in hardware_demand_paging_changes.changed_runs())
