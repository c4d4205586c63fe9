"""On which NUMA nodes the pages of mappings are, and how far these are from the CPUs.

Source: /proc/PID/numa_maps (Documentation/filesystems/proc.rst of Linux) and /sys/devices/system/node.
Deviations: numa_maps is read where there are several nodes only; with one node, all pages are there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.processes import PROC

_NODES = Path("/sys/devices/system/node")
_COUNT = re.compile(r"N(\d+)=(\d+)")
_PAGE = re.compile(r"kernelpagesize_kB=(\d+)")


@dataclass(frozen=True)
class Topology:
    """The nodes of a machine."""

    cpus: Mapping[int, tuple[int, ...]]
    """The CPUs of each node"""
    distances: Mapping[int, tuple[int, ...]]
    """From each node to all, 10 for its own memory, as the firmware says"""

    @property
    def several(self) -> bool:
        return len(self.cpus) > 1

    def node_of(self, cpu: int) -> int | None:
        return next((node for node, cpus in self.cpus.items() if cpu in cpus), None)

    def slowdown(self, node: int, other: int) -> float:
        """How much longer an access takes to the memory of another node, by the firmware's distances."""
        order = sorted(self.distances)
        row = self.distances[node]
        return row[order.index(other)] / row[order.index(node)]


def topology(folder: Path = _NODES) -> Topology:
    """The nodes of this machine; one without a number for its CPUs if the kernel shows none."""
    cpus: dict[int, tuple[int, ...]] = {}
    distances: dict[int, tuple[int, ...]] = {}
    for path in sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        node = int(path.name[4:])
        cpus[node] = tuple(_numbers((path / "cpulist").read_text(encoding="ascii")))
        distances[node] = tuple(map(int, (path / "distance").read_text(encoding="ascii").split()))
    return Topology(cpus, distances)


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def nodes_of_mappings(pid: int) -> dict[int, dict[int, int]]:
    """Bytes on each node, by the begin of the mapping; nothing where the kernel has no numa_maps.

    Raises:
        ProcessEndedError: the process has ended.
    """
    try:
        text = (PROC / str(pid) / "numa_maps").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        raise ProcessEndedError(f"process {pid} has ended") from None
    except OSError:
        return {}
    return {int(line.split(maxsplit=1)[0], 16): _bytes(line) for line in text.splitlines() if line}


def _bytes(line: str) -> dict[int, int]:
    # A name could look like a count: it is before the counts, without spaces.
    fields = [field for field in line.split()[2:] if not field.startswith("file=")]
    page = next((int(match[1]) for field in fields if (match := _PAGE.fullmatch(field))), 4)
    counts = (match for field in fields if (match := _COUNT.fullmatch(field)))
    return {int(match[1]): int(match[2]) * page * 1024 for match in counts}
