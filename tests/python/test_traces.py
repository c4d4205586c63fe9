"""Traces from Python: importing, looking, recording; counts as people write them."""

from pathlib import Path

import pytest

import pagelab

LACKEY = "I  04000000,3\n L 1ffe000010,8\nI  04000003,2\n S 1ffe000018,4\nI  04000005,7\n M 05001000,8\n"


@pytest.fixture
def lackey(tmp_path: Path) -> Path:
    file = tmp_path / "small.txt"
    file.write_text(LACKEY)
    return file


def test_a_trace_is_imported_and_looked_into(lackey: Path, tmp_path: Path) -> None:
    done = pagelab.import_trace(lackey, tmp_path / "new" / "small.trace")
    assert (done.format, done.cut_short, done.mappings > 0) == ("lackey", False, True)
    about = pagelab.trace_info(done.path, footprint=True)
    assert about["accesses"] == done.accesses
    assert about["access_counts"]["stores"] == 1
    assert about["footprint"]["pages"] == 3
    kinds = [row["kind"] for row in pagelab.trace_head(done.path, rows=100) if row["row"] == "access"]
    assert {"load", "store", "modify"} <= set(kinds)
    assert len(pagelab.trace_head(done.path, rows=1)) == 1


def test_an_import_stops_at_a_count_as_people_write_it(lackey: Path, tmp_path: Path) -> None:
    done = pagelab.import_trace(lackey, tmp_path / "cut.trace", format="lackey", max_accesses="2")
    assert done.cut_short
    for wrong in ("0", 0, -1):
        with pytest.raises(pagelab.UsageError, match=r"max_accesses: .* is not possible; allowed is 1 and more"):
            pagelab.import_trace(lackey, tmp_path / "none.trace", max_accesses=wrong)
    with pytest.raises(pagelab.UsageError, match="is not a count"):
        pagelab.import_trace(lackey, tmp_path / "none.trace", max_accesses="many")
    with pytest.raises(pagelab.TraceError, match=r"missing\.txt"):
        pagelab.import_trace(tmp_path / "missing.txt", tmp_path / "none.trace")
    assert not (tmp_path / "none.trace").exists()


@pytest.mark.parametrize("command", ["/bin/true", Path("/bin/true"), b"/bin/true"])
def test_a_command_that_is_one_text_is_refused(command: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"as a list, such as .*, not .*/bin/true.*shlex\.split"):
        pagelab.record(command, tmp_path / "true.trace")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_command_of_paths_is_recorded(tmp_path: Path) -> None:
    done = pagelab.record([Path("/bin/true")], tmp_path / "true.trace", max_accesses="5K")
    assert done.accesses == 5_000
