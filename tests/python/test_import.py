"""Importing traces of other tools through the command line."""

import gzip
import json
import struct
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

LACKEY = "I  04000000,3\n L 1ffe000010,8\nI  04000003,2\n S 1ffe000018,4\nI  04000005,7\n M 05001000,8\n"


def test_lackey_is_recognised_replayed_and_marked_as_inferred(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "small.txt.gz").write_bytes(gzip.compress(LACKEY.encode()))
    imported = pagelab("trace", "import", "small.txt.gz")
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith("small.trace: ")

    about = json.loads(pagelab("trace", "info", "small.trace", "--json").stdout)
    assert about["meta"]["mappings_inferred"]
    counts = about["access_counts"]
    assert (counts["loads"], counts["stores"], counts["modifies"]) == (1, 1, 1)
    assert counts["instructions"] == 3

    replayed = pagelab("run", "small.trace", "--json", "-")
    assert "inferred" in replayed.stderr
    result = json.loads(replayed.stdout)["results"][0]
    assert result["sources"][0]["mappings_inferred"]
    assert result["stats"]["accesses.refused"] == 0
    assert result["stats"]["instructions"] == 3


def test_accesses_of_no_bytes_are_left_out_and_counted(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(LACKEY + " L 7ffcc5a5dbc0,0\n")
    imported = pagelab("trace", "import", "empty.txt")
    assert imported.returncode == 0, imported.stderr
    assert "lackey, 1 of 0 bytes left out;" in imported.stdout
    assert "1 access of 0 bytes was left out" in pagelab("trace", "info", "empty.trace").stdout


def test_champsim_records(pagelab: Pagelab, tmp_path: Path) -> None:
    record = struct.pack("<QBB2B4B2Q4Q", 0x400000, 0, 0, 0, 0, 0, 0, 0, 0, 0x601000, 0, 0x602000, 0x603000, 0, 0)
    assert len(record) == 64
    (tmp_path / "small.champsim").write_bytes(record * 100)
    assert pagelab("trace", "import", "small.champsim", "-o", "c.trace", "-f", "champsim").returncode == 0
    counts = json.loads(pagelab("trace", "info", "c.trace", "--json").stdout)["access_counts"]
    assert (counts["loads"], counts["stores"], counts["instructions"]) == (200, 100, 100)


def test_what_is_no_trace_is_refused_and_leaves_nothing(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    assert_fails(pagelab("trace", "import", "notes.txt"), 1, "notes.txt", "lackey", "champsim")
    (tmp_path / "half.txt").write_text(LACKEY + " L nonsense\n")
    assert_fails(pagelab("trace", "import", "half.txt"), 1, "half.txt", "7")
    assert_fails(pagelab("trace", "import", "notes.txt", "-f", "etch"), 2, "etch", "lackey", "champsim")
    assert not list(tmp_path.glob("*.trace"))


@pytest.mark.parametrize("name", ["small.trace", "small.trace/trace.json", "small.trace/accesses-000000.parquet"])
def test_a_trace_of_pagelab_needs_no_import(pagelab: Pagelab, tmp_path: Path, name: str) -> None:
    (tmp_path / "small.txt").write_text(LACKEY)
    assert pagelab("trace", "import", "small.txt").returncode == 0
    imported = pagelab("trace", "import", name, "-o", "again.trace")
    assert_fails(imported, 2, name, "a trace of pagelab already", "use it as it is: pagelab run small.trace")
