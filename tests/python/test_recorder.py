"""Recording through the command line."""

import json
import sys
from pathlib import Path

import polars as pl
from conftest import Pagelab, assert_fails

LARGE_PAGE_BYTES = 2 << 20
MAPPINGS = """
import mmap
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
kept = [mmap.mmap(-1, pages << 12, flags=flags) for pages in (1237, 1237, 2560)]
kept[-1].resize(3584 << 12)
"""


def test_a_recorded_program_keeps_its_output_and_status_and_replays(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-o", "sh.trace", "--", "sh", "-c", "echo hello; exit 3")
    assert recorded.returncode == 3, recorded.stderr
    assert recorded.stdout == "hello\n"
    assert " bytes per access, " in recorded.stderr
    assert_fails(pagelab("record", "-o", "sh.trace", "--", "true"), 2, "sh.trace", "exists")

    about = json.loads(pagelab("trace", "info", "sh.trace", "--json").stdout)
    assert about["complete"]
    assert " per access\n" in pagelab("trace", "info", "sh.trace").stdout
    assert about["meta"]["command"] == ["sh", "-c", "echo hello; exit 3"]
    rows = pl.scan_parquet(tmp_path / "sh.trace" / "accesses-*.parquet").select(pl.len()).collect().item()
    assert rows == about["accesses"] > 10_000
    assert "mmap" in pagelab("trace", "head", "-n", "40", "sh.trace").stdout

    replayed = pagelab("run", "sh.trace", "-s", "radix", "-s", "nested-radix", "--check", "--json", "-")
    assert replayed.returncode == 0, replayed.stderr
    for result in json.loads(replayed.stdout)["results"]:
        assert result["stats"]["accesses"] == about["accesses"]
        assert result["stats"]["accesses.refused"] == 0


def test_a_recording_ends_after_so_many_accesses(pagelab: Pagelab) -> None:
    recorded = pagelab("record", "-o", "yes.trace", "--max-accesses", "300K", "--", "yes")
    assert recorded.returncode == 0, recorded.stderr
    about = json.loads(pagelab("trace", "info", "yes.trace", "--json").stdout)
    assert about["complete"]
    assert about["accesses"] == 300_000
    assert any("stopped" in note for note in about["meta"]["notes"])


def test_a_damaged_trace_is_refused_with_its_name(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-o", "true.trace", "--", "true").returncode == 0
    part = next((tmp_path / "true.trace").glob("accesses-*.parquet"))
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    assert_fails(pagelab("run", "true.trace"), 1, part.name)
    middle = len(whole) // 3
    part.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    assert_fails(pagelab("run", "true.trace"), 1, part.name)


def test_mappings_lie_as_the_kernel_lays_them(pagelab: Pagelab, tmp_path: Path) -> None:
    """One below the other, and at a large page's start if they are of whole large pages."""
    assert pagelab("record", "-o", "maps.trace", "--", sys.executable, "-I", "-S", "-c", MAPPINGS).returncode == 0
    events = pl.read_parquet(tmp_path / "maps.trace" / "events-*.parquet")
    placed = [
        events.filter(pl.col("kind") == kind, pl.col("len") == pages << 12)["addr"].to_list()
        for kind, pages in (("mmap", 1237), ("mmap", 2560), ("mremap", 3584))
    ]
    (first, second), (large,), (moved,) = placed
    assert second == first - (1237 << 12)
    assert large % LARGE_PAGE_BYTES == 0
    assert large < second
    assert moved % LARGE_PAGE_BYTES == 0
    assert moved < large
