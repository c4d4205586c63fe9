"""What `pagelab trace` prints about fault traces."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pagelab.cli.terminal import facts

_KINDS = {
    "writes": "writes of pages not mapped",
    "reads": "reads of such pages",
    "fetches": "fetches from such pages",
    "forbidden": "accesses that a mapping forbids",
    "unknown": "of an unknown kind",
}


def info_table(path: str, info: Mapping[str, Any]) -> Table:
    """The description of a fault trace."""
    counts, seconds = info["counts"], info["duration_ns"] / 1e9
    lines = [("fault trace", path), ("command", " ".join(info["command"]))]
    if host := info["host"]:
        lines.append(("host", f"{host['cpu_model']}, {host['kernel']}, {host['architecture']}"))
    lines.append(("duration", f"{seconds:.3f} s ({info['duration_origin']})"))
    if info["cpu_time_ns"] is not None:
        lines.append(("CPU time", f"{info['cpu_time_ns'] / 1e9:.3f} s"))
    rate = f", {info['faults'] / seconds:,.0f} per second" if seconds else ""
    lines.append(("faults", f"{info['faults']:,}{rate}"))
    lines += [(f"  {text}", f"{counts[kind]:,}") for kind, text in _KINDS.items() if counts[kind]]
    if counts["by_kernel"]:
        lines.append(("  by the kernel, of these", f"{counts['by_kernel']:,}"))
    lines += [(f"  on core {core}", f"{count:,}") for core, count in enumerate(counts["by_core"]) if count]
    latency = info["latency"]
    text = f"{latency['ns']} ns each, {latency['how']}" if latency["origin"] == "constant" else latency.get("how")
    lines += [
        ("processes", f"{info['processes']:,}"),
        ("threads", f"{info['threads']:,}"),
        ("latency", text or "unknown"),
    ]
    if info["recording_cost_ns"]:
        lines.append(("recording", f"{info['recording_cost_ns']} ns per fault"))
    if info["lost"]:
        lines.append(("lost", f"{info['lost']:,} events"))
    return facts([*lines, *(("note", note) for note in info["notes"])])


def head_table(faults: Sequence[Mapping[str, Any]]) -> Table:
    """Faults, one per line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("ns", "core", "process", "thread", "address", "access", "ns taken"):
        table.add_column(column, justify="left" if column == "access" else "right", no_wrap=True)
    for fault in faults:
        access = fault["access"] or "unknown"
        notes = ("mapped", fault["present"]), ("by the kernel", fault["by_kernel"])
        access += "".join(f", {note}" for note, holds in notes if holds)
        taken = "" if fault["latency_ns"] is None else str(fault["latency_ns"])
        cells = (
            fault["time_ns"],
            fault["core"],
            fault["process"],
            fault["thread"],
            f"{fault['address']:#x}",
            access,
            taken,
        )
        table.add_row(*map(str, cells))
    return table
