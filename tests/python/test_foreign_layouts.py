"""Files of other tools that could be misread: options that decide, notes, and addresses that are refused."""

import json
import struct
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails


def first_source_stats(pagelab: Pagelab, *arguments: str) -> dict[str, int]:
    done = pagelab("run", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"][0]["stats"]  # type: ignore[no-any-return]


TAGGED = "I  00400000,3\n L 100000001000,8\n L 5a00100000001000,8\n"


def test_tags_are_refused_or_removed(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "tagged.txt").write_text(TAGGED)
    refused = pagelab("trace", "import", "tagged.txt")
    assert_fails(refused, 1, "tagged.txt", "line 3", "0x5a00100000001000", "--remove-tags", "0x100000001000")
    assert not (tmp_path / "tagged.trace").exists()
    done = pagelab("trace", "import", "tagged.txt", "--remove-tags")
    assert done.returncode == 0, done.stderr
    assert "taken for a tag and removed" in done.stderr
    stats = first_source_stats(pagelab, "tagged.trace", "-s", "radix", "--check")
    assert stats["fault.minor.count"] == 2


def test_the_kernel_s_half_is_refused_or_left_out(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "whole.txt").write_text("I  00400000,3\n L 100000001000,8\n L ffff100000001000,8\n")
    assert_fails(pagelab("trace", "import", "whole.txt"), 1, "line 3", "kernel's half", "--leave-out-kernel")
    done = pagelab("trace", "import", "whole.txt", "--leave-out-kernel")
    assert "1 record left out" in done.stdout
    assert "1 instruction or access of the kernel was left out" in done.stderr


def test_a_run_refuses_addresses_beyond_its_page_table(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_text("I  00400000,3\n L 100000001000,8\n S 1000000001000,8\n")
    assert pagelab("trace", "import", "wide.txt").returncode == 0
    for check in ([], ["--check"]):
        refused = pagelab("run", "wide.trace", "-s", "radix", *check)
        assert_fails(refused, 2, "0x1000000001000", "49 bits", "translates 48", "radix-5level")
        assert "invariant" not in refused.stderr
    stats = first_source_stats(pagelab, "wide.trace", "-s", "radix-5level", "--check")
    assert stats["fault.minor.count"] == 3


def test_several_processes_in_one_text_are_noted(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("==5== Lackey\nI  04001000,3\n==6== Lackey\nI  04001000,3\n S 1ffefff000,8\n")
    done = pagelab("trace", "import", "two.txt")
    assert "note: the text is of several processes (5, 6)" in done.stderr
    assert "--log-file=lackey.%p" in done.stderr
    about = pagelab("trace", "info", "two.trace").stdout
    assert "2 processes, taken for one" in about
    assert "complete         no: see what is missing below" in about
    replayed = pagelab("run", "two.trace", "-s", "radix")
    assert replayed.returncode == 0
    assert "two.trace: the trace is incomplete: the text is of several processes (5, 6)" in replayed.stderr


def test_options_say_what_the_content_does_not(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "faults.txt").write_text("app 41/41 10.1: page-faults: 7f0000001000\n")
    assert_fails(pagelab("trace", "import", "faults.txt"), 1, "line 1", "--fields")
    done = pagelab("trace", "import", "faults.txt", "--fields", "comm,pid,tid,time,event,addr")
    assert "1 sample from perf" in done.stdout, done.stderr
    (tmp_path / "jumps.bin").write_bytes(
        b"".join(struct.pack("<Q88x", 0x400000 + 8192 * number) for number in range(2))
    )
    assert_fails(pagelab("trace", "import", "jumps.bin"), 1, "--record-bytes 96")
    done = pagelab("trace", "import", "jumps.bin", "--record-bytes", "96")
    assert "from champsim-cloudsuite" in done.stdout, done.stderr
    (tmp_path / "numbers.txt").write_text("2 408000\n0 10019\n")
    assert_fails(pagelab("trace", "import", "numbers.txt"), 1, "Dinero", "--format ramulator")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--fields", "comm,ip"], ["without addr"]),
        (["--fields", "addr", "-f", "lackey"], ["perf's text"]),
        (["--record-bytes", "80"], ["64 or 96"]),
    ],
)
def test_options_that_do_not_fit_are_errors(
    pagelab: Pagelab, tmp_path: Path, arguments: list[str], parts: list[str]
) -> None:
    (tmp_path / "a.txt").write_text("a 1/2 10\n")
    assert_fails(pagelab("trace", "import", "a.txt", *arguments), 2, *parts)
