"""`pagelab mrc`: curves against the simulator, the command, its files and its errors."""

import json
import math
import re
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

import pagelab
from pagelab.mrc.curves import COLUMNS, MissRatioCurves, miss_ratio_curves
from pagelab.mrc.marks import marks_of
from pagelab.mrc.sample import TOO_MUCH, SampleQuality, sample_quality
from pagelab.quantities import size_text

WORKLOADS = ("random:size=16MiB,accesses=60K", "zipf:size=8MiB,accesses=60K", "seq:size=4MiB,accesses=600K")
ENTRIES = (1, 3, 24, 64, 300, 1500)


def simulated(source: str, entries: int, pages: str, system: str) -> tuple[int, int]:
    """Misses of a fully associative LRU TLB, for data and for code, in the simulator."""
    others = [other for other in ("4K", "2M", "1G") if other != pages]
    level = [
        {"pages": [pages], "entries": entries, "ways": entries},
        # What the kernel's direct map uses is not to compete.
        {"pages": others, "entries": 4, "ways": 4},
    ]
    settings = {"machine.tlb.l1d": level, "machine.tlb.l1i": level, "machine.tlb.l2": []}
    stats = pagelab.run(source, system, set=settings, threads=1).systems[0].stats
    return stats["dtlb.l1.misses"], stats["itlb.l1.misses"]


@pytest.mark.parametrize("source", WORKLOADS)
@pytest.mark.parametrize(("pages", "system"), [("4K", "radix"), ("2M", "radix-2m")])
def test_curves_are_the_simulators_misses(source: str, pages: str, system: str) -> None:
    curves = miss_ratio_curves(source, page_sizes=["4KiB", "2MiB"], line_size=None, sizes=ENTRIES)
    data, code = (curves.curve(stream, pages) for stream in ("data-tlb", "code-tlb"))
    for entries in ENTRIES:
        expected = simulated(source, entries, pages, system)
        assert (data.misses[data.at(entries)], code.misses[code.at(entries)]) == expected, entries


def test_curves_of_lines_are_the_naive_ones() -> None:
    """A loop over 64 KiB in lines: all hit or all miss."""
    curve = miss_ratio_curves("stride:size=64KiB,stride=64,accesses=10240").curve("data-cache", 64)
    assert curve.sizes[-1] == 1024
    assert curve.misses[curve.at(1024)] == curve.first_references == 1024
    # The program has ended, and its memory with it.
    assert curve.pages == 0
    assert curve.misses[curve.at(1023)] == curve.references == 10240
    assert curve.entries_for(10) == 1024
    assert curve.entries_for(11) is None


def test_the_same_bytes_each_time_and_in_files(tmp_path: Path) -> None:
    curves = miss_ratio_curves(WORKLOADS[0], sample=0.2, seed=3)
    assert curves.to_json() == miss_ratio_curves(WORKLOADS[0], sample="0.2", seed="3").to_json()
    assert curves.to_json() != miss_ratio_curves(WORKLOADS[0], sample=0.2, seed=4).to_json()
    curves.save(tmp_path / "new" / "curves.json")
    loaded = MissRatioCurves.load(tmp_path / "new" / "curves.json")
    assert loaded.to_json() == curves.to_json()
    about = json.loads(curves.to_json())["statistics"]
    assert about["entries"] == {"unit": "entries", "description": COLUMNS["entries"][1]}
    frame = loaded.to_polars()
    assert frame.columns == list(COLUMNS)
    assert len(frame) == sum(len(curve.sizes) for curve in curves.curves)
    assert (frame["least_misses"] <= frame["misses"]).all()
    (tmp_path / "other.json").write_text('{"version": "1"}')
    with pytest.raises(pagelab.UsageError, match=r"other\.json: these are no curves"):
        MissRatioCurves.load(tmp_path / "other.json")


def test_a_bounded_sample_is_bounded() -> None:
    curves = miss_ratio_curves("random:size=64MiB,accesses=100K", sample="1K", page_sizes=["4KiB"])
    for stream, granule in (("data-tlb", 4096), ("data-cache", 64)):
        curve = curves.curve(stream, granule)
        # About 1,000 of the pages and lines that are touched.
        touched = {4096: 16_384 * (1 - math.exp(-100 / 16.384)), 64: 100_000 * 0.95}[granule]
        assert 1000 / touched * 0.85 < curve.sample_rate < 1000 / touched * 1.15
    # What fits is no sample.
    assert curves.curve("code-tlb", 4096).sample_rate == 1


def test_the_table_fits_a_terminal(pagelab: Pagelab) -> None:
    for arguments in ([], ["--sample", "0.5"], ["--ways", "4"], ["--page-sizes", "4KiB"]):
        process = pagelab("mrc", "random:size=16MiB,accesses=60K", "-m", "kabylake-7700hq", *arguments)
        assert process.returncode == 0, process.stderr
        assert all(len(line) <= 80 for line in process.stdout.splitlines()), process.stdout
        assert "data TLB" in process.stdout
        assert "data cache" in process.stdout
    tlb = process.stdout.partition("instruction TLB")[0]
    rows = dict(re.findall(r"^ *([\d,]+) +(\S+)", tlb, re.MULTILINE))
    curves = miss_ratio_curves("random:size=16MiB,accesses=60K")
    curve = curves.curve("data-tlb", "4KiB")
    assert float(rows["64"]) == pytest.approx(1000 * curve.misses[curve.at(64)] / curves.instructions, rel=0.01)
    assert re.search(r"^ *1,536 .* L2 4K\+2M$", tlb, re.MULTILINE)


def test_files_are_written(pagelab: Pagelab, tmp_path: Path) -> None:
    for suffix, begin in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        pytest.importorskip("matplotlib")
        arguments = ("mrc", "zipf:size=4MiB,accesses=20K", "--sample", "0.5", "--picture", f"out/a.{suffix}")
        assert pagelab(*arguments, "--json", "a.json").returncode == 0
        first = (tmp_path / "out" / f"a.{suffix}").read_bytes()
        assert first.startswith(begin)
        assert pagelab(*arguments).returncode == 0
        assert (tmp_path / "out" / f"a.{suffix}").read_bytes() == first
    printed = pagelab("mrc", "zipf:size=4MiB,accesses=20K", "--sample", "0.5", "--json", "-")
    assert printed.stdout == (tmp_path / "a.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nosuch"], ["nosuch"]),
        (["a/b"], ["neither a trace", "nor a workload spec"]),
        (["seq", "--sample", "2"], ["2 pages", "256"]),
        (["seq", "--sample", "0"], ["rate", "above 0"]),
        (["seq", "--sample", "few"], ["few", "count"]),
        (["seq", "--page-sizes", "5000"], ["5000 bytes", "powers of two"]),
        (["seq", "--page-sizes", "4KiB,x"], ["x"]),
        (["seq", "--page-sizes", "none", "--line-size", "none"], ["nothing to do"]),
        (["seq", "-m", "nosuch"], ["nosuch", "kabylake-7700hq"]),
        (["seq", "--picture", "a.gif"], ["a.gif", ".svg"]),
        (["seq", "--max", "0"], ["--max-accesses", "1 and more"]),
    ],
)
def test_mistakes_are_named(pagelab: Pagelab, arguments: list[str], parts: list[str]) -> None:
    assert_fails(pagelab("mrc", *arguments), 2, *parts)


def test_marks_are_those_of_the_preset() -> None:
    marks = {(mark.stream, mark.name): mark.entries for mark in marks_of("kabylake-7700hq")}
    assert marks["data-tlb", "L1 4K"] == 64
    assert marks["data-tlb", "L2 4K+2M"] == 1536
    assert marks["code-tlb", "L1 4K"] == 128
    assert marks["data-cache", "L3"] == 6 * 1024 * 1024 / 64


def test_sizes_are_written_with_prefixes() -> None:
    assert [size_text(size) for size in (64, 1536, 4 << 20, 3 << 40)] == ["64 B", "1.5 KiB", "4 MiB", "3 TiB"]


def test_the_sample_that_a_sample_asks_for_is_as_good_as_it_says() -> None:
    marks = marks_of(None)

    def quality(pages: int) -> SampleQuality:
        sizes = [mark.entries for mark in marks]
        curves = miss_ratio_curves(
            "gups:size=256MiB,updates=500K", page_sizes=["4KiB"], line_size=None, sample=pages, sizes=sizes
        )
        quality = sample_quality(curves, marks)
        assert quality is not None
        return quality

    small = quality(400)
    assert small.is_too_small
    assert small.error is not None
    assert small.error > TOO_MUCH
    for wanted in (0.1, 0.05, 0.02):
        error = quality(small.pages(wanted)).error
        assert error is not None
        assert error == pytest.approx(wanted, rel=0.4), small.pages(wanted)
    # All pages are no sample.
    assert small.pages(1e-9) <= 1.1 * 65536


def test_a_sample_that_is_too_small_is_a_warning(pagelab: Pagelab) -> None:
    arguments = ("mrc", "gups:size=256MiB,updates=200K", "--page-sizes", "4KiB", "--line-size", "none", "-q")
    process = pagelab(*arguments, "--sample", "0.005")
    assert process.returncode == 0
    assert process.stderr.startswith("pagelab: warning: the sample is too small")
    assert "--sample" in process.stderr
    large = pagelab(*arguments, "--sample", "20K")
    assert (large.returncode, large.stderr) == (0, "")
    assert "\nFor a smaller error, about: --sample " in large.stdout
    assert "--sample" not in pagelab(*arguments).stdout
