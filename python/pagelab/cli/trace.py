"""`pagelab trace`: look at traces, sample them, import those of other tools, export to them."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pagelab import UsageError, _engine
from pagelab.capture.length import Length
from pagelab.capture.program_exit import failure
from pagelab.capture.stretches import StretchTotals
from pagelab.capture.traces import anonymize_trace, export_trace, import_trace, save_sample, trace_head, trace_info
from pagelab.cli import fault_trace
from pagelab.cli.command import App
from pagelab.cli.terminal import Quiet, facts, print_table, progress_bars
from pagelab.faults.models import fault_trace_head, fault_trace_info
from pagelab.output import MISSING_FOLDERS, ensure_ending
from pagelab.quantities import count, counted

app = App(help="Inspect and sample traces; import traces of other tools, and export to them.", no_args_is_help=True)

TracePath = Annotated[Path, typer.Argument(metavar="TRACE", help="A folder NAME.trace, or a fault trace NAME.faults.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_READ, _WRITTEN = (", ".join(name for name, _ in formats) for formats in _engine.foreign_formats())


@app.command("info")
def info(
    trace: TracePath,
    footprint: Annotated[
        bool, typer.Option("--footprint", help="Also count the pages touched; reads the whole trace.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a trace contains."""
    of_faults = trace.is_file()
    if of_faults and footprint:
        raise UsageError(f"{trace} is a fault trace, and --footprint counts the pages that accesses touch")
    about = fault_trace_info(trace) if of_faults else trace_info(trace, footprint=footprint)
    if as_json:
        print(json.dumps(about, ensure_ascii=False))
    else:
        print_table(fault_trace.info_table(str(trace), about) if of_faults else facts(_describe(about)))


@app.command("head")
def head(
    trace: TracePath,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="Number of rows.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the first accesses and events of a trace, or the first faults."""
    of_faults = trace.is_file()
    first = fault_trace_head(trace, rows) if of_faults else trace_head(trace, rows)
    if as_json:
        print(json.dumps(first, ensure_ascii=False))
    else:
        print_table(fault_trace.head_table(first) if of_faults else _head_table(first))


def _head_table(first: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("position", "thread", "kind", "address", "bytes", "pc", "gap", "waits for", "branches", ""):
        left = column in ("kind", "branches", "")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in first:
        table.add_row(*_cells(row))
    return table


@app.command("import")
def import_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The other tool's trace: plain, compressed (gzip, xz, bzip2, zstd, lz4, snappy), or in a tar or zip "
            "archive; or DynamoRIO's folder with one file per thread.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME.trace",
            help=f"The trace to write; default: named after the file. {MISSING_FOLDERS}",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help=f"{_READ}, or auto to recognise it.")] = "auto",
    max_accesses: Annotated[
        str | None, typer.Option("--max-accesses", metavar="N", help="Stop after N accesses, such as 100M.")
    ] = None,
    max_records: Annotated[
        str | None,
        typer.Option("--max", metavar="N", help="Stop after N records of the file: lines, instructions or packets."),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            "--fields",
            metavar="NAMES",
            help="The fields of a text of `perf script`, as behind its -F, if they cannot be told from the text.",
        ),
    ] = None,
    record_bytes: Annotated[
        int | None,
        typer.Option(
            "--record-bytes",
            metavar="N",
            help="Bytes of ChampSim's records, 64 or 96, if they cannot be told from the content.",
        ),
    ] = None,
    remove_tags: Annotated[
        bool,
        typer.Option("--remove-tags", help="Remove the tag in the highest byte of addresses, as AArch64 has them."),
    ] = False,
    leave_out_kernel: Annotated[
        bool,
        typer.Option(
            "--leave-out-kernel",
            help="Leave out and count what is at addresses of the kernel's half. Without it, it is an error.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Convert a trace of another tool into a pagelab trace."""
    if output:
        ensure_ending(output, "a trace")
    limit = count("--max-accesses", max_accesses, least=1)
    records = count("--max", max_records, least=1)
    with progress_bars("bytes", quiet=quiet) as bars:
        report = (lambda done, total: bars(file.name, done, total)) if bars else None
        done = import_trace(
            file,
            output,
            format=format,
            max_accesses=limit,
            max_records=records,
            fields=fields,
            record_bytes=record_bytes,
            remove_tags=remove_tags,
            leave_out_kernel=leave_out_kernel,
            progress=report,
        )
    cut = ", where it was stopped" if done.cut_short else ""
    if done.threads > 1:
        cut += f", {done.threads:,} threads"
    if done.left_out:
        cut += f", {counted(done.left_out, 'record', 'records')} left out"
    if done.empty_accesses:
        cut += f", {done.empty_accesses:,} of 0 bytes left out"
    what = ("sample", "samples") if done.sampled else ("access", "accesses")
    mappings = counted(done.mappings, "mapping was", "mappings were")
    print(f"{done.path}: {counted(done.accesses, *what)} from {done.format}{cut}; {mappings} inferred from them")
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)


@app.command("export")
def export_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A folder NAME.trace.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write, compressed if its name ends in .gz, .xz, .bz2 or .zst. With several threads, one "
            f"file per thread, with its number in the name. {MISSING_FOLDERS}",
        ),
    ],
    format: Annotated[str, typer.Option("--format", "-f", help=f"{_WRITTEN}.")],
    thread: Annotated[
        int | None,
        typer.Option("--thread", min=0, metavar="N", help="Export only the thread with this number in the trace."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Convert a pagelab trace for another tool."""
    with progress_bars("accesses", quiet=quiet) as bars:
        report = (lambda done, total: bars(trace.name, done, total)) if bars else None
        files = export_trace(trace, output, format=format, thread=thread, progress=report)
    for file in files:
        lost = ""
        if file.instructions_added:
            added = counted(file.instructions_added, "instruction was", "instructions were")
            lost += f"; {added} added, as records hold only so many accesses"
        if file.accesses_dropped:
            lost += f"; {counted(file.accesses_dropped, 'access', 'accesses')} of address 0 dropped"
        if file.by_kernel:
            lost += f"; {counted(file.by_kernel, 'access', 'accesses')} by the kernel became the program's"
        instructions = counted(file.instructions, "instruction", "instructions")
        what = f"{instructions} and {counted(file.accesses, 'access', 'accesses')}"
        print(f"{file.path}: {what} of thread {file.thread}{lost}")


@app.command("anonymize")
def anonymize_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A folder NAME.trace.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.trace", help=f"The new trace. {MISSING_FOLDERS}")
    ],
) -> None:
    """Copy a trace without personal data: file names, arguments, the kernel's release, notes."""
    ensure_ending(output, "a trace")
    anonymize_trace(trace, output)
    print(f"{output}: the accesses of {trace}, with numbers instead of the names of files")


@app.command("sample")
def sample_command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A folder NAME.trace, or a workload.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.trace", help=f"The sample. {MISSING_FOLDERS}")
    ],
    sample: Annotated[
        str,
        typer.Option(
            metavar="auto|every=N,length=N[,warm=N][,offset=N]",
            help="A window of `length` instructions in each period of `every`.",
        ),
    ] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for the position of windows and for a workload's random choices.")
    ] = 1,
    max_accesses: Annotated[
        str | None,
        typer.Option("--max-accesses", metavar="N", help="Sample only the first N accesses, such as 100M."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a sample of a trace as a separate trace, which replays in a fraction of the time."""
    ensure_ending(output, "a trace")
    limit = count("--max-accesses", max_accesses, least=1)
    with progress_bars("accesses", quiet=quiet) as bars:
        report = (lambda done, total: bars(source, done, total)) if bars else None
        done = save_sample(source, output, sample=sample, seed=seed, max_accesses=limit, progress=report)
    part = f"{100 * done.accesses / done.read:.2g} % of {counted(done.read, 'access', 'accesses')}"
    print(f"{done.path}: {counted(done.accesses, 'access', 'accesses')}, {part}; {done.stretches.describe()}")
    if 2 * done.accesses > done.read:
        print(
            "This saves little, because the windows are close together and leave few accesses to skip. Use a longer "
            "every=."
        )


def _describe(about: dict[str, Any]) -> list[tuple[str, str]]:
    meta, counts, events = about["meta"], about["access_counts"], about["event_counts"]
    lines = [
        ("trace", about["path"]),
        ("command", " ".join(meta["command"])),
        ("complete", _complete(about)),
        *_ending(meta.get("exit")),
        ("recorded", datetime.fromtimestamp(meta["started_unix_seconds"], UTC).isoformat(sep=" ")),
    ]
    if host := meta.get("host"):
        where = ", a virtual machine" if host.get("virtualised") else ""
        lines.append(("host", f"{host['cpu_model']}, {host['kernel']}, {host['architecture']}{where}"))
    lines += [
        ("tools", ", ".join(f"{name} {version}" for name, version in meta["tools"].items())),
        ("accesses", f"{about['accesses']:,}"),
        *((f"  {kind}", f"{counts[kind]:,}") for kind in ("loads", "stores", "modifies", "fetches")),
        ("  by the kernel", f"{counts['by_kernel']:,}"),
        ("instructions", f"{counts['instructions']:,}"),
        ("events", f"{about['events']:,}"),
        *((f"  {kind}", f"{number:,}") for kind, number in events["by_kind"].items()),
        ("processes", f"{events['processes']:,}"),
        ("threads", f"{events['threads']:,} ({events['threads_at_once']:,} at once)"),
        ("size", f"{about['size_bytes']:,} bytes{_per_access(about['bytes_per_access'])}"),
        ("content", about["content_hash"]),
    ]
    if pages := about.get("footprint"):
        lines.append(("footprint", f"{pages['pages']:,} pages of {pages['page_size_bytes']:,} bytes"))
    if stretches := meta.get("stretches"):
        lines.append(("recorded", StretchTotals(**stretches).describe()))
        lines.append(("  skipped", f"{stretches['skipped_instructions']:,} instructions but for {_kept(meta)}"))
    elif "skip" in events["by_kind"]:
        lines.append(("recorded", "in stretches; how much was skipped in all is not known"))
    if meta.get("sampled"):
        lines.append(("samples", "the accesses are a sample of the program's accesses"))
    recorded = "which loads addresses come from, and branches" if meta.get("dependencies") else "not recorded"
    lines.append(("dependencies", recorded))
    recorded = "of each access, and what was allocated by which call" if meta.get("call_stacks") else "not recorded"
    lines.append(("call stacks", recorded))
    if meta["mappings_inferred"]:
        lines.append(("mappings", "inferred from the accesses: the origin had no events"))
    lines += [("missing", loss) for loss in meta.get("losses", [])]
    lines += [("note", note) for note in meta["notes"]]
    return lines


def _complete(about: dict[str, Any]) -> str:
    if about["meta"].get("losses"):
        return "no: see what is missing below"
    if not about["complete"]:
        return "no: the recording was cut off"
    stopped = not Length.from_info(about).known
    return "yes, of a part of the program: see the notes" if stopped else "yes"


def _ending(exit_: dict[str, Any] | None) -> list[tuple[str, str]]:
    """How the program ended, if that is known."""
    if exit_ is None:
        return []
    failed = failure(exit_)
    return [("program", f"failed: {failed}" if failed else "ended with exit status 0")]


def _kept(meta: dict[str, Any]) -> str:
    return "first and last touches" if meta.get("sample") else "first touches"


def _per_access(size: float | None) -> str:
    return "" if size is None else f", {size:.2f} per access"


def _cells(row: dict[str, Any]) -> list[str]:
    if row["row"] == "access":
        by = "by the kernel" if row["by_kernel"] else ""
        waits = "" if row["waits_for"] is None else str(row["waits_for"])
        place = [f"{row['vaddr']:#x}", str(row["size"]), f"{row['pc']:#x}", str(row["gap"]), waits, row["branches"], by]
    else:
        length = "" if row["len"] is None else str(row["len"])
        place = [_hex(row["addr"]), length, "", "", "", "", _event_details(row)]
    return [str(row["position"]), str(row["thread"]), row["kind"], *place]


def _event_details(row: dict[str, Any]) -> str:
    decimal = ("file", "old_len", "prot", "other_process", "argument")
    address = ("old_addr", "file_offset", "flags")
    parts = {"process": row["process"]}
    parts |= {name: row[name] for name in decimal if row[name] is not None}
    parts |= {name: _hex(row[name]) for name in address if row[name] is not None}
    return " ".join(f"{name}={value}" for name, value in parts.items())


def _hex(number: int | None) -> str:
    return "" if number is None else f"{number:#x}"
