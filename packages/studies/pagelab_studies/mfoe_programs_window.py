"""Replays of the same paper's programs on a core that overlaps accesses, beside those on one that waits for each.

The engine leaves the waits for a page's lines to the program, and the paper's model has no such waits. So what the core
hides of them decides how much of the engine's gain is left. Both cores replay the same recordings, which are others
than those of `mfoe_programs`, of the same programs and sizes.
"""

from dataclasses import replace
from functools import partial
from statistics import geometric_mean

from pagelab_studies import mfoe_averages, mfoe_programs
from pagelab_studies.mfoe import PROGRAMS
from pagelab_studies.mfoe_programs import REPLAYS
from pagelab_studies.study import Cost, Findings, Measurements, Reproduction, Run, Series, by_sections
from pagelab_studies.window_core import cost as of_window_core
from pagelab_studies.window_core import on_window_core

IN_ORDER, WINDOW = "core that waits", "core with a window"
"""The replays on the usual core have a label; those on the other one have the names of `mfoe_programs`."""
CORE = "a core with a window, on which accesses of the program and of the kernel overlap, but not the kernel's zeroing"
SPEED_UPS = "Speed-up of replays of the same recordings, by core"
WAITS = "Cycles that the program waits more for data with the engine, per page that hits, by core"


def window_runs() -> list[Run]:
    """Each replay on both cores."""
    replays = list(mfoe_programs.replays())
    return [*on_window_core("mfoe", replays), *(replace(run, label=IN_ORDER) for run in replays)]


def cost(run: Run) -> Cost:
    """What an access takes."""
    return mfoe_programs.cost(run) if run.label else of_window_core(mfoe_programs.cost)(run)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_means, *(partial(_program, row) for row in PROGRAMS), _by_core))


def _means(measured: Measurements, findings: Findings) -> None:
    mfoe_programs.add_replays_mean(findings, mfoe_programs.pairs(measured), CORE)


def _program(row: str, measured: Measurements, findings: Findings) -> None:
    mfoe_programs.add_replay(findings, row, measured, CORE)


def _by_core(measured: Measurements, findings: Findings) -> None:
    speed_ups: dict[tuple[str, str], float] = {}
    waits: dict[tuple[str, str], float] = {}
    for row in PROGRAMS:
        for core, label in ((IN_ORDER, IN_ORDER), (WINDOW, "")):
            kernel, engine = (measured[row, REPLAYS[system], label] for system in ("kernel", "engine"))
            speed_ups[row, core] = mfoe_averages.elapsed_speed_up(kernel, engine)
            waits[row, core] = mfoe_programs.waits_per_hit(kernel, engine)
    for core in (IN_ORDER, WINDOW):
        speed_ups[mfoe_averages.MEAN, core] = geometric_mean(speed_ups[row, core] for row in PROGRAMS)
    findings.series.append(Series.from_values("Table 5", SPEED_UPS, "times", speed_ups))
    findings.series.append(Series.from_values("Table 5", WAITS, "cycles", waits))


REPRODUCTION = Reproduction(
    name="mfoe-programs-window",
    title="The minor-fault offload engine: programs on a core with a window",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="xeon-e-2136",
    runs=window_runs,
    evaluate=evaluate,
    cost=cost,
)
