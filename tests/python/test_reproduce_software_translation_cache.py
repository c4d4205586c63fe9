"""`pagelab reproduce software-translation-cache`: what is made of measurements, and real runs."""

from dataclasses import replace

import pytest

import pagelab
from pagelab_studies import published_rule, study, verdicts, walk_costs
from pagelab_studies import software_translation_cache as stc
from pagelab_studies import software_translation_cache_changes as changes
from pagelab_studies import software_translation_cache_variants as variants
from pagelab_studies.interval import Interval
from pagelab_studies.walk_costs import Saving, Walks

MATMUL_100 = "matmul:n=100,init=yes,accesses=2010000@0"


def _made_up(run: study.Run) -> study.Measurement:
    """Caches save eight of twenty cycles of each walk; of hits by the published rule half are wrong beyond 1 GiB.

    In a virtual machine, they save one cycle in 512 GiB.
    """
    large = run.label == "8 threads" or ("GiB" in run.label and run.label != "1 GiB")
    walks = 100 if run.label.endswith("initialisation") else 1000
    cached = run.system != "no cache"
    cycles = 20 if not cached else 19 if run.label == "512 GiB, virtual" else 12
    stats = {
        "fault.walk.count": walks,
        "fault.before_pte.cycles": walks * cycles,
        "fault.handling.cycles": walks * 1000,
        "cycles.base": walks * 1000,
        "cycles.fault": walks * 3000,
        "stc.lookups": walks * cached,
        "stc.refs.spared": 3 * walks * cached,
        "stc.fills": 0,
        "stc.hits.pmd": walks * cached,
        "stc.false_hits.pmd": walks // 2 if run.system == "as published" and large else 0,
    }
    return study.Measurement(run, run.accesses, stats)


def test_figures_follow_from_the_measurements() -> None:
    findings = stc.evaluate(study.Measurements(_made_up(run) for run in stc.runs()))
    saved = [row for row in findings.comparisons if row.quantity == "walk time saved"]
    printed = {row.item: row.paper for row in saved}
    # Where the paper's kernel goes on from wrong entries, its figure is printed beside ours and not judged.
    assert [printed[item] for item in ("sequential, 8 threads", "random, 8 threads apart")] == [None, 22.0]
    judged = dict(zip((row.item for row in findings.comparisons), verdicts.judge(findings.comparisons), strict=True))
    assert not judged["sequential, 8 threads"]
    assert set(judged["sequential, 8 threads apart"]) == {"sign", "order", "size"}
    assert [printed[item] for item in ("matmul 100², product", "matmul 1000², all faults")] == [30.0, 37.0]
    assert (printed["matmul, mean of our sizes"], printed["random, average"]) == (34.0, 18.0)
    # What a run at the presets' costs saves, of 20 cycles and of whatever walk the measured costs make of them.
    correct = [row for row in saved if row.paper is not None]
    assert all(row.interval and row.interval.value == pytest.approx(40) for row in correct)
    assert all(row.interval and row.interval.low < 40 < row.interval.high for row in correct)
    wrong = [series for series in findings.series if "wrong" in series.title]
    false = next(series for series in wrong if "bare metal" in series.title)
    assert [false.values[label, "false"] for label in ("1 GiB", "512 GiB")] == [0, 50]
    fig_4 = next(series for series in findings.series if series.figure == "Fig 4")
    assert fig_4.values["100", "all faults, net"] == fig_4.values["100", "product, net"] == 2.0
    with_timers = fig_4.values["100", "all faults, with timers"]
    assert with_timers == pytest.approx(100 * (20 + stc.TIMER) / (1000 + 2 * stc.TIMER))
    # At the measured costs a walk of 20 cycles takes 38 more or 10 less, and so does the fault of 1,000.
    low, high = (100 * (20 + 46 * timer + more) / (1000 + 92 * timer + more) for timer, more in ((0, -9.6), (1, 38.6)))
    sizes = [row for row in findings.comparisons if row.figure == "Fig 4"]
    assert [row.item for row in sizes] == [f"matmul {n}²" for n in stc.MATRICES]
    bounds = [(row.interval.low, row.ours, row.interval.high) for row in sizes if row.interval]
    assert bounds == [pytest.approx((low, 2.0, high))] * len(stc.MATRICES)
    holds = {claim.text: claim.holds for claim in findings.claims}
    # Hits beyond 1 GiB are wrong; all patterns gain the same, so none gains more.
    assert holds["a hit at all levels above avoids false positives"] is False
    assert holds["sequential accesses gain most, random ones least"] is False
    # On replicas random accesses may lose.
    assert holds["all three patterns gain (as published)"] is None
    # What is not simulated, and eight threads that gain as much as one.
    for text in ("eight threads gain more than one", "each doubling of the threads gains more"):
        assert holds[f"{text}, regions in one mapping (as published)"] is None
        assert holds[f"{text}, regions in one mapping (whole prefixes)"] is False
    larger = "random accesses gain less in 512 GiB than in 1 GiB"
    assert holds[f"{larger} (whole prefixes, in the guest)"] is True
    assert holds[f"{larger} (as published, in the guest)"] is None
    # What the paper's text does not say: steps between one and eight threads, and bare metal.
    asked = {claim.text for claim in findings.claims if claim.ours}
    assert asked == {text for text in holds if "each doubling" in text or "bare metal" in text}
    # The replicas' measurements widen a figure of one thread wherever it is printed, and not that of more threads.
    by_threads = [series for series in findings.series if series.title.startswith("walk time saved by threads")]
    assert {series.intervals["1 threads", "random"].low for series in by_threads} == {-34.0, -33.0}
    assert all(series.intervals["8 threads apart", "random"].low > -33 for series in by_threads[2:])


def test_steps_are_asked_and_eight_threads_against_one_are_the_papers() -> None:
    """Each doubling saves two cycles more of a walk, but for the one that is named."""

    def holds(text: str, *without: int) -> bool | None:
        def made(run: study.Run) -> study.Measurement:
            made_up = _made_up(run)
            if not run.label.endswith("threads apart") or run.system == "no cache":
                return made_up
            threads = int(run.label.split()[0])
            steps = sum(threads >= n and n not in without for n in stc.THREADS[1:])
            cycles = made_up.stats["fault.walk.count"] * (12 - 2 * steps)
            return replace(made_up, stats={**made_up.stats, "fault.before_pte.cycles": cycles})

        claims = stc.evaluate(study.Measurements(made(run) for run in stc.runs())).claims
        return next(one.holds for one in claims if one.text == f"{text}, regions in separate mappings (as published)")

    doublings, most = "each doubling of the threads gains more", "eight threads gain more than one"
    assert holds(doublings) is holds(most) is True
    assert [holds(doublings, threads) for threads in stc.THREADS[1:]] == [False] * 3
    assert [holds(most, threads) for threads in stc.THREADS[1:]] == [True] * 3
    assert holds(most, *stc.THREADS[1:]) is False


def test_a_saving_spans_the_measured_costs() -> None:
    before = Walks(10, 320)
    after = Walks(10, 240, hits=8, levels=12, look_ups=10, fills=3, fill_cycles=20)
    saving = Saving.between("as published", before, after)
    # At the presets' costs nothing is added; a set of costs by hand, with fills and without.
    assert saving.interval.value == saving.values[0] == pytest.approx(25)
    walk, root, level, look_up, fill = 32.4 - 32, 6.4 - 5, 0.0, 8.2 - 8, 2.1 - 4
    of_walks = 240 + 10 * walk - 8 * root - 12 * level + 10 * look_up
    assert walk_costs.BY_STRING[0].look_up_published == 8.2
    assert saving.values[1] == pytest.approx(100 * (1 - (of_walks + 3 * fill) / (320 + 10 * walk)))
    without = saving.values[len(saving.values) // 2 + 1]
    assert without == pytest.approx(100 * (1 - (of_walks - 20) / (320 + 10 * walk)))
    assert (saving.interval.low, saving.interval.high) == (min(saving.values), max(saving.values))
    # The same costs in both: a difference of figures that move together.
    assert saving.minus(saving) == Interval(0, 0, 0)
    assert Saving((3.0,), (-1.0, 7.0)).interval == Interval(-1, 3, 7)


def test_a_gain_is_judged_by_the_costs_of_each_processor() -> None:
    assert len(walk_costs.BY_STRING) == len(walk_costs.BY_STORES) == 8 * len(walk_costs.PROCESSORS)
    # Groups of eight sets: by string for each processor, then by stores. One set of the last group loses.
    groups = (3.0, -2.0, 1.0, 4.0, -5.0, 2.0)
    with_fills = (9.0, *(value for value in groups for _ in range(8)))
    after = (*with_fills[:-1], -1.0)
    saving = Saving((*with_fills, *after))
    first, second, third = walk_costs.PROCESSORS
    assert saving.by_costs[f"{first} (string)"] == Interval(3, 3, 3)
    assert saving.by_costs[f"{first} (stores)"] == Interval(4, 4, 4)
    assert saving.by_costs[f"{third} (stores)"] == Interval(-1, 0.5, 2)
    assert walk_costs.gains_at([saving]) == (
        f"yes by the costs of {first}, {third} (string); no by the costs of {second}; "
        f"open by the costs of {third} (stores)"
    )
    # All figures together: one that loses everywhere decides.
    losing = Saving(tuple(-1.0 for _ in saving.values))
    assert walk_costs.gains_at([saving, losing]) == f"no by the costs of {first}, {second}, {third}"


def test_what_larger_costs_come_to_is_what_a_run_with_them_takes() -> None:
    def walks(*settings: str) -> Walks:
        set_ = [stc.GUEST_ONLY, *settings]
        result = pagelab.run("semirandom:size=64MiB,write=1,accesses=300K@0", "nested-radix@linux-4.19-stc", set=set_)
        return Walks.from_measurement(study.Measurement(stc.runs()[0], 0, result.systems[0].stats))

    as_set = walks()
    larger = walks(
        "kernel.fault.walk.cycles=23",
        "kernel.translation_cache.cycles=5",
        "kernel.translation_cache.level_cycles=5",
        "kernel.translation_cache.root_cycles=4",
        "kernel.translation_cache.fill_cycles=2",
    )
    assert as_set.fills > 100
    assert as_set.levels > as_set.count
    costs, kernel = walk_costs.PRESET, "whole prefixes"
    more = replace(costs, walk=costs.walk + 7, look_up=costs.look_up + 5, level=costs.level + 4)
    more = replace(more, root=costs.root + 3, fill=costs.fill + 2)
    assert as_set.mean(more, kernel) == pytest.approx(larger.mean(costs, kernel), rel=1e-3)
    assert as_set.mean(costs, kernel) == as_set.cycles / as_set.count
    assert as_set.mean(costs, kernel, with_fills=False) < as_set.mean(costs, kernel) - 0.1


def test_products_run_to_their_end_with_all_settings() -> None:
    products = {run.label: run for run in stc.runs() if run.workload == "matmul" and run.system == "no cache"}
    for label in ("1000", "1000 host 2 MiB", "1000 L3 24 MiB", "1000 both"):
        begun, whole = products[f"{label} initialisation"], products[label]
        assert whole.accesses - begun.accesses + 1 == 2 * 1000**3 + 1000**2
        assert f"accesses={whole.accesses - begun.accesses + 1}@" in whole.spec
    assert "system.layers.host.page_size=2M" in products["1000 both"].settings


def test_only_the_guest_has_the_cache_and_the_product_has_faults_of_its_own() -> None:
    measured = study.measure(
        stc.REPRODUCTION,
        0.05,
        lambda run: (
            run.workload == "matmul" and run.label.split()[0] == "100" and run.system in ("no cache", *stc.ARRAYS)
        ),
        study.Watch(),
    )
    without, cached = (measured["matmul", system, "100"].stats for system in ("no cache", "whole prefixes"))
    assert cached["stc.lookups"] == cached["fault.walk.count"] == without["fault.walk.count"]
    assert cached["fault.nested.count"] > 0
    assert cached["stc.hits.pmd"] > 0
    assert "stc.lookups" not in without
    # A matrix of 100² doubles is 80,000 bytes: 20 pages.
    assert stc._product(measured, "no cache", "100").count == 20
    assert measured["matmul", "no cache", "100"].run.spec == MATMUL_100
    assert without["accesses"] == 2 * 100**3 + 3 * 100**2


def _changed(run: study.Run, alone: int, quicker: bool) -> study.Measurement:
    """A fault of several pages takes 500 cycles more per page; `quicker` says whether the program gains from it, and
    from a slot for each pud."""
    pages = int(run.label.split()[0]) if "per fault" in run.label else 1
    faults = run.accesses // pages if run.workload == "sequential" and quicker else run.accesses
    cached = run.system != "no cache"
    lookups = faults * cached
    misses = run.label.startswith("512 GiB") and not (quicker and "512 entries" in run.label)
    stats = {
        "fault.walk.count": faults,
        "fault.before_pte.cycles": faults * (18 if cached and misses else 12 if cached else 20),
        "fault.handling.cycles": faults * (20 + 500 * pages),
        "fault.nested.count": faults,
        "cycles.base": run.accesses * 100,
        "cycles.fault": faults * (1020 + 500 * pages),
        "stc.lookups": lookups,
        "stc.refs.spared": 3 * lookups,
        "stc.fills": 0,
        "stc.hits.pmd": lookups - alone * cached,
        "stc.hits.pgd": alone if run.system == variants.BY_PUD else 0,
    }
    return study.Measurement(run, run.accesses, stats)


@pytest.mark.parametrize(("alone", "quicker"), [(0, True), (7, False)])
def test_changes_are_told_by_their_own_runs(alone: int, quicker: bool) -> None:
    findings = changes.evaluate(study.Measurements(_changed(run, alone, quicker) for run in changes.runs()))
    assert not findings.incomplete
    by_text = {claim.text: claim for claim in findings.claims}
    claims = {text: claim.holds for text, claim in by_text.items()}
    assert next(holds for text, holds in claims.items() if "useless" in text) is quicker
    # One walk for several pages takes less of the time; as many walks as pages take more if such faults save time.
    assert claims["the share of walks rises with the pages per fault (sequential)"] is False
    corrected = "with as many walks as with one page, their share {} with the pages per fault ({})"
    assert claims[corrected.format("rises", "sequential")] is quicker
    for name in ("semi-random", "random"):
        assert claims[f"the share of walks falls with the pages per fault ({name})"] is True
        assert claims[corrected.format("falls", name)] is True
        assert claims[f"the share of faults after the walk rises with the pages per fault ({name})"] is True
    for place in changes.PLACES:
        assert claims[f"a slot for each pud gives back more than half of the loss in 512 GiB ({place})"] is quicker
    assert {text for text, claim in by_text.items() if claim.ours} == {
        text
        for text in claims
        if any(asked in text for asked in ("as many walks", changes.WASTED, "gives back", "each doubling"))
    }
    # Without a gain by several pages, no run time falls and each rises.
    assert claims["the run time falls with the pages per fault (sequential)"] is quicker
    for name in ("semi-random", "random"):
        assert claims[f"the run time rises with the pages per fault ({name})"] is True
    by_core, *_ = (series for series in findings.series if "where threads run" in series.title)
    assert list(by_core.values.values()) == pytest.approx([40] * len(by_core.values))
    assert len(by_core.values) == len(changes.CPUS) * len(stc.PATTERNS)


def test_shares_of_the_time_count_what_follows_the_walk_apart() -> None:
    findings = changes.evaluate(study.Measurements(_changed(run, 0, True) for run in changes.runs()))
    fig_2, fig_3 = (next(one for one in findings.series if one.figure == figure) for figure in ("Fig 2", "Fig 3"))
    # Per access: 100 cycles, and a fault of 1,520, or a sixteenth of one of 9,020.
    assert fig_2.values["1", "sequential"] == pytest.approx(100 * 500 / 1620)
    assert fig_2.values["16", "sequential"] == pytest.approx(100 * 500 / (100 + 9020 / 16))
    assert fig_3.values["16", "sequential"] == pytest.approx(100 * (20 / 16) / (100 + 9020 / 16))
    # The measured costs make more or less of a walk, and of the time with it.
    bounds = fig_3.intervals["1", "random"]
    assert (bounds.low, bounds.high) == pytest.approx(tuple(100 * (20 + more) / (1620 + more) for more in (-9.6, 38.6)))


def test_figs_2_and_3_change_the_guest_alone_and_the_pud_has_its_own_slots() -> None:
    runs = {run.key: run for run in changes.runs()}
    one = set(runs["random", "no cache", "1 per fault"].settings)
    guest_alone = set(runs["random", "no cache", "16 per fault"].settings)
    assert guest_alone - one == {"system.layers.guest.pages_per_fault=16"}
    assert not any(setting.startswith("kernel.pages_per_fault") for setting in guest_alone)
    assert "kernel.pages_per_fault=16" in runs["random", "no cache", changes.HOST_TOO].settings
    few, many = (runs["random", "whole prefixes", f"512 GiB, in a guest, {slots}"] for slots in changes.PUD_SLOTS)
    assert few.spec == many.spec
    assert set(many.settings) ^ set(few.settings) == {"kernel.translation_cache.pud_entries=512"}


def test_locks_differ_in_one_thing_per_pair() -> None:
    runs = {run.label: run for run in changes.runs() if run.label in changes.LOCKS and run.system == "no cache"}
    of_mm, of_vma = runs["mm's lock, one mapping"], runs["lock of the mapping, one mapping"]
    assert of_mm.spec == of_vma.spec
    assert set(of_vma.settings) - set(of_mm.settings) == {"kernel.fault_lock=vma"}
    assert "regions=own" in of_mm.spec
    assert "@0-7" in of_mm.spec


def test_a_wrong_entry_makes_an_instruction_fault_for_ever() -> None:
    aligned = published_rule.Region(start=1 << 18, pages=1 << 18)
    alone = published_rule.refaults(aligned, 1, 1 << 12)
    assert (alone.hangs, alone.misplaced, alone.faults) == (False, 0, 1 << 12)
    # Two gigabytes have two entries of the pud: one thread cannot get past a wrong pmd.
    wide = published_rule.refaults(published_rule.Region(1 << 18, 1 << 19), 1, 1 << 12)
    assert wide.hangs
    assert wide.misplaced >= 1
    assert wide.done < 1 << 12
    # Each touch that ends, ends with a fault, unless another page was mapped in its place before.
    assert wide.faults >= wide.done - wide.misplaced


@pytest.mark.parametrize(("points", "holds"), [(0.09, True), (0.11, False)])
def test_what_counts_as_no_more_hits_is_printed_where_the_verdict_rests_on_it(points: float, holds: bool) -> None:
    """More entries hit more often by their own index, and by that of the pud by so many points."""
    few, many = variants._BY_PUD.values()
    lookups = 10**12

    def hit(run: study.Run) -> study.Measurement:
        more = 0 if run.label == few else 1 if run.system == variants.PUBLISHED else points
        hits = round(lookups * (10 + more) / 100)
        return study.Measurement(run, run.accesses, {"stc.lookups": lookups, "stc.hits.pmd": hits})

    measured = study.Measurements(hit(run) for run in variants.runs() if run.label in (few, many))
    findings = study.Findings()
    variants._index_of_pmds(measured, findings)
    (claim,) = findings.claims
    assert claim.holds is holds
    assert "a difference of up to 0.1 points counts as none" in claim.rests_on


def test_that_a_fifth_level_makes_the_cache_save_more_is_a_question_of_our_own() -> None:
    """A cache saves eight cycles of a walk; of one with five levels four more."""

    def more(run: study.Run) -> study.Measurement:
        made_up = _made_up(run)
        fewer = 4000 if run.label == variants.FIVE and run.system != "no cache" else 0
        return replace(
            made_up,
            stats={**made_up.stats, "fault.before_pte.cycles": made_up.stats["fault.before_pte.cycles"] - fewer},
        )

    findings = study.Findings()
    variants._five_levels(study.Measurements(more(run) for run in variants.runs()), findings)
    (claim,) = findings.claims
    assert (claim.holds, claim.ours) == (True, True)
