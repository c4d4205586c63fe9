"""Recording through the command line."""

import json
from pathlib import Path

import polars as pl
from conftest import Pagelab, assert_fails


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
