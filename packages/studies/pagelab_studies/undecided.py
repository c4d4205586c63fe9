"""Why a verdict is open: what makes the interval of a figure wider than the distance to a limit.

Every verdict on file that is open has such a cause (`tests/python/test_reproductions.py`). A cause says what varies. It
follows from how the study makes its intervals. Where only some runs are missing, the study should make them instead.
"""

from dataclasses import dataclass

from pagelab_studies.study import Claim, Comparison
from pagelab_studies.verdicts import Verdicts


@dataclass(frozen=True)
class Cause:
    """What leaves verdicts of a study open."""

    study: str
    """How the names of the studies begin."""
    about: str
    """What stands in the figure's or statement's words; empty for all that no cause above is about."""
    why: str

    def is_of(self, study: str, words: str) -> bool:
        """Whether it is the cause of an open verdict."""
        return study.startswith(self.study) and self.about in words


_SEEDS = "some of the five seeds are on each side of the limit: the range is from the lowest to the highest"
_BURSTS = "when faults come is not printed: the value is for chance, the range reaches to bursts of 1,000"
_PROCESS = f"{_BURSTS}, and, as the number of cores that fault is not printed either, to one core"
_BETWEEN = "how much other data the program touches between faults is not printed: 0 to 256 KiB here"
_KERNELS_COST = "the kernel's cost of a request is taken as measured, on another kernel, and down to a quarter"
_FUNCTIONS = "hash functions differ in how many of the guest's clusters collide"
_COSTS = "the measured costs of a walk's parts differ between processors and ways of zeroing"
CAUSES = (
    Cause("hash-dont-cache-variants", "linear model", "one program is within the bound, the other is not"),
    Cause("hash-dont-cache-open", "deleted slots", "the three hash functions differ in the sign"),
    Cause(
        "hash-dont-cache-variants",
        "a shared cache together",
        "what the look-up of a shared cache costs is not printed: 0 to 8 cycles more here",
    ),
    Cause("hash-dont-cache-variants", "references to the host's table", "hash functions differ by more than the step"),
    Cause("hash-dont-cache-changes", "independent ones", "pairs of hash functions differ by as much as the bound"),
    Cause("hash-dont-cache", "in slots", "open and clustered tables differ by less than their hash functions do"),
    Cause("hash-dont-cache", "without cactusADM*", _FUNCTIONS),
    Cause("hash-dont-cache", "more in a virtual machine", "placements of cactusADM*'s frames differ by more than that"),
    Cause("hash-dont-cache", "virtual", _FUNCTIONS),
    Cause("hash-dont-cache", "", "the parts of a search's window differ: its walks become more frequent"),
    Cause("mfoe-programs", "fault process", _PROCESS),
    Cause("mfoe-programs", "", "the nine programs differ: the range is the 95 % interval of their mean"),
    Cause("mfoe-variants", "FaaS gains more", "all faults of the functions here hit with 512 frames already"),
    Cause("mfoe", "fault processes", _BURSTS),
    Cause("mfoe", "", _BETWEEN),
    *(
        Cause("ptemagnet", about, "what a reserved page costs is not printed: a look-up of 20 to 368 cycles")
        for about in ("first touches included", "each page of 256 MiB once")
    ),
    Cause("ptemagnet", "", _SEEDS),
    *(
        Cause(
            "software-translation-cache", about, "the paper's kernel goes on from wrong entries, the simulator does not"
        )
        for about in ("one mapping (as published)", "than in 1 GiB (as published")
    ),
    Cause(
        "software-translation-cache",
        "share of the time of faults",
        "whether the paper counts its timers and the faults of the initialisation is not said, and costs differ",
    ),
    Cause("software-translation-cache", "", _COSTS),
    Cause(
        "hardware-demand-paging",
        "synchronous refills",
        "refills are few, a hundred to a thousand: the interval is that of their counts",
    ),
    Cause("hardware-demand-paging", "L3 misses", "the parts of the window differ by more than the effect"),
    Cause("hardware-demand-paging", "", _KERNELS_COST),
)


def of_claim(study: str, claim: Claim) -> str:
    """Why a statement is not decided; empty if it is, or if no cause is known."""
    return _cause(study, f"{claim.figure} {claim.text}") if claim.holds is None else ""


def of_figure(study: str, row: Comparison, judged: Verdicts) -> str:
    """Why a verdict on a figure is open; empty if none is, or if no cause is known."""
    if None not in judged.values():
        return ""
    why = _cause(study, f"{row.figure} {row.item} {row.quantity}")
    # What the study itself says of where the sign is decided.
    _, is_split, where = row.reason.partition("a gain: ")
    return f"{why} ({where})" if is_split else why


def _cause(study: str, words: str) -> str:
    return next((cause.why for cause in CAUSES if cause.is_of(study, words)), "")
