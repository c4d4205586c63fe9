"""`pagelab.compare`."""

from collections.abc import Sequence

from pagelab.comparison.compared import Comparison, compare_sides
from pagelab.comparison.limits import Limit
from pagelab.comparison.sides import ReplayOptions, Subject, make, plan
from pagelab.quantities import Count, count
from pagelab.replay.simulation import Overrides, Progress, overrides


def compare(
    a: Subject,
    b: Subject,
    *,
    systems: str | Sequence[str] = (),
    machine: str | None = None,
    kernel: str | None = None,
    set: Overrides = (),
    seed: Count | None = None,
    seeds: int = 1,
    repeat: int = 1,
    max_accesses: Count | None = None,
    profile: bool = True,
    fail_if: str | Sequence[str] = (),
    even_if_different: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Compares two versions of a program.

    Args:
        a: The old version: results (`Results`, a file of `pagelab run --json`, or a folder of such files), a trace, a
            workload, or a command as a list, which is recorded.
        b: The new version, likewise.
        systems: The systems to replay sources under. Default: those of the other side's results, or else `radix`.
        machine: The same for the machine, and so on.
        kernel: See `pagelab.run`.
        set: See `pagelab.run`.
        seed: See `pagelab.run`.
        seeds: Replay with this many seeds, from 1 on, for intervals over them.
        repeat: Record commands this many times, alternately, for intervals over the recordings.
        max_accesses: Replay at most this many accesses.
        profile: Also compare mappings and functions.
        fail_if: Limits, such as `"walks>+3%"`; `Comparison.status` is 1 if one is exceeded.
        even_if_different: Compare even if more than the program differs.
        progress: See `pagelab.run`.

    Raises:
        NotComparableError: machines, systems, versions or the like differ.
        UsageError: an unknown source, limit or option.
        TraceError: a trace that cannot be read.
    """
    texts = [fail_if] if isinstance(fail_if, str) else fail_if
    limits = [Limit.parse(text) for text in texts]
    for limit in limits:
        limit.ensure_plausible()
    options = ReplayOptions(
        systems=[systems] if isinstance(systems, str) else systems,
        machine=machine,
        kernel=kernel,
        set=overrides(set),
        seed=count("seed", seed),
        seeds=seeds,
        max_accesses=count("max_accesses", max_accesses, least=1),
        profile=profile,
    )
    sides = make((plan(a), plan(b)), options, repeat=repeat, progress=progress)
    return compare_sides(*sides, limits, even_if_different=even_if_different)
