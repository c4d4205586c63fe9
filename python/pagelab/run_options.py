"""The options of a run, declared once.

Requests to the engine, the requests that results keep, commands that make a run again, and the keys of sweeps are made
of this list. A test compares it with what is typed by hand (`tests/python/test_run_options.py`): the engine's `Request`
(`crates/pagelab-engine/src/run/request.rs`), the arguments of `pagelab.run` and `pagelab.run_live`, and the options of
`pagelab run`.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """What an option takes."""

    SOURCES = auto()
    """Sources, one or several."""
    SYSTEMS = auto()
    """Systems, one or several, each perhaps with overrides of its own."""
    PRESET = auto()
    """A preset or a TOML file, or none for the default."""
    OVERRIDES = auto()
    """Overrides of configuration keys."""
    COUNT = auto()
    """A number from 0, or none."""
    POSITIVE = auto()
    """A number from 1, or none."""
    SAMPLE = auto()
    """Which windows are replayed: a text, true for `auto`, or none."""
    SWITCH = auto()
    """On or off."""
    OUTPUT = auto()
    """A file to write, or none."""


class Run(Enum):
    """Which runs have an option."""

    REPLAYS = auto()
    """`pagelab.run` alone."""
    ALL = auto()
    """`pagelab.run_live` as well."""


class Sweep(Enum):
    """What a sweep does with an option."""

    ABSENT = auto()
    """A sweep does not have it."""
    GRID = auto()
    """Its runs differ in it."""
    WHOLE = auto()
    """It holds for all runs."""


@dataclass(frozen=True)
class RunOption:
    """An option of a run."""

    name: str
    """As `pagelab.run` takes it."""
    kind: Kind
    command: str | None
    """The option of `pagelab run`, or an empty text for its arguments; None where the command line has none."""
    runs: Run = Run.ALL
    sweep: Sweep = Sweep.ABSENT
    is_kept: bool = True
    """Whether results keep it among what was asked for: it decides what they hold."""
    engine_name: str | None = None
    """What the engine's request calls it, if that is another name."""

    @property
    def is_asked(self) -> bool:
        """Whether it is asked for in the request itself. Outputs are told to the engine apart."""
        return self.kind is not Kind.OUTPUT

    @property
    def key(self) -> str:
        """What the engine's request calls it."""
        return self.engine_name or self.name


# In the order in which a command names them.
OPTIONS = (
    RunOption("sources", Kind.SOURCES, "", Run.REPLAYS, Sweep.GRID),
    RunOption("systems", Kind.SYSTEMS, "-s", sweep=Sweep.GRID),
    RunOption("with_", Kind.SOURCES, "--with", sweep=Sweep.GRID, engine_name="with"),
    RunOption("arrivals", Kind.SOURCES, "--arrivals", Run.REPLAYS, Sweep.GRID),
    RunOption("set", Kind.OVERRIDES, "--set", sweep=Sweep.WHOLE),
    RunOption("machine", Kind.PRESET, "-m", sweep=Sweep.GRID),
    RunOption("kernel", Kind.PRESET, "-k", sweep=Sweep.GRID),
    RunOption("seed", Kind.COUNT, "--seed", sweep=Sweep.GRID),
    RunOption("max_accesses", Kind.POSITIVE, "--max-accesses", sweep=Sweep.WHOLE),
    RunOption("warm_up", Kind.COUNT, "--warm-up", sweep=Sweep.WHOLE),
    # `--windows` of the command line chooses stretches of a live run.
    RunOption("windows", Kind.COUNT, None),
    RunOption("contiguity_map", Kind.SWITCH, None, Run.REPLAYS),
    RunOption("interleavings", Kind.POSITIVE, "--interleavings", Run.REPLAYS),
    RunOption("sample", Kind.SAMPLE, "--sample", Run.REPLAYS),
    RunOption("profile", Kind.SWITCH, "--profile"),
    RunOption("check", Kind.SWITCH, "--check", sweep=Sweep.WHOLE),
    RunOption("faults", Kind.OUTPUT, "--faults", Run.REPLAYS, is_kept=False, engine_name="page_faults"),
    RunOption("threads", Kind.POSITIVE, "--threads", Run.REPLAYS, is_kept=False),
)
