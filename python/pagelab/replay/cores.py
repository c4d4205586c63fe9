"""The two core models that a program is replayed on to bracket the behaviour of a real core.

Models: an in-order core waits for every access. A core with a window overlaps accesses as far as the program's
    dependencies allow, behind a branch predictor. A real core lies between them for most programs.
Parameters: those of the machine's own core if it has a window. Otherwise four instructions per cycle, the width of the
    presets' cores, with the sizes of Skylake, the defaults of `window`. The predictor is always TAGE, since no machine
    preset names one.
"""

from collections.abc import Mapping
from typing import Any

IN_ORDER: Mapping[str, Any] = {"model": "in-order", "cycles_per_instruction": 0.5, "l1_hit_hidden": True}
_WINDOW: Mapping[str, Any] = {"model": "window", "cycles_per_instruction": 0.25}
_PREDICTOR = "tage"


def in_order(core: Mapping[str, Any]) -> dict[str, Any]:
    """The core that waits for every access, as `machine.core` takes it: the machine's own `core` if it is one."""
    return dict(core if core["model"] == "in-order" else IN_ORDER)


def overlapping(core: Mapping[str, Any]) -> dict[str, Any]:
    """The core that overlaps accesses, as `machine.core` takes it: the machine's own `core` if it does, with TAGE."""
    own = core if core["model"] == "window" else _WINDOW
    return {**own, "branch_predictor": _PREDICTOR}
