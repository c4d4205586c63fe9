"""Why a figure differs from the paper's in size: experiments on file that change one thing, and what that moves.

An experiment changes something that the paper does not print. It explains a difference if it closes at least half of
it, or if the paper's figure lies between ours and the one with the change. If the paper prints a range, its nearest end
counts, and any figure in it is the paper's. Whatever no experiment explains is unexplained, however plausible a reason
may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pagelab_studies import hardware_demand_paging_refills as refills
from pagelab_studies import mfoe_averages, mfoe_changes, mfoe_programs, shipped, verdicts
from pagelab_studies import mfoe_programs_window as programs_window
from pagelab_studies.hardware_demand_paging_runs import SHORT
from pagelab_studies.study import Comparison

CLOSED = 0.5
"""The part of a difference that an experiment must close to explain it."""
OPEN, EXPLAINED, UNEXPLAINED = KINDS = ("open", "explained", "unexplained")
"""What there is to say of a figure that differs in size: our range reaches the paper's, an experiment on file explains
it, or none does."""
Documents = Mapping[str, shipped.Document]


@dataclass(frozen=True)
class Cell:
    """A cell of a table on file. In its names, `{item}` and `{quantity}` stand for those of the figure."""

    study: str
    title: str
    group: str
    member: str

    def value(self, row: Comparison, documents: Documents) -> float | None:
        """None if the table or the cell is not on file."""
        names = tuple(
            text.format(item=row.item, quantity=row.quantity) for text in (self.title, self.group, self.member)
        )
        for one in documents.get(self.study, {"series": []})["series"]:
            for group, member, value, _ in one["values"]:
                if (one["title"], group, member) == names:
                    return float(value)
        return None


@dataclass(frozen=True)
class Experiment:
    """One change, and the figure with it."""

    study: str
    quantity: str
    """How the quantities begin that it is about."""
    change: str
    after: Cell
    before: Cell | None = None
    """The figure without the change, if it is of a similar workload; ours is then moved by the difference."""
    items: tuple[str, ...] = ()
    """All items if empty."""

    def is_about(self, study: str, row: Comparison) -> bool:
        """Whether it is about a figure."""
        return (
            self.study == study
            and row.quantity.startswith(self.quantity)
            and (not self.items or row.item in self.items)
        )

    def figure(self, row: Comparison, documents: Documents) -> float | None:
        """The figure with the change; none if it is not on file."""
        after = self.after.value(row, documents)
        if self.before is None or after is None:
            return after
        before = self.before.value(row, documents)
        return None if before is None else row.ours + after - before


_STC = "software-translation-cache"
_PRODUCT = "walk time saved, matmul, faults of the product"

REPLAYED = (
    ("speed-up, replay", tuple(mfoe_programs.RECORDINGS)),
    ("speed-up, replay, engine", (mfoe_averages.MEAN,)),
)
"""Speed-ups of replays with the engine: of each program, and their mean."""

EXPERIMENTS = (
    *(
        Experiment(
            "mfoe-programs",
            quantity,
            f"faults on {cores} instead of all cores",
            Cell("mfoe-programs", mfoe_programs.ON_CORES, f"{{item}}, {cores}", "{quantity}"),
            Cell("mfoe-programs", mfoe_programs.ON_CORES, f"{{item}}, {mfoe_programs.ALL_CORES}", "{quantity}"),
        )
        for quantity in mfoe_programs.OF_PROCESSES
        for cores in ("1 core", "2 cores")
    ),
    *(
        Experiment(
            "mfoe",
            "",
            change,
            Cell("mfoe-changes", mfoe_changes.TITLE, change, "{item}, {quantity}"),
            Cell("mfoe-changes", mfoe_changes.TITLE, mfoe_changes.PRESET, "{item}, {quantity}"),
        )
        for change in mfoe_changes.CHANGES
        if change != mfoe_changes.PRESET
    ),
    *(
        Experiment(
            "mfoe-programs",
            quantity,
            mfoe_programs.WITHOUT_WAITS,
            Cell("mfoe-programs", mfoe_programs.BY_MODEL, "{item}", "speed-up"),
            items=items,
        )
        for quantity, items in REPLAYED
    ),
    *(
        Experiment(
            "mfoe-programs",
            quantity,
            "a core with a window",
            Cell(programs_window.REPRODUCTION.name, programs_window.SPEED_UPS, "{item}", programs_window.WINDOW),
            Cell(programs_window.REPRODUCTION.name, programs_window.SPEED_UPS, "{item}", programs_window.IN_ORDER),
            items,
        )
        for quantity, items in REPLAYED
    ),
    *(
        Experiment(
            "hardware-demand-paging",
            "synchronous refills",
            change,
            Cell("hardware-demand-paging", refills.BY_CHANGE, change, refills.FEWER),
            items=("YCSB-C",),
        )
        for change in refills.CHANGES
    ),
    Experiment(
        "hardware-demand-paging",
        "synchronous refills",
        SHORT,
        Cell("hardware-demand-paging", refills.BY_MIX, "{item}", SHORT),
        items=tuple(f"YCSB-{mix}" for mix in "ABDE"),
    ),
    *(
        Experiment(
            _STC,
            "walk time saved",
            f"pages of 2 MiB in the host{by}",
            Cell(_STC, _PRODUCT, "1000 host 2 MiB", "as published"),
            Cell(_STC, _PRODUCT, "1000", "as published"),
            (f"matmul 1000², {faults}",),
        )
        for faults, by in (("product", ""), ("all faults", ", by the points that they add for the product's faults"))
    ),
)


@dataclass(frozen=True)
class Effect:
    """What an experiment does to a figure."""

    experiment: Experiment
    figure: float
    closed: float
    """The part of the difference that it closes; below 0 if it makes it larger."""
    passes: bool
    """Whether the paper's figure lies between ours and this one."""
    within: bool = False
    """Whether this one is in the range that the paper prints."""

    @property
    def explains(self) -> bool:
        """Whether it explains the difference."""
        return self.passes or self.within or self.closed >= CLOSED


def effects(study: str, row: Comparison, documents: Documents) -> list[Effect]:
    """What the experiments on file do to a figure, the most telling one first."""
    moved = []
    for experiment in EXPERIMENTS:
        after = experiment.figure(row, documents) if experiment.is_about(study, row) else None
        if after is None or row.paper is None:
            continue
        low, high = row.printed or (row.paper, row.paper)
        nearest = min(max(row.ours, low), high)
        closed = 1 - abs(after - nearest) / abs(row.ours - nearest)
        passes = min(row.ours, after) <= nearest <= max(row.ours, after)
        moved.append(Effect(experiment, after, closed, passes, row.printed is not None and low <= after <= high))
    return sorted(moved, key=lambda one: (one.explains, one.closed), reverse=True)


def kind(study: str, row: Comparison, documents: Documents) -> str:
    """One of `KINDS`, for a figure that differs in size."""
    if any(one.explains for one in effects(study, row, documents)):
        return EXPLAINED
    allowed = verdicts.limits(row)
    reaches = allowed is not None and verdicts.ours(row).within(*allowed) is None
    return OPEN if reaches else UNEXPLAINED


def why(study: str, row: Comparison, documents: Documents) -> str:
    """Why a size differs, in words; empty if it does not."""
    if not verdicts.differs(row):
        return ""
    what, known = kind(study, row, documents), effects(study, row, documents)
    rest = f"{OPEN}: our range reaches the limits" if what == OPEN else what
    if not known:
        return rest
    best = known[0]
    text = f"{best.experiment.change}: {best.figure:.3g} {row.unit}".rstrip()
    if best.within:
        text += ", within the paper's range"
    else:
        text += ", past the paper's" if best.passes else f", {_moved(best.closed)}"
    return text if what == EXPLAINED else f"{rest} ({text})"


def _moved(closed: float) -> str:
    part = f"{100 * abs(closed):.0f} % of the difference"
    if part.startswith("0 "):
        return "which changes nothing"
    return f"which closes {part}" if closed > 0 else f"which adds {part}"
