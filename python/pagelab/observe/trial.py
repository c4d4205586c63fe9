"""A trial of huge pages on a running process: observed, changed, and observed again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pagelab.observe import difference
from pagelab.observe.collapse import Collapse, chosen, collapse
from pagelab.observe.conclusions import Conclusions
from pagelab.observe.difference import Difference
from pagelab.observe.document import document
from pagelab.observe.page import drawn, wrapped
from pagelab.quantities import size_text


@dataclass(frozen=True)
class Trial:
    """Both observations, and what was done between them."""

    before: Conclusions
    after: Conclusions
    collapses: Sequence[Collapse]

    @classmethod
    def make(cls, before: Conclusions, wanted: Sequence[str], again: Callable[[], Conclusions]) -> "Trial":
        """Makes huge pages of what is wanted, and observes again.

        Raises:
            UsageError: nothing of that kind is there, or this user may not.
        """
        collapses = [collapse(region) for region in chosen(wanted, before.judgements)]
        return cls(before, again(), collapses)

    @property
    def differences(self) -> list[Difference]:
        return difference.differences(document(self.before), document(self.after))

    def document(self) -> dict[str, Any]:
        """All figures of the trial but those of the second observation."""
        compared = difference.document(self.differences, [])
        collapses = [asdict(one) for one in self.collapses]
        return {"before": document(self.before), "collapses": collapses, "differences": compared["differences"]}


def lines(trial: Trial) -> Iterator[str]:
    """The part of the terminal's page about the trial."""
    yield "The trial: what huge pages took, and what they brought\n"
    for one in trial.collapses:
        yield wrapped([_sentence(one)], bullet="* ")
    rows = difference.rows(trial.differences)
    yield f"\n{drawn(difference.HEADINGS, rows)}"
    yield wrapped(
        [
            "* changed: the interval has no 0 in it. How fast the program does its work is not seen from outside: "
            "compare its own throughput, too. The huge pages stay."
        ]
    )


def _sentence(one: Collapse) -> str:
    text = (
        f"0x{one.begin:x}: {size_text(one.huge_before)} in huge pages before, {size_text(one.huge_after)} after; "
        f"{one.seconds:.3f} s, of them {one.cpu_seconds:.3f} s of CPU time; "
        f"memory {size_text(one.resident_before)} before, {size_text(one.resident_after)} after"
    )
    refused = "; ".join(f"{count} calls refused: {reason}" for reason, count in one.refusals.items())
    return f"{text}; {refused}" if refused else text
