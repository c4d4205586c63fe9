"""The runs of `pagelab linux test` without a kernel: what the folder holds, how runs are judged, what is built."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import linux_texts as texts
import pytest
from conftest import ROOT

from pagelab import UsageError
from pagelab_linux import LinuxError, bench, suite
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.guest import Machine
from pagelab_linux.initramfs import programs
from pagelab_linux.layout import Layout, layout, prune
from pagelab_linux.report import Console, parse


@pytest.fixture
def folder(tmp_path: Path) -> Layout:
    shutil.copytree(ROOT / "packages/linux/pagelab_linux/kernel", tmp_path / "linux")
    return Layout(tmp_path / "linux")


def test_the_suite_and_the_benchmarks_can_be_read() -> None:
    assert suite.load(layout())
    settings, workloads = bench.load(layout())
    assert settings[0].name == "plain"
    assert {workload.step.partition(",")[0] for workload in workloads} <= programs(layout())
    for setting in settings:
        Machine().command(Path("k"), Path("i"), [*setting.before, *setting.after])


def test_files_of_ours_have_their_places(folder: Layout) -> None:
    for path in list((folder.folder / "src").rglob("*")):
        if path.is_file():
            path.unlink()
    for name in ("include/pagelab.h", "cache.c", "Makefile", ".cache.c.swp", "include/trace/events/pagelab.h"):
        (folder.folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.folder / "src" / name).write_text(name)
    assert set(folder.added()) == {
        "include/linux/pagelab.h",
        "mm/pagelab/cache.c",
        "mm/pagelab/Makefile",
        "include/trace/events/pagelab.h",
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('steps = ["matrix,200"]', 'steps = ["matrx,200"]', "no program matrx; did you mean matrix? there are "),
        ('steps = ["matrix,200"]', 'step = ["matrix,200"]', "nothing is called step; a run has name, steps"),
        ('steps = ["matrix,200"]', "steps = [200]", "steps as a list of texts"),
        ('name = "matrix"', 'name = "touch"', "touch: each run must have a name of its own"),
        ('accelerator = "icount"', 'accelerator = "icont"', "give icount, tcg, kvm"),
        ('expect = "report"', 'expect = "reports"', "expect is pass, fail, report, not reports"),
        ('kernels = ["plain", "patched"]', 'kernels = ["plane"]', "kernels are plain and patched"),
        ("[[run]]", "[[runs]]", "not runs"),
        ("[[run]]", "[[run", "suite.toml: "),
    ],
)
def test_a_wrong_suite_is_refused(folder: Layout, old: str, new: str, words: str) -> None:
    path = folder.tests / "suite.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(f"\n{old}", f"\n{new}", 1))
    with pytest.raises(LinuxError) as error:
        suite.load(folder)
    assert words in str(error.value)


def test_a_wrong_series_is_refused(folder: Layout) -> None:
    path = folder.folder / "series.toml"
    path.write_text(path.read_text().replace("version =", "verion ="))
    with pytest.raises(LinuxError, match=r"series.toml: verion, version: it must have the texts package, version"):
        folder.series()


RUN = suite.Run("a", ["touch,random,64"])


def test_a_mistake_on_purpose_must_be_noticed() -> None:
    wrong = replace(RUN, expect="fail")
    assert not list(suite.judge(wrong, [parse(f"{texts.BOOT}{texts.TOUCH}{texts.KASAN}{texts.END}")]))
    failed = texts.TOUCH.replace("status=0", "status=1")
    assert not list(suite.judge(wrong, [parse(f"{texts.BOOT}{failed}{texts.END}")]))
    for status in ("status=0", "status=2", "status=4"):
        unseen = texts.TOUCH.replace("status=0", status)
        problems = list(suite.judge(wrong, [parse(f"{texts.BOOT}{unseen}{texts.END}")]))
        assert problems[0].startswith("a deliberate mistake was not detected"), status
    unprepared = f"{texts.BOOT}PAGELAB begin 1 write,/nothing,1\nPAGELAB end 1 status=1\n{texts.TOUCH}{texts.END}"
    assert list(suite.judge(wrong, [parse(unprepared)]))
    assert list(suite.judge(replace(wrong, expect="report"), [parse(f"{texts.BOOT}{failed}{texts.END}")]))


def test_runs_that_differ_are_a_problem() -> None:
    one = parse(f"{texts.BOOT}{texts.TOUCH}{texts.END}")
    other = parse(f"{texts.BOOT}{texts.TOUCH.replace('38000000', '38000001')}{texts.END}")
    assert not list(suite.judge(RUN, [one, one]))
    assert list(suite.judge(RUN, [one, other])) == [
        "touch,random,64: ticks=38000000 the first time and 38000001 afterwards"
    ]


def test_values_must_be_what_the_suite_says() -> None:
    outputs = [parse(f"{texts.BOOT}{texts.TOUCH}{texts.END}")]
    assert not list(suite.judge(replace(RUN, values={"faults": "16384"}), outputs))
    problems = list(suite.judge(replace(RUN, values={"faults": "9"}), outputs))
    assert problems == ["touch,random,64: faults=16384 and not 9"]


def test_steps_that_were_not_run_are_a_problem() -> None:
    more = replace(RUN, steps=[*RUN.steps, "matrix,9"])
    assert list(suite.judge(more, [parse(f"{texts.BOOT}{texts.TOUCH}{texts.END}")])) == ["1 of 2 steps were run"]


def test_each_kernel_is_built_once() -> None:
    both = replace(RUN, name="b", kernels=("plain", "patched"), levels=(4, 5))
    cases = suite.cases([RUN, both], [], has_changes=True, debug=False, quick=False)
    assert [case.variant.plain for case in cases] == [True, True, False, False, False]
    alone = suite.cases([RUN, both], [], has_changes=False, debug=True, quick=False)
    assert {case.variant for case in alone} == {Variant(plain=True, debug=True)}
    checked = suite.cases([RUN, both], [], has_changes=True, debug=True, quick=False)
    assert {case.variant for case in checked} == {Variant(plain=False, debug=True)}
    quick = suite.cases([RUN, both], [], has_changes=True, debug=False, quick=True)
    assert {case.variant for case in quick} == {Variant(plain=False)}
    only = replace(RUN, name="c", lean=False)
    assert {case.run.name for case in suite.cases([RUN, only], [], has_changes=True, debug=False, quick=False)} == {"a"}
    with pytest.raises(UsageError, match="no run c; there are a, b"):
        suite.cases([RUN, both], ["c"], has_changes=True, debug=False, quick=False)


def test_images_are_told_apart(tmp_path: Path) -> None:
    assert Variant(plain=True, debug=True).name == "plain-debug"
    assert Image(tmp_path, Variant()).kernel == tmp_path / "bzImage"


def test_only_what_a_compiler_reads_makes_another_kernel(folder: Layout, tmp_path: Path) -> None:
    workshop = Workshop.from_layout(folder, tmp_path / "work", lambda _: None)

    def key() -> str:
        return workshop.key(folder.series(), Variant())

    before = key()
    with (folder.folder / "src" / "Documentation-pagelab.rst").open("a") as file:
        file.write("more\n")
    assert key() == before
    with (folder.folder / "src" / "rings.h").open("a") as file:
        file.write("/* more */\n")
    assert key() != before
    assert workshop.key(folder.series(), Variant(plain=True)) != key()


def test_kernels_are_there_before_the_first_run(
    folder: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []

    def image(_: Workshop, variant: Variant) -> Image:
        did.append(f"build {variant.name}")
        return Image(tmp_path, variant)

    def boot(*_: object) -> Console:
        did.append("run")
        return parse(f"{texts.BOOT}{texts.TOUCH}{texts.END}")

    monkeypatch.setattr(Workshop, "image", image)
    monkeypatch.setattr(suite, "initramfs", lambda *_: tmp_path / "initramfs")
    monkeypatch.setattr(suite, "run", boot)
    both = replace(RUN, kernels=("plain", "patched"))
    wanted = suite.cases([both], [], has_changes=True, debug=False, quick=False)
    verdicts = suite.carry_out(Workshop.from_layout(folder, tmp_path / "work", lambda _: None), wanted)
    assert did == ["build plain", "build patched", "run", "run"]
    assert not any(verdict.problems for verdict in verdicts)


def test_only_what_was_not_used_for_a_day_is_removed(tmp_path: Path) -> None:
    used = [tmp_path / name for name in ("now", "an-hour-ago", "two-days-ago", "a-week-ago")]
    for path, hours in zip(used, (0, 1, 48, 168), strict=True):
        path.mkdir()
        (path / "bzImage").touch()
        os.utime(path, (time.time() - hours * 3600,) * 2)
    prune(tmp_path.iterdir(), 1)
    assert sorted(tmp_path.iterdir()) == sorted(used[:2])
    prune(tmp_path.iterdir(), 0)
    assert len(list(tmp_path.iterdir())) == 2
