"""Sampled replay: what it measures, what it says of it, and what it refuses."""

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

import pagelab as package
from pagelab.capture.length import Length
from pagelab.cli.run import show
from pagelab.results.request import Request
from pagelab.results.results import Results
from pagelab.results.windows import FEW_WINDOWS, Figure, Sample, digits, figures

_GUPS = "gups:size=16MiB,updates=300K,seed=1"
_WINDOWS = "every=20K,length=2K,warm=10K"


def test_rates_lie_in_their_intervals_and_faults_are_exact() -> None:
    whole = package.run(_GUPS)["radix"]
    expected = {figure.name: figure.value for figure in figures([whole.stats])}
    held = dict.fromkeys(expected, 0)
    for seed in range(1, 11):
        result = package.run(_GUPS, sample=_WINDOWS, seed=seed)["radix"]
        assert result.stats["program.fault.minor.count"] == whole.stats["fault.minor.count"]
        assert len(result.windows) >= 80
        for figure in result.figures():
            assert figure.half_width is not None
            assert figure.longer is not None
            held[figure.name] += abs(figure.value - expected[figure.name]) <= figure.half_width
    # Cycles of faults come in bursts, so those figures' intervals are wide.
    assert held["L2 TLB misses per 1,000 instructions"] >= 8, held
    assert held["walks per 1,000 instructions"] >= 8, held
    assert whole.sample is None
    assert not whole.figures()


def test_windows_that_leave_nothing_out_count_what_the_whole_run_does() -> None:
    whole = package.run(_GUPS)["radix"].stats
    result = package.run(_GUPS, sample="every=20K,length=20K")["radix"]
    assert len(result.windows) >= 80
    for name in ("instructions", "accesses", "walk.count", "walk.cycles", "l3.misses", "fault.minor.count"):
        assert result.stats[name] == whole[name], name


def test_a_saved_sample_is_a_trace_that_says_what_it_is(pagelab: Pagelab, tmp_path: Path) -> None:
    run = pagelab("trace", "sample", _GUPS, "-o", "gups.trace", "--sample", _WINDOWS, "--seed", "3", "-q")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("gups.trace: ")
    saved = package.run(tmp_path / "gups.trace")["radix"]
    sampled = package.run(_GUPS, sample=_WINDOWS, seed=3)["radix"]
    assert saved.stats == sampled.stats
    assert (saved.windows, saved.sample) == (sampled.windows, sampled.sample)
    assert [str(figure) for figure in saved.figures()] == [str(figure) for figure in sampled.figures()]
    assert saved.sample is not None
    info = pagelab("trace", "info", "gups.trace")
    assert "instructions but for first and last touches" in info.stdout
    assert f"every=20000,length=2000,warm=10000,offset={saved.sample.offset}" in " ".join(info.stdout.split())
    shown = pagelab("run", "gups.trace")
    assert "The figures cover " in shown.stdout
    assert "2,000-instruction windows, one in each 20,000 after 10,000 that warm up" in shown.stdout
    assert_fails(pagelab("trace", "sample", _GUPS, "-o", "gups.trace", "--sample", _WINDOWS), 2, "not empty")
    again = pagelab("trace", "sample", "gups.trace", "-o", "b.trace", "--sample", _WINDOWS)
    assert_fails(again, 2, "stretches of it were skipped")
    assert not (tmp_path / "b.trace").exists()
    assert_fails(pagelab("trace", "sample", "seq:size=64KiB", "-o", "b.trace"), 2, "too few for 30 windows")
    assert_fails(pagelab("trace", "sample", _GUPS, "-o", "b.trace", "--sample", "every=5"), 2, "length is missing")
    done = package.save_sample(_GUPS, tmp_path / "c.trace", sample=_WINDOWS, max_accesses="100K")
    assert (done.read, done.stretches.windows) == (100_000, len(package.run(done.path)["radix"].windows))
    # How long the program is nobody knows then.
    lengths = [Length.from_info(package.trace_info(path)) for path in (tmp_path / "gups.trace", done.path)]
    assert [length.known for length in lengths] == [True, False]
    assert lengths[1].instructions == done.stretches.program_instructions
    assert lengths[1].of_replayed(10) is None
    assert lengths[1].of_traced(10) == lengths[1].instructions / 10
    assert "Use a longer every=" in run.stdout
    seq = pagelab("trace", "sample", "seq:size=64KiB,accesses=2M", "-o", "d.trace", "--sample", "every=20K,length=200")
    assert seq.stdout.startswith("d.trace: ")
    assert "helps" not in seq.stdout


def test_results_keep_how_the_source_was_sampled() -> None:
    results = package.run(_GUPS, sample=_WINDOWS, threads=1)
    text = results.to_json()
    assert package.run(_GUPS, sample=_WINDOWS, threads=2).to_json() == text
    sample = Results.from_json(text)["radix"].sample
    assert sample is not None
    assert (sample.every, sample.length, sample.warm, sample.longer_warm) == (20_000, 2_000, 10_000, 40_000)
    assert sample.longer == tuple(range(4, len(results["radix"].windows), 8))
    assert results["radix"].config["engine"]["sample"] == "every=20000,length=2000,warm=10000"
    assert results.request is not None
    assert results.request.sample == _WINDOWS
    assert results.request.again() == f"pagelab run {_GUPS} -s radix --sample {_WINDOWS}"
    assert "sample" not in json.loads(package.run("seq:size=64KiB").to_json())["results"][0]["config"]["engine"]


def test_windows_by_the_length_are_enough() -> None:
    result = package.run("gups:size=16MiB,updates=1M", sample=True)["radix"]
    assert len(result.windows) >= 30
    assert result.sample is not None
    assert result.config["engine"]["sample"] == f"every={result.sample.every},length={result.sample.length},warm=500"
    assert not result.warnings


def test_the_command_says_what_windows_say(pagelab: Pagelab) -> None:
    run = pagelab("run", _GUPS, "--sample", _WINDOWS, "-s", "radix", "-s", "radix-2m")
    assert run.returncode == 0, run.stderr
    (heading,) = [line for line in run.stdout.splitlines() if line.startswith("The figures cover")]
    assert "2,000-instruction windows, one in each 20,000 after 10,000 that warm up, with 95 % intervals" in heading
    lines = run.stdout.splitlines()
    assert lines[lines.index(heading) + 2].split() == ["radix", "radix-2m"]
    assert re.match(r"cycles per instruction +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+$", lines[lines.index(heading) + 3])
    (longer,) = [at for at, line in enumerate(lines) if "4 times as long differ from the others by" in line]
    assert lines[longer + 2].split() == ["radix", "radix-2m"]
    assert re.match(r"cycles per instruction( +[-+][\d.,]+ ± [\d.,]+ %){2}$", lines[longer + 3])
    assert max(map(len, lines[longer + 1 :])) < 120
    cold = pagelab("run", _GUPS, "--sample", "every=100K,length=2K")
    assert "the sample's windows begin with TLBs and caches filled only by first touches" in cold.stderr
    assert "too few for reliable intervals" in cold.stderr
    assert f"for at least {FEW_WINDOWS} windows" in cold.stderr
    assert "differ from the others" not in cold.stdout


def test_numbers_have_no_powers_of_ten() -> None:
    assert digits(312.4, 2) == "310"
    assert digits(312.4, 2, "+") == "+310"
    assert digits(-54_321.0, 4) == "-54,320"
    assert digits(1.5, 4) == "1.5"
    assert str(Figure("", 123_456.0, 4321.0)) == "123,500 ± 4,300"


def test_what_cannot_be_is_refused_with_the_reason(pagelab: Pagelab, tmp_path: Path) -> None:
    for options, what in (
        (["--sample", "every=1K,length=2K"], "longer than its period"),
        (["--sample", "often"], "`often` is not known here"),
        (["--sample", "auto", "--max-accesses", "10K"], "too few for 30 windows"),
        (["--sample", _WINDOWS, "--warm-up", "1K"], "omit the warm-up of the run"),
        (["--sample", _WINDOWS, "--with", _GUPS], "replay only one source"),
        (["--sample", _WINDOWS, "--faults", "x.faults"], "fault trace of the whole source"),
        (["--sample", _WINDOWS, "--live"], "--windows skips while it records"),
    ):
        assert_fails(pagelab("run", *options, "--", _GUPS), 2, what)
    assert not list(tmp_path.iterdir())


def test_a_request_with_a_profile_is_made_again_by_a_command() -> None:
    asked = {"sources": ["seq"], "systems": ["radix"], "profile": True, "sample": "auto"}
    assert Request.from_document(asked).again() == "pagelab run seq -s radix --sample auto --profile"


def test_a_longer_warm_up_is_told_apart_when_it_matters() -> None:
    draw = random.Random(2)

    def windows(cold: float) -> list[dict[str, int]]:
        return [
            {"cycles": round(1000 * draw.gauss(2 + (0 if number % 8 == 4 else cold), 0.1)), "instructions": 1000}
            for number in range(80)
        ]

    significant = 0
    for _ in range(500):
        (figure,) = figures(windows(0), range(4, 80, 8))
        assert figure.longer is not None
        significant += abs(figure.longer.difference) > figure.longer.half_width
    assert significant / 500 == pytest.approx(0.05, abs=0.03)
    (figure,) = figures(windows(0.5), range(4, 80, 8))
    assert figure.longer is not None
    assert figure.longer.difference == pytest.approx(-0.5, abs=0.2)
    assert abs(figure.longer.difference) > figure.longer.half_width


@pytest.mark.skipif(not shutil.which("valgrind") or not shutil.which("gcc"), reason="needs valgrind, gcc")
def test_windows_are_those_of_a_recording(tmp_path: Path) -> None:
    (tmp_path / "walk.c").write_text(
        "#include <stdlib.h>\n"
        "int main(void) {\n"
        "    volatile char *memory = malloc(2000 * 4096L);\n"
        "    for (long i = 0; i < 300000; i++) memory[i * 7 % (2 + i / 150) * 4096]++;\n"
        "    return 0;\n"
        "}\n"
    )
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "walk", tmp_path / "walk.c"], check=True)
    windows = "every=50K,length=5K,warm=5K,offset=20K"
    package.record([tmp_path / "walk"], tmp_path / "whole.trace")
    package.record([tmp_path / "walk"], tmp_path / "parts.trace", stretches=package.Stretches(windows=windows))
    recorded = package.run(tmp_path / "parts.trace")["radix"]
    sampled = package.run(tmp_path / "whole.trace", sample=windows)["radix"]
    assert sampled.sample is not None
    assert len(sampled.windows) == len(recorded.windows) >= 30
    assert sampled.stats["program.fault.minor.count"] == recorded.stats["program.fault.minor.count"]
    for number, (of_sample, of_recording) in enumerate(zip(sampled.windows, recorded.windows, strict=True)):
        # A recorded window ends with a segment of code, and one of a sample with an access.
        assert of_sample["instructions"] == pytest.approx(of_recording["instructions"], abs=60)
        if number not in sampled.sample.longer:
            assert of_sample["walk.count"] == pytest.approx(of_recording["walk.count"], abs=20)
    with pytest.raises(package.UsageError, match="stretches of it were skipped when it was recorded"):
        package.run(tmp_path / "parts.trace", sample=windows)


def test_a_sample_is_described() -> None:
    sample = Sample(every=1000, length=100, warm=0, offset=5, longer_warm=0, longer=())
    assert sample.describe(3) == "3 100-instruction windows, one in each 1,000"


def test_results_of_samples_are_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    show(Results.from_json(package.run(_GUPS, sample=_WINDOWS).to_json()))
    assert "2,000-instruction windows" in capsys.readouterr().out
