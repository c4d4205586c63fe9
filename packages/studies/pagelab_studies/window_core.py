"""The runs of a study on a core with a window, beside those on its in-order core."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pagelab_studies.study import Cost, Run

CORES = {
    "hash-dont-cache": "sandy-bridge",
    "hardware-demand-paging": "haswell",
    "ptemagnet": "skylake",
    "mfoe": "skylake",
}
"""The core preset of each study: that of its processor, or of the generation nearest to it. The simulated machine of
the paper on the minor-fault offload engine has an in-order core; there this is the core of its real machine."""
SUFFIX = "-window"
"""Ends the name of a study on a core with a window."""
FACTOR = 1.6
"""How many times as long an access of GUPS takes to simulate on such a core, measured as `study.Cost` says."""


def on_window_core(study: str, runs: Iterable[Run]) -> list[Run]:
    """The same runs of a study on its core with a window, where accesses of the kernel overlap as the program's do."""
    window = (f"machine.core={CORES[study]}", "machine.core.kernel_overlap=on")
    return [replace(run, settings=(*run.settings, *window)) for run in runs]


def cost(of_run: Callable[[Run], Cost]) -> Callable[[Run], Cost]:
    """What runs take that are as those of another study."""

    def dearer(run: Run) -> Cost:
        usual = of_run(run)
        return Cost(FACTOR * usual.window, usual.warm_up, usual.once)

    return dearer
