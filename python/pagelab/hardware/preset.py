"""A machine preset of this machine: its own description, measurements, and values that stay those of another preset.

Parameters: the base preset. A value that is neither stated nor measured stays that of the base, as an estimate.
Deviations: sizes of MMU caches, replacement policies and latencies between cores are neither stated nor measured.
"""

import copy
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from pagelab import _engine
from pagelab.hardware import bulk, described, distances, names, plausible, repair, walks
from pagelab.hardware.measured import Figure, Processor, near, reach
from pagelab.replay.simulation import run
from pagelab.run_time import host

_LEAST_BEYOND = 4
"""Multiple of the last cache's size from which on loads come from memory"""
_LAST_LEVEL = 3
_LEAST_MISS = 2
"""Shortest load from memory, in hits of the last cache"""
_MOST_CORES, _MOST_THREADS = 64, 8
"""Most cores, and hardware threads of each, in the simulator"""
_WHOLE = 0.75
"""Of a cache: who has more of it has it for itself, as near as a chase tells"""


@dataclass(frozen=True)
class Facts:
    """The description of this machine without measurements."""

    machine: host.Machine
    cores: int
    threads_per_core: int
    memory_bytes: int
    caches: Sequence[described.Cache]
    cpus: Sequence[distances.Cpu] = ()
    """Those between which lines are moved."""


@dataclass(frozen=True)
class Row:
    """A measured figure of the preset, in readable form."""

    what: str
    cycles: Figure
    key: str | None
    """Its key in the preset; none if the preset has no such key."""


@dataclass(frozen=True)
class Hardware:
    """A machine preset, and its inputs."""

    preset: dict[str, Any]
    base: str
    rows: Sequence[Row]
    warnings: Sequence[str]
    comments: Sequence[str]

    def to_toml(self) -> str:
        """The preset as a file; comments have the other measurements."""
        lines = [f"{names.FIRST_LINE} --hardware, version {_engine.__version__}: {self.preset['description']}."]
        lines += [f"# {comment}" for comment in self.comments]
        lines += [f"# {row.what}: {row.cycles} cycles" for row in self.rows]
        return "\n".join([*lines, "", tomli_w.dumps(self.preset)])


def facts() -> Facts:
    """Linux's description."""
    siblings = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    threads = len(_listed(siblings.read_text())) if siblings.exists() else 1
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))
    return Facts(
        machine=host.machine(),
        cores=max((os.cpu_count() or 1) // threads, 1),
        threads_per_core=threads,
        # The kernel's own part is missing from the total: whole GiB.
        memory_bytes=-(-(int(memory[1]) << 10) >> 30) << 30 if memory else 1 << 30,
        caches=described.caches(),
        cpus=distances.cpus(),
    )


def _listed(text: str) -> list[int]:
    """CPUs of a list such as 0-1,4."""
    parts = (part.split("-") for part in text.strip().split(","))
    return [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)]


def ensure_known(base: str) -> None:
    """Fails if there is no such machine, before anything is measured.

    Raises:
        ConfigError: there is none.
    """
    _engine.machine_json(base)


def make(facts: Facts, measured: Processor, base: str | None = None, name: str = names.MACHINE) -> Hardware:
    """The preset of a machine.

    Args:
        base: The machine whose values are used if nothing is known. If none is named, it is the preset with the same
            core; without one, the default machine.

    Raises:
        ConfigError: there is no such machine.
    """
    core = described.core(measured.leaves)
    base = base or (core.preset if core else None)
    config = run("seq:size=4KiB,passes=1", machine=base).systems[0].config["machine"]
    draft = _Draft(facts, measured, _without_nulls(config))
    draft.describe(name)
    draft.set_tlbs()
    draft.set_caches()
    draft.set_core()
    draft.set_bulk()
    draft.set_transfers()
    draft.repair()
    draft.set_walks()
    return draft.finish()


def _without_nulls(value: Any) -> Any:
    """TOML has no null: missing values are omitted."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


class _Draft:
    """A preset in the making."""

    def __init__(self, facts: Facts, measured: Processor, config: dict[str, Any]) -> None:
        self.facts, self.measured, self.base = facts, measured, config["name"]
        self.config = config
        self.preset = copy.deepcopy({key: value for key, value in config.items() if key not in ("origin", "core")})
        kept = f"estimated: as in {self.base}, neither stated nor measured here"
        self.origin: dict[str, str] = dict.fromkeys(("tlb", "mmu_cache", "cache", "bulk"), kept)
        self.rows: list[Row] = []
        self.warnings: list[str] = []
        self.comments = [f"clock: {measured.clock}; {measured.clock.comparison}"]
        self.comments += _reaches(measured, described.tlbs(measured.leaves))
        self.tlbs = described.tlbs(measured.leaves)
        self.core = described.core(measured.leaves)

    def describe(self, name: str) -> None:
        machine = self.facts.machine
        virtual = ", in a virtual machine" if machine.virtualised else ""
        core = self.core.name if self.core else "unknown core"
        mhz = round(1000 / self.measured.clock_ns.value)
        self.preset |= {
            "name": name,
            "description": f"{machine.cpu_model} ({core}){virtual}, {machine.kernel}",
            "cores": min(self.facts.cores, _MOST_CORES),
            "threads_per_core": min(self.facts.threads_per_core, _MOST_THREADS),
            "frequency_mhz": mhz,
            "memory_bytes": f"{self.facts.memory_bytes >> 30}GiB",
        }
        self.origin |= {
            "cores": f"Linux: CPUs by threads per core, {self.facts.cores}; at most {_MOST_CORES} are simulated",
            "threads_per_core": "Linux: /sys/devices/system/cpu",
            "frequency_mhz": f"measured: chains of instructions agree on {self.measured.clock}; a cycle takes "
            f"{self.measured.clock_ns} ns",
            "memory_bytes": "Linux: /proc/meminfo, in whole GiB",
        }
        self.warnings += self.measured.clock.warnings
        if doubt := described.contradiction_in_leaves(self.measured.leaves):
            self.warnings.append(doubt)
        if machine.virtualised:
            self.warnings.append(
                "this is a virtual machine: cpuid may describe another processor, TLB misses walk nested tables, and "
                "others may share the caches"
            )
        if self.measured.huge_share < 1:
            self.warnings.append(
                f"{self.measured.huge_share:.0%} of the memory was in huge pages: latencies include TLB misses"
            )

    def set_tlbs(self) -> None:
        """Geometry as stated; the latency of the second level from loads that only miss the first."""
        table = self.preset["tlb"]
        for key, level, kinds in (
            ("l1d", 1, ("data", "both")),
            ("l1i", 1, ("instruction",)),
            ("l2", 2, ("both", "data")),
        ):
            arrays = [tlb for tlb in self.tlbs if tlb.level == level and tlb.kind in kinds]
            if arrays:
                reported = [{"pages": list(tlb.pages), "entries": tlb.entries, "ways": tlb.ways} for tlb in arrays]
                missing = {page for array in table[key] for page in array["pages"]} - {
                    p for t in arrays for p in t.pages
                }
                # Page sizes without a statement keep the base preset's array.
                kept = [array for array in table[key] if set(array["pages"]) <= missing]
                table[key] = reported + kept
                for number in range(len(reported)):
                    self.origin[f"tlb.{key}.{number}"] = "cpuid of this machine; LRU is an estimate"
        first = next(
            (tlb.entries for tlb in self.tlbs if tlb.level == 1 and tlb.kind != "instruction" and "4K" in tlb.pages),
            None,
        )
        if first is None:
            self.warnings.append(f"cpuid does not describe the TLBs: they are as in {self.base}")
            return
        hits = self.measured.small_page_cycles
        inside, beyond = near(hits, first / 3), near(hits, 2 * first)
        self._latency(
            "tlb.l2_latency_cycles",
            "L2 TLB, beyond an L1 hit",
            _less(beyond, inside.value),
            "loads to twice as many pages as the L1 TLB holds, less those to a third",
        )

    def set_caches(self) -> None:
        """Geometry from Linux; latencies from chases in memory that fits one level and not the one before."""
        caches = {cache.level: cache for cache in self.facts.caches}
        table, chase = self.preset["cache"], self.measured.chase_cycles
        for level, cache in caches.items():
            if level <= _LAST_LEVEL:
                part = table.setdefault(f"l{level}", {})
                part |= {"size_bytes": f"{cache.size_bytes >> 10}KiB", "ways": cache.ways}
                for key in ("size_bytes", "ways"):
                    self.origin[f"cache.l{level}.{key}"] = "Linux: /sys/devices/system/cpu/cpu0/cache"
        inclusive = described.last_level_inclusive(self.measured.leaves)
        if inclusive is not None and _LAST_LEVEL in caches:
            table["l3"]["inclusion"] = "inclusive" if inclusive else "non-inclusive"
        for level in sorted(level for level in caches if level <= _LAST_LEVEL):
            wanted = self._inside(level)
            self._latency(
                f"cache.l{level}.latency_cycles",
                f"L{level} hit",
                near(chase, wanted),
                f"a chase in about {round(wanted) >> 10} KiB",
            )
        self.warnings += repair.estimate_missing(self.preset, self.origin)
        most = max(chase)
        if max(caches, default=0) == _LAST_LEVEL:
            self._tell_share(caches[_LAST_LEVEL])
        walk_costs = self._walks()
        last = caches[max(caches)].size_bytes if caches else 0
        if most < _LEAST_BEYOND * last:
            self.warnings.append(
                f"the last cache has {last >> 20} MiB, and the chase only {most >> 20}: the measured memory latency "
                "includes cache hits"
            )
        memory = chase[most]
        large = next(
            (tlb.entries for tlb in self.tlbs if tlb.level == 1 and "2M" in tlb.pages and tlb.kind != "instruction"), 0
        )
        if most >> 21 > large and large:
            origin = f"a chase in {most >> 20} MiB, less the L2 TLB, since the L1 TLB does not hold its pages"
            extra = self.preset["tlb"]["l2_latency_cycles"]
            if walk_costs and walk_costs.in_pieces:
                # Beyond what the second level holds of the pieces.
                extra = walk_costs.large[max(walk_costs.large)]
                origin += ", and a walk, since the TLBs hold pieces of pages"
            memory = _less(memory, extra)
        else:
            origin = f"a chase in {most >> 20} MiB"
        self._latency("cache.dram_latency_cycles", "memory", memory, origin)
        line_cycles = 64 * self.measured.read_ns_per_byte.value / self.measured.clock_ns.value
        at_once = max(round(memory.value / line_cycles), 1)
        if self._is_plausible("cache.bulk_parallelism", "lines of memory read in order at once", at_once):
            table["bulk_parallelism"] = at_once
            self.origin["cache.bulk_parallelism"] = (
                f"measured: memory that is read in order takes {line_cycles:.1f} cycles per line, prefetchers "
                "included; memory's latency by that"
            )

    def _inside(self, level: int) -> float:
        """Bytes of memory that a level holds, and the level before does not."""
        sizes = {cache.level: cache.size_bytes for cache in self.facts.caches}
        size, smaller = sizes[level], sizes.get(level - 1)
        return size / 4 if smaller is None else min(4 * smaller, (size * smaller) ** 0.5)

    def set_bulk(self) -> None:
        """Rates of zeroing and copying, from pages of memory of several sizes."""
        levels = [cache.level for cache in self.facts.caches if cache.level <= _LAST_LEVEL]
        measured = list(bulk.rates(self.measured, {f"l{level}": self._inside(level) for level in sorted(levels)}))
        if not measured:
            self.warnings.append(f"zeroing and copying of pages could not be measured: they cost as in {self.base}")
            return
        self.rows += [Row(what, figure, None) for what, figure in bulk.per_page(self.measured)]
        table = self.preset.setdefault("bulk", {})
        for part in ("store_bytes_per_cycle", "load_bytes_per_cycle"):
            table.setdefault(part, {})
        past_caches = bulk.past_caches(self.measured)
        if past_caches is None and self.measured.bulk_cycles["zero2M"]:
            # This machine's operations do not go past the caches, whatever the base's do.
            table.pop("non_temporal_bytes", None)
            table["store_bytes_per_cycle"].pop("non_temporal", None)
        accepted = [rate for rate in (*measured, past_caches) if rate and self._put_rate(rate)]
        if past_caches in accepted:
            table["non_temporal_bytes"] = "2MiB"
            self.origin["bulk.non_temporal_bytes"] = (
                "estimated: that operations of this size go past the caches is an inference from their rate"
            )
        if any(rate.key == "bulk.store_bytes_per_cycle.memory" for rate in accepted):
            table["cost"] = "bandwidth"

    def set_transfers(self) -> None:
        """Latencies from core to core, by their distance."""
        made = list(distances.transfers(self.facts.cpus, self.measured.transfer_cycles))
        if not made:
            if list(distances.pairs(self.facts.cpus)):
                self.warnings.append(f"lines between cores could not be measured: they take as in {self.base}")
            return
        self.warnings += [transfer.doubt for transfer in made if transfer.doubt]
        nearest, *others = made
        self._latency("cache.cache_to_cache_latency_cycles", nearest.what, nearest.cycles, nearest.how)
        cache = self.preset["cache"]
        # The distances of the base are those of its own clusters.
        cache.pop("far_cores", None)
        latency, groups = cache["cache_to_cache_latency_cycles"], []
        for other in others:
            cycles = round(other.cycles.value)
            if not self._is_plausible("cache.far_cores", other.what, cycles):
                continue
            if cycles <= latency:
                self.warnings.append(f"{other.what} takes {cycles} cycles, no more than a nearer one: it is left out")
                continue
            latency = cycles
            groups.append({"cores": other.group, "latency_cycles": cycles})
            self.origin[f"cache.far_cores.{len(groups) - 1}"] = f"measured: {other.how}: {other.cycles} cycles"
            self.rows.append(Row(other.what, other.cycles, None))
        if groups:
            cache["far_cores"] = groups

    def _put_rate(self, rate: bulk.Rate) -> bool:
        """Puts a rate into the preset if it is plausible."""
        what = rate.key.removeprefix("bulk.")
        if not self._is_plausible(rate.key, what, rate.bytes_per_cycle):
            return False
        repair.put(self.preset, rate.key, rate.bytes_per_cycle)
        self.origin[rate.key] = f"measured: {rate.how}"
        if rate.noisy:
            self.warnings.append(f"{what}: repetitions spread by more than a quarter; measure again on an idle machine")
        return True

    def _tell_share(self, last: described.Cache) -> None:
        """The part of the last cache that a chase can use: others on the host may use it, or have a reserved part.

        The preset does not contain it: it changes within minutes, and a program with more requests gets more of it.
        """
        share = share_bytes(self.measured.chase_cycles, self.preset["cache"]["l3"]["latency_cycles"])
        if share is None or share >= _WHOLE * last.size_bytes:
            return
        part, whole = f"{share / 2**20:.1f} MiB", f"{last.size_bytes >> 20} MiB"
        self.comments.append(f"of the last cache of {whole}, a chase finds {part}: in so many, half of its loads miss")
        # In whole KiB of each way.
        half = (last.size_bytes >> 11) // last.ways * last.ways
        self.warnings.append(
            f"a chase finds {part} of the last cache of {whole}, which others may use; the preset has all of it, and "
            f"--set machine.cache.l3.size_bytes={half}KiB shows what a smaller one would change"
        )

    def set_core(self) -> None:
        """Parallelism from simultaneous chases; sizes of queues from published figures of the core."""
        parallel = self.measured.parallel_cycles
        best = min(parallel, key=lambda chases: parallel[chases].value)
        wanted = max(round(parallel[1].value / parallel[best].value), 1)
        # N chases have at most N lines under way. The ratio may be larger, as a single chase also waits for other work.
        buffers = min(wanted, best)
        least = "at least: " if best == max(parallel) or wanted > best else ""
        core: dict[str, Any] = {"model": "window", "cycles_per_instruction": 0.5, "fill_buffers": buffers}
        self.origin["core.fill_buffers"] = (
            f"measured: {least}{best} chases at once take {parallel[best].value:.1f} cycles per load, and one takes "
            f"{parallel[1].value:.1f}"
        )
        self.rows.append(Row(f"memory, {best} chases at once, per load", parallel[best], None))
        if self.core:
            published = self.core
            core["cycles_per_instruction"] = round(2 / published.width, 3)
            sizes = {"window": published.window, "load_queue": published.load_queue}
            sizes |= {"store_queue": published.store_queue, "page_walkers": published.page_walkers}
            core |= sizes
            self.origin |= {f"core.{key}": f"published: {published.name}: {published.source}" for key in sizes}
            why = f"half the peak rate of the {published.width}-wide core ({published.name})"
        else:
            self.warnings.append(
                "pagelab has no published figures of this core: the window and its queues are the defaults, Skylake's"
            )
            why = "half the peak rate of a 4-wide core"
        self.origin["core.cycles_per_instruction"] = f"estimated: {why}, for code that does not wait for memory"
        self.preset["core"] = core

    def _walks(self) -> walks.Walks | None:
        entries = [
            tlb.entries for tlb in self.tlbs if tlb.level > 1 and tlb.kind != "instruction" and "4K" in tlb.pages
        ]
        return walks.measured_walks(self.measured, max(entries, default=walks.ENTRIES))

    def set_walks(self) -> None:
        """How the processor walks, derived from the cost of walks."""
        cost = self._walks()
        if cost is None:
            self.warnings.append(f"walks could not be measured: they are as in {self.base}")
            return
        virtualised = self.facts.machine.virtualised
        if virtualised and cost.large and not cost.in_pieces:
            self.warnings.append(
                "the TLBs hold large pages whole, so the host maps this machine with large pages; replays with "
                "--nested assume a host with small pages"
            )
        made = walks.fit(self.preset, cost, virtualised=virtualised)
        made.arrangement.apply(self.preset)
        if not made.is_near:
            self.warnings.append(
                f"no modelled arrangement walks like this machine: {cost} cycles, and {made.simulated}"
            )
        pages = " and ".join(f"{count:,}" for count in cost.small)
        self.comments.append(
            f"a walk, with the second-level TLB, of {pages} pages in turn: {cost} cycles; simulated: {made.simulated}"
        )
        how = f"nearest of {made.others + 1} arrangements: a walk takes {cost} cycles, simulated {made.simulated}"
        for key in ("cache.walker_entry", "mmu_cache.of_hosts"):
            self.origin[key] = f"measured: {how}"
        self.origin["tlb.guest"] = f"estimated: entries, ways and latency; that there is one is measured: {how}"

    def _latency(self, key: str, what: str, figure: Figure, how: str) -> None:
        """Puts a figure into the preset, in whole cycles, if it is plausible."""
        if not self._is_plausible(key, what, figure.value):
            return
        repair.put(self.preset, key, round(figure.value))
        self.origin[key] = f"measured: {how}: {figure} cycles"
        self.rows.append(Row(what, figure, key))
        if figure.noisy:
            self.warnings.append(f"{what}: repetitions spread by more than a quarter; measure again on an idle machine")

    def _is_plausible(self, key: str, what: str, value: float) -> bool:
        """Whether a figure is plausible. If not, the base's value stays, and a warning says so."""
        refusal = plausible.MACHINE[key].refusal(value)
        if refusal is None:
            return True
        kept = repair.get(self.config, key)
        self.warnings.append(
            f"{what} was not measured well: {refusal}. {key} stays as in {self.base}"
            + (f", {kept}" if kept is not None else "")
        )
        return False

    def repair(self) -> None:
        """Replaces values that contradict the others by the base's, so that the simulator accepts the preset."""
        self.warnings += repair.order_latencies(self.preset, self.origin, self.config)
        self.warnings += repair.leave_impossible(self.preset, self.origin, self.config)
        self.rows = [row for row in self.rows if row.key is None or self.origin.get(row.key, "").startswith("measured")]

    def finish(self) -> Hardware:
        order = ["name", "description", "cores", "threads_per_core", "frequency_mhz", "memory_bytes"]
        order += ["core", "tlb", "mmu_cache", "cache", "bulk"]
        preset = {key: self.preset[key] for key in order if key in self.preset}
        used = _origins_in_use(preset, self.origin)
        return Hardware({**preset, "origin": used}, self.base, self.rows, self.warnings, self.comments)


def share_bytes(chase: Mapping[int, Figure], hit_cycles: float) -> float | None:
    """The size of memory in which half of a chase's loads hit the last cache.

    Interpolated between two measured sizes by the logarithm. None if no load takes twice a hit, or if all sizes miss.
    """
    memory, sizes = chase[max(chase)].value, sorted(chase)
    if memory < _LEAST_MISS * hit_cycles:
        return None
    half = (hit_cycles + memory) / 2
    pairs = (pair for pair in itertools.pairwise(sizes) if chase[pair[0]].value < half <= chase[pair[1]].value)
    before, size = next(pairs, (0, 0))
    if not size:
        return None
    part = (half - chase[before].value) / (chase[size].value - chase[before].value)
    return float(before * (size / before) ** part)


def _less(figure: Figure, cycles: float) -> Figure:
    """A figure minus a number of cycles."""
    return Figure(
        figure.lower_quartile - cycles, figure.median - cycles, figure.upper_quartile - cycles, figure.repeats
    )


def _reaches(measured: Processor, tlbs: Sequence[described.Tlb]) -> list[str]:
    """Further results of the chases over pages: the reach of TLBs, and the cost of a miss in all of them."""
    lines = []
    for page, cycles in (("4K", measured.small_page_cycles), ("2M", measured.large_page_cycles)):
        inside = cycles[min(cycles)].value
        entries = [tlb.entries for tlb in tlbs if page in tlb.pages and tlb.kind != "instruction"]
        lines.append(
            f"pages of {page}: loads to up to {reach(cycles, inside + 3)} of them hit the L1 TLB; cpuid states "
            f"{' and '.join(map(str, entries)) or 'nothing'}"
        )
    most = max(measured.small_page_cycles)
    # The same number of lines in large pages is in the same caches, and needs no walk.
    same = near(measured.chase_cycles, 64 * most)
    cost = measured.small_page_cycles[most].value - same.value
    lines.append(
        f"a load to one of {most} pages of 4K takes {cost:.0f} cycles more than one to as many lines in pages of 2M"
    )
    return lines


def _origins_in_use(preset: Mapping[str, Any], origin: Mapping[str, str]) -> dict[str, str]:
    """The origins that are the nearest ones of some value."""
    used = set()
    for key in _keys(preset):
        parts = key.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        used.add(next((prefix for prefix in prefixes if prefix in origin), None))
    return {key: text for key, text in origin.items() if key in used}


def _keys(value: Any, key: str = "") -> list[str]:
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        return [key]
    return [below for name, part in pairs for below in _keys(part, f"{key}.{name}" if key else str(name))]
