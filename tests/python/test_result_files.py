"""Files of results: the same statistics come back, old files stay readable, damaged ones are named."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Pagelab, assert_fails

import pagelab as package
from pagelab import Results, UsageError
from pagelab.results import file_format

OLD = Path(__file__).parent / "results_format_1.json.gz"
"""As pagelab wrote results before formats had numbers: `gups:size=1MiB,updates=20K` under `radix`, three windows."""


@pytest.fixture(scope="module")
def results() -> Results:
    return package.run("gups:size=1MiB,updates=20K,threads=2", ["radix", "nested-radix"], windows=3, profile=True)


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "R.JSON.GZ"])
def test_what_was_saved_comes_back(results: Results, name: str, tmp_path: Path) -> None:
    results.save(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == (name != "r.json")
    loaded = Results.load(tmp_path / name)
    assert loaded.to_document() == results.to_document()
    assert [list(result.stats) for result in loaded.systems] == [list(result.stats) for result in results.systems]
    assert [len(result.windows) for result in loaded.systems] == [3, 3]
    assert loaded.to_json() == results.to_json()


def test_orders_of_threads_come_back(tmp_path: Path) -> None:
    several = package.run("gups:size=1MiB,updates=2K,threads=2@0,1", "radix", interleavings=3)
    assert len(several.systems[0].orders) == 3
    several.save(tmp_path / "r.json")
    assert Results.load(tmp_path / "r.json").systems == several.systems


def test_a_statistic_that_some_windows_lack_is_lacking_after_reading() -> None:
    rows = [{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 0, "c": 2**64 - 1}]
    document = {"version": "0", "results": [{"windows": rows, "orders": []}], "statistics": {}}
    assert file_format.decode(file_format.encode(document)) == document


def test_the_same_results_are_the_same_bytes(results: Results, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        results.save(tmp_path / name)
    compressed = (tmp_path / "a.json.gz").read_bytes()
    assert compressed == (tmp_path / "b.json.gz").read_bytes()
    assert compressed[4:8] == bytes(4), "a time of writing"
    assert gzip.decompress(compressed).decode() == results.to_json()


def test_files_are_small(results: Results) -> None:
    """A line per statistic's meaning and per part of a result; windows repeat no names."""
    text = results.to_json()
    assert text.count("\n") < len(results.statistics) + 30 * len(results.systems)
    assert text.count('"walk.count"') == 1 + 2 * len(results.systems)
    assert len(text) < len(json.dumps(results.to_document(), indent=1)) / 1.5
    assert json.loads(text)["results"][0]["stats"] == results.systems[0].stats


def test_an_old_file_reads_as_it_did(tmp_path: Path) -> None:
    old = json.loads(gzip.decompress(OLD.read_bytes()))
    assert "format" not in old
    loaded = Results.load(OLD)
    assert loaded.to_document() == old
    (result,) = loaded.systems
    assert len(result.windows) == 3
    assert sum(window["walk.count"] for window in result.windows) == result.stats["walk.count"] > 0
    loaded.save(tmp_path / "new.json")
    assert Results.load(tmp_path / "new.json").to_document() == old


def test_every_reader_takes_old_and_new_files(pagelab: Pagelab, tmp_path: Path) -> None:
    plain, new = tmp_path / "old.json", tmp_path / "new.json.gz"
    plain.write_bytes(gzip.decompress(OLD.read_bytes()))
    Results.load(OLD).save(new)
    shown = [pagelab("show", file).stdout for file in (OLD, plain, new)]
    assert "radix" in shown[0]
    assert shown.count(shown[0]) == 3
    for pair in ((plain, new), (new, plain), (OLD, new)):
        process = pagelab("compare", *pair)
        assert process.returncode == 0, process.stderr
    for folder, file in (("a", plain), ("b", new)):
        (tmp_path / folder).mkdir()
        file.rename(tmp_path / folder / file.name)
    process = pagelab("compare", "a", "b")
    assert process.returncode == 0, process.stderr
    process = pagelab("report", tmp_path / "a" / "old.json", tmp_path / "b" / "new.json.gz", "-o", "page.html")
    assert process.returncode == 0, process.stderr


def test_the_ending_of_a_name_compresses(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("run", "seq:size=64KiB", "--json", "r.json.gz").returncode == 0
    assert (tmp_path / "r.json.gz").read_bytes().startswith(b"\x1f\x8b")
    assert pagelab("mrc", "seq:size=64KiB", "--json", "curves.json.gz").returncode == 0
    curves = package.MissRatioCurves.load(tmp_path / "curves.json.gz")
    assert curves.accesses == 8192
    assert_fails(pagelab("run", "seq:size=64KiB", "--json", "r.gz"), 2, "r.gz", "name it", "r.json")


def _with(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(package.run("seq:size=64KiB", windows=2).to_json())
    change(document)
    return json.dumps(document)


def _table(**parts: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["results"][0]["windows_by_statistic"].update(parts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(format=3), r"format 3, .* reads formats up to 2: update pagelab"),
        (lambda document: document.update(format="2"), "not the number of a format"),
        (lambda document: document.update(format=0), "not the number of a format"),
        (_table(count=3), "`windows_by_statistic` is not a table"),
        (_table(count=10**12, values={"walk.count": 0}), "`windows_by_statistic` is not a table"),
        (_table(values=[]), "`windows_by_statistic` is not a table"),
        (_table(values={"walk.count": "ab"}), "`windows_by_statistic` is not a table"),
        (lambda document: document["results"][0].update(orders_by_statistic=3), "`orders_by_statistic` is not a table"),
        (lambda document: document["results"][0].pop("windows_by_statistic"), "'windows' is missing"),
    ],
)
def test_what_makes_no_sense_is_refused(change: Callable[[dict[str, Any]], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Results.from_json(_with(change))


def test_damaged_compressed_files_are_named(pagelab: Pagelab, tmp_path: Path) -> None:
    whole = OLD.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for name, content in {
        "cut.json.gz": whole[: len(whole) // 2],
        "head.json.gz": whole[:5],
        "flipped.json.gz": bytes(flipped),
        "garbage.json.gz": whole[:10] + b"\xff" * 99,
        "behind.json": whole + b"more",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert_fails(pagelab("show", name), 2, name, "damaged or incomplete")
    (tmp_path / "binary.json").write_bytes(b"\x00\xff\xfe")
    assert_fails(pagelab("show", "binary.json"), 2, "binary.json", "no text")
    (tmp_path / "curves.json").write_bytes(whole[:99])
    with pytest.raises(UsageError, match=r"curves\.json: .*incomplete"):
        package.MissRatioCurves.load(tmp_path / "curves.json")


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.output._LARGEST_TEXT", 1 << 20)
    (tmp_path / "huge.json.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(UsageError, match=r"huge\.json\.gz: it holds more than"):
        Results.load(tmp_path / "huge.json.gz")
