"""An observation as JSON."""

import platform
from dataclasses import asdict
from typing import Any

from pagelab import _engine
from pagelab.observe.code import CodeFaults
from pagelab.observe.conclusions import Conclusions
from pagelab.observe.difference import FORMAT
from pagelab.observe.heat import heat_map
from pagelab.observe.layout import PAGE_BYTES, Layout
from pagelab.observe.projections import Projection
from pagelab.observe.verdict import Judgement


def document(conclusions: Conclusions) -> dict[str, Any]:
    """All figures; bytes, seconds and shares of 1."""
    seen = conclusions.observation
    return {
        "format": FORMAT,
        "version": _engine.__version__,
        "target": seen.title,
        "kernel": f"{platform.system()} {platform.release()}",
        "page_bytes": PAGE_BYTES,
        "seconds": seen.seconds,
        "ended": seen.ended,
        "interrupted": seen.interrupted,
        "processes": {str(pid): seen.looks.names.get(pid) for pid in seen.pids},
        "cpu_seconds": seen.totals.cpu_seconds,
        "cost": _cost(conclusions),
        "verdict": {
            "kind": conclusions.kind.value,
            "reason": conclusions.reason,
            "commands": list(conclusions.recipes),
        },
        "faults": _faults(conclusions),
        "time": {
            "samples": conclusions.times.samples,
            "missing": conclusions.times.missing,
            "sampled_part": conclusions.times.coverage,
            "activities": {name: asdict(share) for name, share in conclusions.times.activities.items()},
            "kernel": {name: asdict(share) for name, share in conclusions.times.parts.items()},
        },
        "looks": _looks(conclusions),
        "working_set": _working_set(conclusions),
        "address_use": [asdict(snapshot) for snapshot in seen.address_use],
        "memory": [_memory(one) for one in conclusions.judgements],
        "projections": [_projection(one) for one in conclusions.projections],
        "machine": asdict(seen.machine) if seen.machine else None,
        "nodes": {str(node): list(cpus) for node, cpus in seen.looks.topology.cpus.items()},
        "tlb_reach": asdict(conclusions.reach),
        "pressure": {
            "of_group": seen.group_pressure,
            "stalled_us": dict(seen.pressure.stalled_us) if seen.pressure.stalled_us is not None else None,
            "machine_events": dict(seen.pressure.events),
        },
        "counters": {"counts": dict(seen.hardware.counts), "missing": seen.hardware.missing},
        "notes": [*seen.looks.notes, *seen.looks.refused],
    }


def _cost(conclusions: Conclusions) -> dict[str, Any]:
    seen = conclusions.observation
    return {
        "budget": seen.settings.budget,
        "own_seconds": seen.budget.own,
        "in_program_seconds_estimated": seen.budget.in_program,
        "first_look_seconds": seen.budget.first_look,
        "damon_seconds": seen.budget.monitor,
        "share": conclusions.cost_share,
    }


def _faults(conclusions: Conclusions) -> dict[str, Any]:
    seen, seconds = conclusions.observation, conclusions.fault_seconds
    return {
        "count": seen.totals.faults,
        "minor": seen.totals.minor,
        "major": seen.totals.major,
        "samples": seen.fault_samples,
        "lost_samples": seen.lost,
        "in_memory_not_seen": seen.elsewhere,
        "seconds": asdict(seconds) if seconds else None,
        "over_time": [{"seconds": at, "faults": faults, "cpu_seconds": cpu} for at, faults, cpu in seen.rates],
        "code": [_code(one) for one in conclusions.code],
    }


def _code(code: CodeFaults) -> dict[str, Any]:
    return {"faults": code.faults, "stack": [asdict(frame) for frame in code.frames]}


def _looks(conclusions: Conclusions) -> list[dict[str, Any]]:
    return [{**asdict(look), **asdict(amounts)} for look, amounts in conclusions.observation.looks.totals()]


def _working_set(conclusions: Conclusions) -> list[dict[str, Any]]:
    heat = heat_map(conclusions.observation.looks)
    return [
        {"begin": interval.begin, "end": interval.end, "used": used}
        for interval, used in zip(heat.intervals, heat.working_set, strict=True)
    ]


def _memory(judged: Judgement) -> dict[str, Any]:
    region = judged.region
    return {
        "pid": region.pid,
        "label": region.label,
        "begin": region.begin,
        "end": region.end,
        "mappings": region.mappings,
        "anonymous": region.anonymous,
        "access": region.access,
        "flags": region.flags,
        "looks": {str(number): asdict(amounts) for number, amounts in region.looks.items()},
        "layout": _layout(region.layout),
        "nodes": {str(node): size for node, size in region.nodes.items()},
        "faults": region.faults,
        "fault_samples": region.samples,
        "verdict": judged.kind.value,
        "reasons": list(judged.reasons),
        "traits": list(judged.traits),
        "fault_share": asdict(judged.fault_share) if judged.fault_share else None,
        "saving_at_most": judged.saving.high if judged.saving else None,
        "cold_huge_at_least": judged.cold_huge,
        "growth_at_most": judged.growth,
    }


def _layout(layout: Layout | None) -> dict[str, Any] | None:
    if layout is None:
        return None
    return {
        "extents": layout.extents,
        "pages": layout.pages,
        "dense_extents": layout.dense_extents,
        "contiguity": layout.contiguity.to_dict() if layout.contiguity else None,
        "pieces": {str(PAGE_BYTES << order): count for order, count in enumerate(layout.pieces)},
        "sampled_pages": {str(PAGE_BYTES << order): count for order, count in enumerate(layout.orders)},
    }


def _projection(projection: Projection) -> dict[str, Any]:
    region = projection.region
    return {
        "change": projection.change,
        "setting": projection.setting,
        "pid": region.pid if region else None,
        "begin": region.begin if region else None,
        "label": region.label if region else None,
        "faults_spared": asdict(projection.spared) if projection.spared else None,
        "saving_at_most": asdict(projection.saving) if projection.saving else None,
        "growth_at_most": projection.growth,
        "verdict": projection.kind.value,
    }
