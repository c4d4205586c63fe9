"""MMU caches shared by cores, coalesced ones, and both (§6.1, after Bhattacharjee): programs of six threads.

The paper says of both together that they come close to perfect MMU caches, of parallel programs of less than 8 GB. Each
thread has a core of its own. A shared cache has the entries of all six cores' caches together. Its look-up takes
longer; by how much the paper does not say, so it is run with no cycle more and with `_LONGER` more.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.hash_dont_cache_related import CLOSE, COALESCED, SYSTEMS
from pagelab_studies.hash_dont_cache_runs import GUPS, XALAN, window_of
from pagelab_studies.hash_dont_cache_samples import CORE, rests_on, share_of_saving
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Findings, Measurements, Run, Series, figure, per_walk

PROGRAMS = (XALAN, GUPS[0])
THREADS = "six threads"
_CPUS = "0,2,4,6,8,10"
_LONGER = 8
"""Cycles of a shared cache's look-up beyond those of a core's own: an estimate, about a trip to the L2 cache."""
_SHARED = 'machine.mmu_cache.shared_by_cores={{"extra_latency_cycles":{}}}'
LATENCIES = {"": _LONGER, ", no cycle more": 0}
COALESCED_ALONE, SHARED_ALONE, BOTH = "coalesced", "shared", "coalesced and shared"
_REFERENCES = per_walk("walk.refs")


def _systems() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """System, preset and settings of each design."""
    yield "radix", *SYSTEMS["radix"]
    yield "perfect", *SYSTEMS["perfect"]
    preset, settings = SYSTEMS[COALESCED]
    yield COALESCED_ALONE, preset, settings
    yield SHARED_ALONE, SYSTEMS["radix"][0], (_SHARED.format(_LONGER),)
    for latency, cycles in LATENCIES.items():
        yield f"{BOTH}{latency}", preset, (*settings, _SHARED.format(cycles))


def runs() -> Iterator[Run]:
    """The windows."""
    for workload in PROGRAMS:
        for system, preset, settings in _systems():
            run = window_of(workload, system, preset, THREADS, settings)
            # All threads use one array.
            own = "" if workload is GUPS[0] else ",regions=shared"
            yield replace(run, spec=f"{run.spec},threads=6{own}@{_CPUS}")


def coalesced_and_shared(measured: Measurements, findings: Findings) -> None:
    """How much of what perfect MMU caches save each design does."""
    shares: dict[tuple[str, str], Interval] = {}
    references: dict[tuple[str, str], Interval] = {}
    for workload in PROGRAMS:
        name = f"{workload.name}, {THREADS}"
        radix, perfect = (measured[workload.name, system, THREADS] for system in ("radix", "perfect"))
        for system, *_ in _systems():
            window = measured[workload.name, system, THREADS]
            references[name, system] = figure(_REFERENCES, window)
            if system not in ("radix", "perfect"):
                shares[name, system] = figure(share_of_saving, radix, perfect, window)
        later, at_once = (shares[name, f"{BOTH}{latency}"] for latency in LATENCIES)
        share = Interval.around(later.value, (later, at_once))
        text = (
            f"coalescing and a shared cache together come close to perfect MMU caches: {CLOSE:.0%} of what they save, "
            f"a bound of ours ({name})"
        )
        detail = ", ".join(
            f"{100 * one.value:.0f} % ({100 * one.low:.0f} to {100 * one.high:.0f}) with {cycles} cycles more"
            for cycles, one in zip(LATENCIES.values(), (later, at_once), strict=True)
        )
        rests = rests_on(f"{CORE}; what a shared look-up costs, an estimate", workload.name)
        findings.claims.append(
            Claim("§6.1", text, share.above(CLOSE), f"of the walk cycles: {detail}", rests, "size", ours=True)
        )
        alone = measured[workload.name, SHARED_ALONE, THREADS]
        hits = figure(lambda one, other: _REFERENCES(one) - _REFERENCES(other), radix, alone)
        text = f"a cache shared by cores hits more often than one per core: fewer references of a walk ({name})"
        detail = f"{references[name, 'radix'].value:.4f} and {references[name, SHARED_ALONE].value:.4f} references"
        findings.claims.append(Claim("§6.1", text, hits.above(0), detail, rests_on(CORE, workload.name)))
    title = "saved of what perfect MMU caches save of walk cycles, by six threads"
    findings.series.append(Series.within("§6.1", title, "share", shares))
    title = "references of a walk, by six threads"
    findings.series.append(Series.within("§6.1", title, "references", references))
