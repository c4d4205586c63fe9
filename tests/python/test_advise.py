"""Advice: programs whose answer is clear are told it, and those that nothing helps are told that."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import COMMAND, Pagelab, assert_fails, needs_recorder

import pagelab as package
from pagelab.advice import (
    Advice,
    Checked,
    Choice,
    Length,
    Subject,
    Unchecked,
    advice_of,
    choose,
    document_of,
    replay,
    words,
)
from pagelab.advice import trials as trials_module
from pagelab.advice.estimate import Estimate
from pagelab.advice.gains import Bar, Estimates, Gain, paging_shares, walk_shares
from pagelab.report.parts import Listing, plain
from pagelab.results.headline import busy_cycles
from pagelab.results.results import SystemResult
from pagelab.results.table import cut_in_the_middle

# Two mappings, of which the first gets nine accesses of ten; then one page over and over; or a page in each 2 MiB.
_PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile char *map(size_t mebibytes, int advise) {
    size_t huge = 2 << 20, bytes = mebibytes << 20;
    char *at = mmap(0, bytes + 16 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = (char *)(((uintptr_t)at + huge - 1) & -huge);
    if (advise)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static void chase(volatile char *at, size_t bytes, long accesses) {
    uint64_t state = 1;
    for (long i = 0; i < accesses; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        at[(state >> 20) % bytes]++;
    }
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "chase") || !strcmp(argv[1], "advised")) {
        int advise = argv[1][0] == 'a';
        volatile char *first = map(16, advise), *second = map(16, advise);
        chase(first, 16 << 20, 90000);
        chase(second, 16 << 20, 10000);
    } else if (!strcmp(argv[1], "sparse")) {
        volatile char *at = map(64, 0);
        for (long round = 0; round < 200; round++)
            for (long i = 0; i < 32; i++)
                at[i << 21]++;
    } else if (!strcmp(argv[1], "endless")) {
        for (volatile char *at = map(2, 0);; puts("round"), fflush(stdout))
            chase(at, 4096, 1000);
    } else {
        chase(map(2, 0), 4096, 2000000);
    }
    puts("done");
    return atoi(argv[2]);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(_PROGRAM)
    subprocess.run(["gcc", "-O1", "-g", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def _of(program: Path, what: str, folder: Path, *, nested: bool = False) -> Advice:
    package.record([program, what, "0"], folder / f"{what}.trace")
    choice = Choice("kabylake-7700hq", "", "linux-6.12", nested)
    return advice_of(what, replay(folder / f"{what}.trace", choice))


def _gains(advice: Advice) -> dict[str, Any]:
    return {gain.key: gain for gain in advice.remedies + advice.changes}


@needs_recorder
def test_huge_pages_are_advised_for_the_mapping_that_pays(program: Path, tmp_path: Path) -> None:
    advice = _of(program, "chase", tmp_path)
    huge = _gains(advice)["huge"]
    assert huge.is_worth_it
    assert 0.1 < huge.saved.low < huge.saved.high < 0.99
    first, second = advice.mappings[:2]
    assert first.row["walks"] > 5 * second.row["walks"]
    assert first.of_gain > second.of_gain > 0
    assert sum(mapping.of_gain for mapping in advice.mappings) == pytest.approx(1)
    page = words.page(advice)
    assert "huge pages (2 MiB) for all anonymous memory: −" in page
    assert f"anonymous memory at {first.row['start']:#x}, accounts for" in page
    assert "glibc.malloc.hugetlb=1" in page
    assert "MADV_HUGEPAGE" in page
    chase = next(line for line in _PROGRAM.splitlines() if "% bytes" in line)
    assert f"program.c:{_PROGRAM.splitlines().index(chase) + 1}" in page
    assert re.search(r"^chase +program\.c:", page, re.MULTILINE)


@needs_recorder
def test_a_program_that_follows_the_advice_is_told_nothing_more(program: Path, tmp_path: Path) -> None:
    advice = _of(program, "advised", tmp_path)
    assert advice.asks
    assert not advice.worth_it
    page = words.page(advice)
    assert "No change is worth making" in page
    assert "asks for huge pages itself" in " ".join(page.split())
    assert "What helps" not in page
    assert not {"folios", "populate"} & set(_gains(advice))


@needs_recorder
def test_nothing_is_advised_where_paging_costs_nothing(program: Path, tmp_path: Path) -> None:
    advice = _of(program, "still", tmp_path)
    assert not advice.worth_it
    assert not advice.asks
    page = words.page(advice)
    assert "No change is worth making" in page
    assert "Where the cost is" not in page
    assert "hugetlb" not in page


@needs_recorder
def test_memory_that_huge_pages_waste_is_told(program: Path, tmp_path: Path) -> None:
    advice = _of(program, "sparse", tmp_path)
    huge = _gains(advice)["huge"]
    # A page of 2 MiB instead of each of 32 of 4 KiB; the heap and the stack add little.
    assert 31 * (2 << 20) < huge.added_bytes < 36 * (2 << 20)
    assert huge.memory_ratio > 10
    assert not huge.is_worth_it
    assert re.search(r"slower: .*huge pages .* MiB of memory \(×", words.page(advice).replace("\n", " "))


def test_a_virtual_machine_costs_more_and_its_host_may_help() -> None:
    source = "gups:size=64MiB,updates=300K"
    native, nested = (
        advice_of(source, replay(source, Choice("kabylake-7700hq", "", None, nested))) for nested in (False, True)
    )
    assert _gains(native)["elsewhere"].is_lost
    assert _gains(nested)["elsewhere"].helps
    assert not nested.asks, "the host's huge pages are not the program's"
    assert not {"small-host", "cold"} & set(_gains(native))
    # A host with small pages costs more, and so does one that has no frames yet.
    assert _gains(nested)["small-host"].is_lost
    assert _gains(nested)["cold"].is_lost
    huge = _gains(nested)["huge"].saved
    assert nested.huge_when_cold
    assert nested.huge_when_cold.low < huge.high
    assert nested.seconds > native.seconds
    assert "In a virtual machine, the time of the unchanged program" in " ".join(words.page(native).split())
    page = words.page(nested)
    assert "Outside a virtual machine, the time of the unchanged program" in " ".join(page.split())
    assert "for all programs, in the guest, as root: " in page
    assert "Assumed: a virtual machine" in page
    assert "--no-nested replays without" in " ".join(page.split())
    assert "On a host that backs the guest with pages of 4 KiB" in " ".join(page.split())
    assert "In a guest that has just booted, first touches also fault" in " ".join(page.split())
    assert "Assumed: no virtual machine" in words.page(native)


def test_translation_takes_no_less_than_remedies_save() -> None:
    as_is = {"cycles": 1000, "cycles.fault": 100, "cycles.translation": 20}
    # Of 450 cycles 50 are of page faults.
    saved = {"cycles": 550, "cycles.fault": 50, "cycles.translation": 0}
    in_order = {"cycles": 2000, "cycles.fault": 100, "cycles.translation": 500}

    def shares(*stats: dict[str, int]) -> list[float]:
        """Of translation and of paging, on a core with a window and on the in-order one."""

        def estimates(statistics: Sequence[dict[str, int]]) -> dict[str, Estimate]:
            results = [cast("SystemResult", SimpleNamespace(stats=stats)) for stats in statistics]
            return dict(zip(("base", "huge", "elsewhere"), map(Estimate.from_result, results), strict=True))

        both = Estimates(estimates(stats), estimates([in_order] * 3))
        return [*walk_shares(both), *paging_shares(both)]

    assert shares(as_is, saved, as_is) == pytest.approx([0.4, 0.25, 0.5, 0.3])
    # Stalls that say more stay, and another place is no remedy.
    assert shares(as_is | {"cycles.translation": 600}, saved, as_is) == pytest.approx([0.6, 0.25, 0.7, 0.3])
    assert shares(as_is, as_is, saved) == pytest.approx([0.02, 0.25, 0.12, 0.3])


def test_a_larger_tlb_helps_where_it_reaches() -> None:
    # 16 MiB are 4,096 pages: more than the 1,536 of the preset's TLB, and fewer than four times as many.
    reached, beyond = (
        advice_of("", replay(f"gups:size={size},updates=300K", Choice("kabylake-7700hq", "", None, nested=False)))
        for size in ("16MiB", "512MiB")
    )
    base, larger = (reached.trials.pair(key)[0]["walk.count"] for key in ("base", "tlb"))
    assert larger < base / 5
    base, larger = (beyond.trials.pair(key)[0]["walk.count"] for key in ("base", "tlb"))
    assert larger > base * 0.8


def test_bars_hold_both_cores_and_a_fifth_of_their_cycles() -> None:
    # Of 100 cycles, 10 or 50 are saved; 8 of 98, and 60 of 110.
    bar = Bar.of_gains([0.5, 0.1])
    assert bar.low == pytest.approx(8 / 98)
    assert bar.high == pytest.approx(60 / 110)
    lost = Bar.of_gains([-0.1, -0.5])
    assert lost.low == pytest.approx(-0.6)
    assert lost.high == pytest.approx(-0.08)
    assert Bar.of_gains([0.99]).high < 1
    assert Bar.of_gains([0.0]) == Bar(0.0, 0.0)
    assert Bar.around([0.3, 0.2]) == Bar(0.2, 0.3)


def test_a_gain_is_worth_a_word_above_a_hundredth_and_a_millisecond() -> None:
    def gain(low: float, high: float, seconds: float | None) -> Gain:
        return Gain("huge", Bar(low, high), seconds, 0, 1.0)

    assert gain(0.011, 0.3, 0.0011).is_worth_it
    assert not gain(0.009, 0.3, 1.0).is_worth_it
    assert not gain(0.2, 0.3, 0.0009).is_worth_it
    assert gain(0.2, 0.3, 0.0009).helps
    assert not gain(0.009, 0.3, 1.0).helps
    # Of a program that was ended nobody knows how long it is.
    assert gain(0.2, 0.3, None).is_worth_it
    assert gain(-0.3, -0.011, -1.0).is_lost
    assert not gain(-0.3, -0.009, -1.0).is_lost


@pytest.fixture(scope="module")
def advice() -> Advice:
    source = "gups:size=16MiB,updates=20K"
    return advice_of(source, replay(source, Choice("kabylake-7700hq", "", None, nested=False)))


def _huge(low: float, high: float, seconds: float) -> Gain:
    return Gain("huge", Bar(low, high), seconds, 0, 1.0)


def _page(advice: Advice, measured: Checked | Unchecked | None = None) -> str:
    return " ".join(words.page(advice, measured).split())


def test_a_run_that_only_starts_says_so_first(advice: Advice) -> None:
    assert "most of it for starting up. The figures below say little" in _page(replace(advice, program_seconds=0.0002))
    assert "starting up" not in _page(replace(advice, program_seconds=0.002))


def test_a_run_that_is_too_short_is_told_what_would_help_a_longer_one(advice: Advice) -> None:
    short = replace(advice, remedies=(_huge(0.34, 0.48, 0.00095),), program_seconds=0.0028)
    page = _page(short)
    assert "which is too short: it takes only 2.8 ms of simulated time" in page
    assert "would save 0.95 ms or more (−48 to −34 % of the time)" in page
    assert "What would help a longer run" in page
    assert "glibc.malloc.hugetlb=1" in page
    assert "errors of the estimate" not in page
    assert "may or may not help" not in page
    assert [remedy["helps"] for remedy in document_of(short)["remedies"]] == [True]
    assert [remedy["worth_it"] for remedy in document_of(short)["remedies"]] == [False]
    longer = replace(short, remedies=(_huge(0.34, 0.48, 0.0095),))
    assert "What helps" in _page(longer)
    assert "too short" not in _page(longer)


def test_what_helps_less_than_the_best_helps_too(advice: Advice) -> None:
    folios = replace(_huge(0.2, 0.3, 0.0008), key="folios")
    both = replace(advice, remedies=(_huge(0.34, 0.48, 0.0011), folios))
    assert [gain.key for gain in both.worth_it] == ["huge", "folios"]
    assert [remedy["worth_it"] for remedy in document_of(both)["remedies"]] == [True, True]


def test_the_whole_program_counts_by_its_instructions(advice: Advice) -> None:
    assert Length().of_replayed(100) == 1
    assert Length(4000).of_replayed(100) == 40
    assert Length(99).of_replayed(100) == 1
    assert Length(4000, known=False).of_replayed(100) is None
    replayed = advice.base.stats["instructions"]
    whole = advice_of("", advice.trials, Length(40 * replayed))
    assert whole.seconds == advice.seconds
    assert whole.program_seconds == pytest.approx(40 * advice.seconds)
    for gain, other in zip(whole.remedies, advice.remedies, strict=True):
        assert gain.saved_seconds == pytest.approx(40 * (other.saved_seconds or 0))
    assert "of about" in _page(whole)
    assert "of about" not in _page(advice)
    ended = advice_of("", advice.trials, Length(known=False))
    assert "until the program was stopped" in _page(ended)
    assert {gain.saved_seconds for gain in ended.remedies} == {None}


def test_advice_is_kept_if_it_cannot_be_checked(advice: Advice) -> None:
    unchecked = Unchecked("it ends too soon")
    page = _page(advice, unchecked)
    assert "Could not be checked: it ends too soon" in page
    assert "Paging takes" in page
    document = document_of(advice, unchecked)
    assert (document["measured"], document["not_checked"]) == (None, "it ends too soon")


@pytest.mark.parametrize("nested", [False, True])
def test_replays_are_named_by_what_is_tried(nested: bool) -> None:
    names = set()
    trials = replay(
        "gups:size=1MiB,updates=1K",
        Choice("kabylake-7700hq", "", None, nested),
        progress=lambda name, *_: names.add(name),
    )
    tried = ["as it is", "huge pages", "folios of 32 KiB", "populated when mapped", "TLB of 4 times the entries"]
    if nested:
        tried += ["host with pages of 4 KiB", "huge pages, host with pages of 4 KiB"]
        tried += ["guest just booted", "huge pages, guest just booted"]
    elsewhere = ["in a virtual machine", "in a virtual machine, host with pages of 4 KiB"]
    tried += ["no virtual machine"] if nested else elsewhere
    assert [system.label for system in trials.window.systems] == tried
    number = 2 * len(tried)
    wanted = [
        *(f"{trial}, core that waits" for trial in tried),
        *(f"{trial}, core that overlaps accesses" for trial in tried),
    ]
    assert names == {f"replay {at} of {number}: {trial}" for at, trial in enumerate(wanted, 1)}


def test_tables_hold_a_hundred_columns_whatever_symbols_they_have() -> None:
    symbol = "std::_Rb_tree<" + "std::pair<const long, std::vector<double>>, " * 8 + ">::_M_insert_(Base*, int)"
    listing = Listing(("code", "line", "walks"), 2, [(symbol, "a.cpp:3", "12"), ("main", "b" * 90 + ".cpp:7", "9.5k")])
    lines = plain([listing]).splitlines()
    assert max(map(len, lines)) == 100
    assert lines[1].startswith("std::_Rb_tree<")
    assert "…" in lines[1]
    assert "_M_insert_(Base*, int)" in lines[1]
    assert lines[1].endswith(" 12")
    assert ".cpp:7" in lines[2]
    assert lines[2].endswith("9.5k")
    # What fits stays.
    short = plain([Listing(("code", "walks"), 1, [("main", "12")])])
    assert short == "code  walks\nmain     12\n"
    assert cut_in_the_middle("abcdefgh", 5) == "ab…gh"
    assert cut_in_the_middle("abcde", 5) == "abcde"


def test_an_imported_trace_says_what_it_is_and_what_is_assumed(tmp_path: Path, pagelab: Pagelab) -> None:
    lines = "".join(f"I  {0x4001000 + 3 * n:x},3\n L {0x1FFE000000 + 4096 * n:x},8\n" for n in range(500))
    (tmp_path / "c.lackey").write_text(lines)
    package.import_trace(tmp_path / "c.lackey", tmp_path / "c.trace")
    done = pagelab("advise", "-q", "c.trace")
    assert done.returncode == 0, done.stderr
    page = " ".join(done.stdout.split())
    assert page.startswith("c.trace (imported from c.lackey) on ")
    assert "treats them as independent of each other" in page
    assert "too low" in page
    assert "unknown_dependencies" not in done.stdout + done.stderr


def test_the_machine_is_named_or_of_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = "Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz"
    named = choose("gem5-timing", None, nested=False, cpu_model=known)
    assert (named.machine, named.why_machine) == ("gem5-timing", "")
    preset = choose(None, None, nested=False, cpu_model=known)
    assert preset.machine == "xeon-silver-4114"
    assert known in preset.why_machine
    unknown = choose(None, None, nested=False, cpu_model="AMD EPYC 9999")
    assert unknown.machine == package.available("machines")[0]["name"]
    assert "no preset describes the AMD EPYC 9999" in unknown.why_machine
    (tmp_path / "this-machine.toml").touch()
    (tmp_path / "this-host.toml").touch()
    # What a calibration left in the folder is taken only if it is named.
    unnamed = choose(None, None, nested=False, cpu_model=known)
    assert (unnamed.machine, unnamed.kernel) == ("xeon-silver-4114", None)


def test_a_processor_that_contradicts_itself_chooses_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz"
    rows = ("vendor_id: GenuineIntel", "cpu family: 6", "model: 85", f"model name: {known}", "flags: avx512f amx_tile")
    text = "\n".join(rows)
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(trials_module, "_CPUINFO", tmp_path / "cpuinfo")
    doubted = choose(None, None, nested=False, cpu_model=known)
    assert doubted.machine == package.available("machines")[0]["name"]
    assert "model 85 of family 6, which has no amx_tile" in doubted.why_machine
    # Of a recording of another machine nothing is known but its name.
    (tmp_path / "cpuinfo").write_text(text.replace("4114", "4210"))
    assert choose(None, None, nested=False, cpu_model=known).machine == "xeon-silver-4114"


@pytest.mark.parametrize(
    ("nested", "virtualised", "chosen", "why"),
    [
        (None, True, True, "recorded in one"),
        (None, False, False, "recorded outside one"),
        (None, None, False, "it is unknown"),
        (False, True, False, ""),
        (True, False, True, ""),
    ],
)
def test_a_program_is_advised_for_where_it_was_recorded(
    nested: bool | None, virtualised: bool | None, chosen: bool, why: str
) -> None:
    choice = choose("gem5-timing", None, nested=nested, virtualised=virtualised)
    assert choice.nested is chosen
    assert why in choice.why_nested
    assert bool(choice.why_nested) is (nested is None)


@needs_recorder
def test_recordings_tell_whether_they_were_made_in_a_virtual_machine(
    program: Path, tmp_path: Path, pagelab: Pagelab
) -> None:
    package.record([program, "advised", "0"], tmp_path / "a.trace", max_accesses=20_000)
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags
    here = "hypervisor" in flags[1].split()
    about = tmp_path / "a.trace" / "trace.json"
    meta = json.loads(about.read_text())
    assert meta["host"]["virtualised"] is here
    for virtualised, options, assumed in [
        (True, [], "Assumed: a virtual machine, as the program was recorded in one"),
        (False, [], "Assumed: no virtual machine, as the program was recorded outside one"),
        (None, [], "Assumed: no virtual machine, as it is unknown where the program runs"),
        (True, ["--no-nested"], "Assumed: no virtual machine. --nested"),
        (False, ["--nested"], "Assumed: a virtual machine: "),
    ]:
        meta["host"]["virtualised"] = virtualised
        about.write_text(json.dumps(meta))
        done = pagelab("advise", "-q", *options, "a.trace")
        assert done.returncode == 0, done.stderr
        assert assumed in " ".join(done.stdout.split())


@needs_recorder
def test_the_command_records_writes_and_ends_as_the_program(program: Path, tmp_path: Path, pagelab: Pagelab) -> None:
    done = pagelab(
        "advise", "-q", "--json", "a.json", "-o", "a.html", "--keep", "kept.trace", "--", program, "chase", "3"
    )
    assert done.returncode == 3
    # The program's own output comes first.
    assert done.stdout.startswith("done\nprogram chase 3 on ")
    document = json.loads((tmp_path / "a.json").read_text())
    assert (document["version"], document["program"]) == (package.__version__, "program chase 3")
    assert next(remedy["name"] for remedy in document["remedies"] if remedy["worth_it"]) == "huge"
    page = (tmp_path / "a.html").read_text()
    # It makes its mappings itself.
    assert "MADV_HUGEPAGE" in page
    assert "GLIBC_TUNABLES" not in page
    assert page.index("<h1>Advice for program chase 3</h1>") < page.index("Where in memory and code")
    assert page.count("<h1>") == 1
    assert "<h3>huge pages (2 MiB) for all anonymous memory</h3>" in page
    assert "<h3>huge pages</h3>" in page
    # Terms are explained within the sentence.
    assert "on the core that overlaps accesses: there, paging takes " in re.sub(r"<[^>]*>", "", page)
    # The recording that was kept gets the same advice, whatever it is asked by.
    again = pagelab("advise", "-q", "--json", "-", "kept.trace")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == document


@needs_recorder
def test_windows_tell_of_the_whole_program(program: Path, tmp_path: Path, pagelab: Pagelab) -> None:
    done = pagelab(
        "advise", "-q", "--windows", "every=100K,length=20K,warm=20K", "--json", "a.json", "--", program, "chase", "0"
    )
    assert done.returncode == 0, done.stderr
    assert "recorded windows" in done.stdout
    assert "fewer than 30 give little information" in done.stdout
    document = json.loads((tmp_path / "a.json").read_text())
    whole = pagelab("advise", "-q", "--json", "b.json", "--", program, "chase", "0")
    assert whole.returncode == 0, whole.stderr
    other = json.loads((tmp_path / "b.json").read_text())
    # What faults zero and take is known outside of windows, too.
    added = [
        {remedy["name"]: remedy["added_bytes"] for remedy in document["remedies"]} for document in (document, other)
    ]
    assert added[0] == added[1]
    assert document["faults"]["count"] == other["faults"]["count"]
    assert document["program_seconds"] == pytest.approx(other["program_seconds"], rel=0.15)
    assert document["faults"]["high"] == pytest.approx(other["faults"]["high"], rel=0.15)
    assert "of the whole program's time" in " ".join(done.stdout.split())


@needs_recorder
def test_a_program_that_was_ended_has_no_length(program: Path, tmp_path: Path) -> None:
    package.record([program, "still", "0"], tmp_path / "ended.trace", max_accesses=10_000)
    package.record([program, "sparse", "0"], tmp_path / "whole.trace")
    ended, whole = (Subject.from_source(str(tmp_path / f"{name}.trace")) for name in ("ended", "whole"))
    assert not ended.length.known
    assert whole.length.known
    assert whole.name == "program sparse 0"
    assert whole.tells_dependencies


@needs_recorder
def test_what_the_program_prints_can_go_elsewhere(tmp_path: Path, pagelab: Pagelab) -> None:
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); }\n')
    subprocess.run(["gcc", "-static", "-o", tmp_path / "hello", source], check=True)
    done = pagelab("advise", "-q", "--stdout", "out", "--json", "-", "--check", "--", "./hello")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "hello\n"
    document = json.loads(done.stdout)
    # Its pages cannot be chosen natively, and the advice is there.
    assert document["measured"] is None
    assert "linked statically" in document["not_checked"]
    assert document["program"] == "hello"
    assert ".trace" not in done.stderr


@needs_recorder
def test_ctrl_c_ends_the_recording_and_the_advice_says_so(program: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "advise", "-q", "--", program, "endless", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "round\n"
    # As a terminal does: to all of them.
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, errors
    advised = output.split("round\n")[-1]
    assert re.match(r"Interrupted: the advice below covers the program's first [\d,]+ accesses", advised), output
    assert "until the program was stopped" in " ".join(advised.split())
    assert "press Ctrl-C again to stop" in errors


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["ls", "/usr"], ["pagelab advise -- ls /usr"]),
        (["gups:size=1MiB", "--keep", "a.trace"], ["--keep", "-- CMD"]),
        (["gups:size=1MiB", "--windows", "every=10K,length=1K"], ["-- CMD"]),
        (["gups:size=1MiB", "--check"], ["--check", "-- CMD"]),
        (["--repeat", "3", "--", "true"], ["add --check"]),
        (["nothing.trace"], ["nothing.trace"]),
        (["gups:size=1MiB", "-m", "vax"], ["vax"]),
        (["gups:size=1MiB", "-o", "a", "--json", "a"], ["named twice"]),
        (["-q", "--", "no-such-program"], ["no-such-program"]),
        (["gups:size=1MiB", "-k", "vax"], ["kernel: `vax`"]),
        # Before the program runs, which would leave a file.
        (["-k", "vax", "--", "touch", "file"], ["kernel: `vax`"]),
        (["-m", "vax", "--", "touch", "file"], ["machine: `vax`"]),
        (["gups:size=1MiB", "--stdout", "a"], ["--stdout", "-- CMD"]),
        (["/bin/ls"], ["/bin/ls is a program", "pagelab advise -- /bin/ls"]),
        (["gups:size=1MiB", "--json", "/proc/a.json"], ["/proc/a.json"]),
    ],
)
def test_mistakes_are_named(arguments: list[str], parts: list[str], pagelab: Pagelab, tmp_path: Path) -> None:
    done = pagelab("advise", *arguments)
    assert_fails(done, done.returncode or -1, *parts)
    assert not list(tmp_path.iterdir())


def test_a_virtual_machine_costs_what_a_run_of_its_presets_says() -> None:
    source = "gups:size=64MiB,updates=100K"
    native, nested = (busy_cycles(system.stats) for system in package.run(source, ["radix", "nested-radix"]).systems)
    advice = advice_of(source, replay(source, choose(None, None, nested=False, cpu_model=None)))
    moved = next(change.saved for change in advice.changes if change.key == "elsewhere")
    assert -moved.high <= nested / native - 1 <= -moved.low
