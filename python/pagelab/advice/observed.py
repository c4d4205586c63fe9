"""What `pagelab observe --json` says of the machine that a program runs on, as settings of replays.

Models: the program's kernel layer has the huge pages of the observed kernel, and free memory in pieces as there. All of
    what the observed kernel could make available is free: reclaim would free it in pieces like those that are free.
Deviations: the amount of memory is that of the simulated machine. Blocks that cannot be moved are as many as the
    kernel's own memory is of what is in use: an estimate.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.observe.difference import FORMAT
from pagelab.observe.machine_state import MachineState
from pagelab.quantities import size_text

_SEED = 1
_LAYER = "system.layers.0"
_HUGE_PAGES = ("always", "madvise", "never")


@dataclass(frozen=True)
class Observed:
    """An observation, as far as replays take it."""

    file: str
    machine: MachineState
    pte_lines: float | None
    """Cache lines of a host's PTEs per group of eight pages of the program, if frames were visible"""

    @classmethod
    def read(cls, file: Path) -> "Observed":
        """From the JSON of an observation.

        Raises:
            UsageError: it is not one, or says nothing of the machine.
        """
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from None
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UsageError(f"{file} is not an observation: write one with pagelab observe --json {file}")
        machine = document.get("machine")
        if machine is None:
            raise UsageError(
                f"{file} says nothing of the machine: the kernel hid how its free memory lies, or an earlier version "
                "of pagelab wrote it"
            )
        try:
            return cls(str(file), _machine(machine), _pte_lines(document["memory"]))
        except KeyError as error:
            raise UsageError(f"{file} is damaged, or of another version: it has no {error.args[0]!r}") from None
        except (TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"{file} is damaged, or of another version: {error}") from None

    @property
    def age(self) -> dict[str, float]:
        """The state of the layer's memory (`age` of a layer)."""
        here = self.machine
        used = max(here.memory_bytes - here.available_bytes, 1)
        return {
            "free_fraction": min(here.available_bytes / here.memory_bytes, 1.0),
            "huge_free_fraction": here.huge_free_bytes / here.free_bytes if here.free_bytes else 0.0,
            "unmovable_fraction": min(here.unmovable_bytes / used, 1.0),
            "seed": _SEED,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Of the program's kernel layer, for all systems."""
        return {f"{_LAYER}.age": self.age}

    @property
    def as_it_is(self) -> dict[str, Any]:
        """Of the systems without remedy: which memory gets huge pages."""
        if self.machine.huge_pages == "never":
            # All memory that may have pages of 4 KiB has them.
            return {f"{_LAYER}.page_size": "4K", f"{_LAYER}.large_pages": "always"}
        return {f"{_LAYER}.large_pages": self.machine.huge_pages}

    @property
    def sentence(self) -> str:
        """What replays take from it."""
        age, here = self.age, self.machine
        lines = ""
        if self.pte_lines is not None:
            lines = f" The program's pages had {self.pte_lines:.2f} lines of PTEs per group of eight there."
        return (
            f"Observed ({self.file}): {here.cpu_model}, {size_text(here.memory_bytes)}, transparent huge pages "
            f"{here.huge_pages}. Of its memory {age['free_fraction']:.0%} could be free, and "
            f"{age['huge_free_fraction']:.0%} of the free memory lies in blocks of 2 MiB or more: so it does in the "
            f"replays.{lines}"
        )


def _machine(document: Mapping[str, Any]) -> MachineState:
    """The machine of an observation, with figures that can be.

    Raises:
        KeyError: a figure is missing.
        ValueError: one cannot be.
    """
    known = {field.name: document[field.name] for field in fields(MachineState)}
    for name, value in known.items():
        if name.endswith("_bytes") and (not isinstance(value, int) or value < 0):
            raise ValueError(f"{name} of the machine is {value!r}")
    machine = MachineState(**known)
    if machine.huge_pages not in _HUGE_PAGES:
        raise ValueError(f"huge_pages of the machine is {machine.huge_pages!r}, and not {', '.join(_HUGE_PAGES)}")
    if not max(machine.available_bytes, machine.free_bytes) <= machine.memory_bytes:
        raise ValueError("more of the machine's memory is free than there is")
    if not machine.memory_bytes or machine.huge_free_bytes > machine.free_bytes:
        raise ValueError("the machine has no memory, or more of it free in large blocks than in all")
    return machine


def _pte_lines(memory: list[Mapping[str, Any]]) -> float | None:
    known = [one["layout"]["contiguity"] for one in memory if one["layout"] and one["layout"]["contiguity"]]
    groups = sum(one["groups"] for one in known)
    return sum(one["pte_lines"] for one in known) / groups if groups else None
