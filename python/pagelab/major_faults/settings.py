"""Settings of a kernel's block I/O from measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagelab import _engine
from pagelab.major_faults.footprint import Footprint, Loss
from pagelab.major_faults.measurement import Device, Measured
from pagelab.major_faults.stages import Spread

ESTIMATED_IPC = 0.7
"""Instructions per cycle if the processor does not count them: about those of fault stages in kernel presets"""


@dataclass(frozen=True)
class Setting:
    """The value of a key of `kernel.block_io`."""

    key: str
    ns: float
    band_ns: tuple[float, float] | None
    """Sums of its stages' quartiles; none for estimates"""
    origin: str


@dataclass(frozen=True)
class _Key:
    """A key, the stages that it sums, and their description."""

    name: str
    stages: tuple[str, ...]
    what: str
    is_measurable: Callable[[Device], bool] = lambda _: True
    """Whether the device allows it to be measured"""


_KEYS = (
    _Key("submit", ("bio", "block layer"), "from the frame in the page cache to block_rq_issue"),
    _Key(
        "switch",
        ("switch",),
        "from block_rq_issue to sched_switch, the driver's last part included",
        lambda device: device.always_sleeps,
    ),
    _Key("interrupt", ("interrupt",), "from irq_handler_entry to block_rq_complete"),
    _Key("completion", ("completion",), "from block_rq_complete to sched_waking"),
    _Key("wakeup", ("wakeup",), "from sched_waking to sched_switch back", lambda device: device.sleeps),
)


def settings(measured: Measured, switch_ns: float | None = None) -> list[Setting]:
    """The value of each key.

    Args:
        switch_ns: A switch to another process, waking it up included, where no fault slept.
    """
    drive = measured.drive
    listed = []
    for key in _KEYS:
        stages = [name for name in key.stages if name in drive.stages]
        if not key.is_measurable(drive):
            why = (
                f"estimate: half of `pagelab calibrate`'s context-switch, since {drive.slept:,} of {drive.faults:,} "
                "faults slept before the device answered, and the driver waits for it"
            )
            listed.append(Setting(key.name, (switch_ns or 0.0) / 2, None, why))
        elif not stages:
            listed.append(Setting(key.name, 0.0, None, f"none: no fault had the stage ({key.what}) on this device"))
        else:
            net = [measured.net(name) for name in stages]
            spreads = "; ".join(f"{name} {describe(spread)}" for name, spread in zip(stages, net, strict=True))
            band = (sum(spread.lower for spread in net), sum(spread.upper for spread in net))
            listed.append(
                Setting(key.name, sum(spread.median for spread in net), band, f"measured: {key.what}: {spreads}")
            )
    return listed


def describe(spread: Spread, unit: str = "ns") -> str:
    """A spread in words."""
    runs = sorted(spread.runs)
    return (
        f"{spread.median:,.0f} {unit} (quartiles {spread.lower:,.0f} to {spread.upper:,.0f} of {spread.count:,}; "
        f"medians of runs {runs[0]:,.0f} to {runs[-1]:,.0f})"
    )


def kibibytes(loss: Loss) -> str:
    """How large a working set is."""
    return f"{loss.bytes >> 10:,} KiB"


def lost(loss: Loss) -> str:
    """How many of its lines a working set loses."""
    spread = loss.lost
    least = "" if loss.least is None else f"; {loss.least:,.0f} if all came from L3"
    return f"{spread.median:,.0f} of {loss.lines:,} lines lost ({spread.lower:,.0f} – {spread.upper:,.0f}){least}"


def _reloading(loss: Loss) -> str:
    size = f"{kibibytes(loss)} ({loss.name})"
    return f"reading {size} again after a fault: {describe(loss.cycles, 'cycles')} more; {lost(loss)}"


def _lines(footprint: Footprint, memory: Device | None) -> list[str]:
    """The lines that a request evicts from the caches, with the origin of the figure."""
    l1d, l2, l3 = footprint.latencies
    filler = "a loop of a few instructions" if footprint.filled else "whatever else there was to run"
    half_l2 = footprint.half_l2
    lines = [
        "",
        "# cache lines of its own that the kernel touches per request",
        f"# lines: measured: what a fault pushes out of L2, of a working set of half its size, {kibibytes(half_l2)}: "
        f"{describe(half_l2.lost, f'of {half_l2.lines:,}')}",
        f"# What the host did at exits is included, and so is what had the CPU while faults slept: {filler}.",
        *(f"# {_reloading(loss)}" for loss in footprint.losses),
        f"# cycles per line: {l1d:.1f} from L1D, {l2:.1f} from L2, {l3:.1f} from L3",
    ]
    if memory and memory.footprint:
        lines += [f"# {memory.name}, in memory: {_reloading(loss)}" for loss in memory.footprint.losses]
    return [*lines, "[kernel.block_io]", f"lines = {round(half_l2.lost.median)}"]


def instructions_per_cycle(measured: Measured) -> tuple[float, str]:
    """Instructions of the kernel's part of a fault, with the origin of the figure."""
    drive = measured.drive
    if drive.instructions is None or "kernel" not in drive.stages:
        return ESTIMATED_IPC, (
            f"estimates: {ESTIMATED_IPC} per cycle, since this processor's counters cannot be read (perf stat -e "
            "instructions:k)"
        )
    cycles = drive.stages["kernel"].median * measured.cycles_per_nanosecond
    return drive.instructions / cycles, (
        f"measured: {drive.instructions:,.0f} of the kernel per fault (perf stat -e instructions:k), in proportion to "
        "the cycles of a fault's stages"
    )


def to_toml(measured: Measured, settings: Sequence[Setting], first_line: str) -> str:
    """The settings as a file; comments say where each comes from."""
    drive, rate = measured.drive, measured.cycles_per_nanosecond
    ratio, how = instructions_per_cycle(measured)
    lines = [
        f"{first_line} --major-faults, version {_engine.__version__}: {measured}.",
        f"# {drive.name} ({drive.file_system}): {measured.runs} runs, {drive.faults:,} faults followed on CPU "
        f"{drive.cpu}, {'with' if drive.real_time else 'without'} real-time priority; {drive.slept:,} slept, "
        f"{drive.awake:,} found the answer there, {drive.incomplete:,} left out.",
        "# All CPUs were kept busy by a program that gives way, so that none had to leave its idle state.",
        f"# touches without recording: {describe(drive.plain)}",
        f"# recording an event costs {measured.event_ns:,.0f} ns. It is taken off the settings, not the stages here.",
        *(f"# {name}: {describe(spread)}" for name, spread in drive.stages.items()),
    ]
    if measured.memory:
        memory = measured.memory
        lines.append(f"# {memory.name} ({memory.file_system}), in memory: touches {describe(memory.plain)}")
        lines += [f"# {memory.name}, {name}: {describe(spread)}" for name, spread in memory.stages.items()]
        lines.append(f"# {memory.name}, {measured.without_sleep}")
    lines += [f"# instructions: {how}"]
    # Before the tables inside it.
    if drive.footprint:
        lines += _lines(drive.footprint, measured.memory)
    elif drive.no_footprint:
        lines.append(f"# lines: none: {drive.no_footprint}")
    for setting in settings:
        cycles = round(setting.ns * rate)
        lines += ["", f"# {setting.origin}"]
        if setting.band_ns:
            lines += [f"# quartiles: {setting.band_ns[0] * rate:,.0f} to {setting.band_ns[1] * rate:,.0f} cycles"]
        lines += [
            f"[kernel.block_io.{setting.key}]",
            f"instructions = {round(cycles * ratio)}",
            f"cycles = {cycles}",
        ]
    return "\n".join([*lines, ""])
