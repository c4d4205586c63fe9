"""All sampled faults with their times, compactly: in columns, as an hour has millions."""

import io
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pagelab.observe.code import Frame, Stack
from pagelab.observe.regions import Region
from pagelab.observe.sampling import FaultSample

# It takes longer to import than most of an observation takes.
if TYPE_CHECKING:
    import polars as pl

MOST = 20_000_000
"""Samples that are kept, about 900 MB; later ones count, but have no row"""


class FaultLog:
    """The samples in the order in which they were read."""

    def __init__(self) -> None:
        self.seconds = array("d")
        """Since the observation began"""
        self.pids = array("i")
        self.addresses = array("Q")
        self.weights = array("d")
        """Faults that each stands for, before scaling"""
        self.regions: list[Region] = []
        self.region_numbers = array("i")
        """Where in `regions` the memory of each is; -1 for memory that no look has shown"""
        self.stacks: dict[Stack, int] = {}
        self.stack_numbers = array("i")
        self.scale = 1.0
        """What makes the weights add up to all faults"""
        self._known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.seconds)

    def add(self, fault: FaultSample, seconds: float, region: Region | None) -> None:
        if len(self.seconds) >= MOST:
            return
        self.seconds.append(max(seconds, 0.0))
        self.pids.append(fault.pid)
        self.addresses.append(fault.address)
        self.weights.append(fault.weight)
        self.region_numbers.append(-1 if region is None else self._number(region))
        self.stack_numbers.append(self.stacks.setdefault((fault.pid, fault.user), len(self.stacks)))

    def _number(self, region: Region) -> int:
        number = self._known.get(id(region))
        if number is None:
            number = self._known[id(region)] = len(self.regions)
            self.regions.append(region)
        return number

    def frame(self, names: Mapping[Stack, tuple[Frame, ...]]) -> "pl.DataFrame":
        """A row per sample, with the memory and the function of the access."""
        import polars as pl

        functions = [names.get(stack, (Frame("", "", ""),))[0] for stack in self.stacks]
        chains = [";".join(frame.text for frame in reversed(names.get(stack, ()))) for stack in self.stacks]
        regions = pl.Series([*self.region_numbers], dtype=pl.Int32)
        stacks = pl.Series([*self.stack_numbers], dtype=pl.Int32)
        of_region = pl.DataFrame(
            {
                "region": pl.Series(range(len(self.regions)), dtype=pl.Int32),
                "memory": pl.Series([region.label for region in self.regions], dtype=pl.String),
                "mapping": pl.Series([region.begin for region in self.regions], dtype=pl.UInt64),
            }
        )
        of_stack = pl.DataFrame(
            {
                "number": pl.Series(range(len(self.stacks)), dtype=pl.Int32),
                "function": pl.Series([frame.function for frame in functions], dtype=pl.String),
                "object": pl.Series([frame.object for frame in functions], dtype=pl.String),
                "line": pl.Series([frame.line for frame in functions], dtype=pl.String),
                "stack": pl.Series(chains, dtype=pl.String),
            }
        )
        rows = pl.DataFrame(
            {
                "second": pl.Series([*self.seconds], dtype=pl.Float64),
                "pid": pl.Series([*self.pids], dtype=pl.Int32),
                "address": pl.Series([*self.addresses], dtype=pl.UInt64),
                "faults": pl.Series([weight * self.scale for weight in self.weights], dtype=pl.Float64),
                "region": regions,
                "number": stacks,
            }
        )
        joined = rows.join(of_region, on="region", how="left", maintain_order="left")
        joined = joined.join(of_stack, on="number", how="left", maintain_order="left")
        return joined.drop("region", "number").sort("second", maintain_order=True)

    def parquet(self, names: Mapping[Stack, tuple[Frame, ...]]) -> bytes:
        file = io.BytesIO()
        self.frame(names).write_parquet(file)
        return file.getvalue()
