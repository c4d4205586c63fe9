"""Call stacks of a real program: recorded, replayed, made anonymous; by the functions that its symbols name."""

import json
import subprocess
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Pagelab, assert_fails
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

PAGE = 4096
_SOURCE = Path(__file__).with_name("call_stacks.c")
_COST = ("walks", "translation_cycles", "faults", "fault_cycles")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("program") / "calls"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", built, _SOURCE], check=True)
    return built


class Functions:
    """Names of a program's functions by offsets in its file, and its static data."""

    def __init__(self, program: Path) -> None:
        self.program = str(program)
        with program.open("rb") as stream:
            elf = ELFFile(stream)
            table = elf.get_section_by_name(".symtab")
            assert isinstance(table, SymbolTableSection)
            segment = next(part for part in elf.iter_segments("PT_LOAD") if part["p_flags"] & 1)
            moved = segment["p_vaddr"] - segment["p_offset"]
            self._functions = sorted(
                (symbol["st_value"] - moved, symbol["st_value"] - moved + symbol["st_size"], symbol.name)
                for symbol in table.iter_symbols()
                if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]
            )
        self._begins = [begin for begin, _, _ in self._functions]

    def name(self, row: dict[str, Any]) -> str | None:
        if row["file"] != self.program:
            return None
        at = bisect_right(self._begins, row["offset"]) - 1
        begin, end, name = self._functions[at]
        return name if begin <= row["offset"] < end else None

    def stack(self, stacks: dict[str, Any], node: int) -> list[str]:
        """The program's own functions, the outermost first."""

        def outwards(at: int | None) -> Iterator[str | None]:
            while at:
                yield self.name(stacks["nodes"][at])
                at = stacks["nodes"][at]["parent"]

        return [name for name in outwards(node) if name and name != "_start"][::-1]


def _record(pagelab: Pagelab, trace: str, program: Path, *options: str, arguments: tuple[str, ...] = ()) -> None:
    done = pagelab("record", "-q", *options, "-o", trace, "--", program, *arguments)
    assert done.returncode == 0, done.stderr


def _replay(pagelab: Pagelab, folder: Path, trace: str, *options: str) -> dict[str, Any]:
    done = pagelab("run", "-q", "-s", "radix", "--json", "results.json", *options, trace)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "results.json").read_text())["results"][0]
    return result


def _total(rows: list[dict[str, Any]], others: dict[str, int]) -> list[int]:
    return [sum(row[key] for row in rows) + others[key] for key in _COST]


def test_stacks_are_those_of_the_program(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    stacks = _replay(pagelab, tmp_path, "calls.trace", "--profile")["profile"]["stacks"]
    functions = Functions(program)
    of_touch = [row for row in stacks["rows"] if functions.name(row) == "touch" and row["faults"]]
    recorded = {" ".join(functions.stack(stacks, row["node"])) for row in of_touch}
    expected = {
        "main from_first",
        "main from_second",
        # longjmp left twenty frames without returning.
        "main after_jump",
        "main go_to_stacks coroutine",
        "main go_to_stacks between",
        "main take_signal on_signal",
        "main take_signal after_signal",
        "main memory",
    }
    assert recorded == expected


def test_memory_is_of_the_call_that_allocated_it(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    stacks = _replay(pagelab, tmp_path, "calls.trace", "--profile")["profile"]["stacks"]
    functions = Functions(program)
    sites = {}
    for site in stacks["sites"]:
        names = functions.stack(stacks, site["node"])
        if names[:2] == ["main", "memory"]:
            sites[site["kind"], names[-1]] = (site["count"], site["bytes"], site["faults"])
    # malloc itself has touched the first page, where its header is. Of calloc's block 200 pages were there already.
    assert sites["allocation", "allocates"] == (1, 300 * PAGE, 20)
    assert sites["allocation", "aligns"][:2] == (1, 100 * PAGE)
    # The page before the first one holds the header of an aligned block.
    assert 20 <= sites["allocation", "aligns"][2] <= 22
    assert sites["allocation", "grows"][:2] == (1, 400 * PAGE)
    assert sites["allocation", "grows"][2] >= 20
    assert sites["mapping", "maps"] == (1, 50 * PAGE, 20)


def test_page_faults_of_small_blocks_are_of_the_calls_that_allocate(pagelab: Pagelab, tmp_path: Path) -> None:
    program = tmp_path / "small"
    subprocess.run(["gcc", "-O1", "-o", program, _SOURCE.with_name("small_blocks.c")], check=True)
    _record(pagelab, "small.trace", program, "--stacks")
    stacks = _replay(pagelab, tmp_path, "small.trace", "--profile")["profile"]["stacks"]
    functions = Functions(program)
    made: Counter[str] = Counter()
    for row in stacks["rows"]:
        made[" ".join(functions.stack(stacks, row["node"])[:2])] += row["faults"]
    sites = {
        site["kind"] + ": " + " ".join(functions.stack(stacks, site["node"])): site["faults"]
        for site in stacks["sites"]
        if site["kind"] != "mapping" or functions.stack(stacks, site["node"])
    }
    # 3 MB of the first kind, and 15 MB of the second, of which some are instead of the first.
    for function, pages in (("main makes_few", 700), ("main makes_many", 2500)):
        assert made[function] > pages
        assert sites[f"allocation: {function}"] >= 0.99 * made[function]
        assert sites.get(f"mapping: {function}", 0) <= 0.01 * made[function]
    # The program's own part is nobody's block, and what is freed needs no page.
    assert 49 <= sites["heap: "] <= 51
    assert made["main releases"] == 0


def test_sums_are_those_of_the_profile(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks", arguments=("threads",))
    for source, *options in (
        ("calls.trace",),
        ("calls.trace@0-1",),
        ("calls.trace", "--warm-up", "20K"),
        ("calls.trace", "--interleavings", "2"),
        ("calls.trace", "--sample", "every=20K,length=5K,warm=1K"),
    ):
        profile = _replay(pagelab, tmp_path, source, "--profile", *options)["profile"]
        stacks, code = profile["stacks"], profile["code"]
        total = _total(code["rows"], code["others_cost"])
        assert total[0] > 0
        assert _total(stacks["rows"], stacks["rows_others_cost"]) == total, options
        assert _total(stacks["sites"], stacks["sites_others_cost"]) == total, options


def test_threads_begin_stacks_of_their_own(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks", arguments=("threads",))
    stacks = _replay(pagelab, tmp_path, "calls.trace", "--profile")["profile"]["stacks"]
    functions = Functions(program)
    rows = [row for row in stacks["rows"] if functions.name(row) == "touch" and row["faults"]]
    # Each thread's page, by one instruction in one context.
    assert [row["faults"] for row in rows if functions.stack(stacks, row["node"]) == ["in_thread"]] == [2]


def test_stacks_change_nothing_else(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    arguments = ("threads",)
    _record(pagelab, "with.trace", program, "--stacks", arguments=arguments)
    _record(pagelab, "without.trace", program, arguments=arguments)
    with_, without = (
        pl.read_parquet(tmp_path / f"{name}.trace" / "accesses-*.parquet") for name in ("with", "without")
    )
    # Names of files and the clock differ between runs, by some accesses.
    assert abs(with_.height - without.height) < without.height / 100
    plain = _replay(pagelab, tmp_path, "with.trace@0-1")
    profiled = _replay(pagelab, tmp_path, "with.trace@0-1", "--profile")
    assert plain["stats"] == profiled["stats"]
    assert "stacks" not in _replay(pagelab, tmp_path, "without.trace", "--profile")["profile"]


def test_a_saved_sample_has_no_stacks(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    saved = pagelab("trace", "sample", "calls.trace", "--sample", "every=20K,length=5K,warm=1K", "-o", "sample.trace")
    assert saved.returncode == 0, saved.stderr
    assert "stacks" not in _replay(pagelab, tmp_path, "sample.trace", "--profile")["profile"]


def test_advice_takes_recordings_with_stacks(pagelab: Pagelab, program: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    advised = pagelab("advise", "-q", "calls.trace")
    assert advised.returncode == 0, advised.stderr


def test_anonymous_stacks_name_no_file(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    assert pagelab("trace", "anonymize", "calls.trace", "-o", "later.trace").returncode == 0
    _record(pagelab, "at-once.trace", program, "--stacks", "--anonymous")
    own = _replay(pagelab, tmp_path, "calls.trace", "--profile")
    for trace in ("later.trace", "at-once.trace"):
        contexts = pl.read_parquet(tmp_path / trace / "contexts-*.parquet")
        files = contexts["file"].drop_nulls().unique().to_list()
        assert files
        assert all(name.startswith(("/library-", "/file-", "/program-")) for name in files), files
        events = pl.read_parquet(tmp_path / trace / "events-*.parquet")
        mapped = set(events.filter(pl.col("kind") == "mmap")["file"].drop_nulls())
        assert set(files) <= mapped, "one file has one number"
    later = _replay(pagelab, tmp_path, "later.trace", "--profile")
    assert later["stats"] == own["stats"]
    rows = [
        [(row["node"], *(row[key] for key in _COST)) for row in document["profile"]["stacks"]["rows"]]
        for document in (own, later)
    ]
    assert rows[0] == rows[1]


def test_the_size_of_a_trace_includes_its_call_stacks(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    parts = {part.name: part.stat().st_size for part in (tmp_path / "calls.trace").glob("*.parquet")}
    assert {name.split("-")[0] for name in parts} == {"accesses", "events", "calls", "contexts"}
    about = json.loads(pagelab("trace", "info", "calls.trace", "--json").stdout)
    assert about["size_bytes"] == sum(parts.values())
    assert about["bytes_per_access"] == about["size_bytes"] / about["accesses"]


def test_damaged_tables_are_named(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    _record(pagelab, "calls.trace", program, "--stacks")
    trace = tmp_path / "calls.trace"
    for name in ("calls-000000.parquet", "contexts-000000.parquet"):
        whole = (trace / name).read_bytes()
        (trace / name).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        assert_fails(pagelab("run", "-q", "-s", "radix", "--profile", "calls.trace"), 1, name, "damaged")
        # Who does not ask for stacks does not read them.
        assert pagelab("run", "-q", "-s", "radix", "calls.trace").returncode == 0
        (trace / name).write_bytes(whole)
    (trace / "contexts-000000.parquet").unlink()
    assert_fails(
        pagelab("run", "-q", "-s", "radix", "--profile", "calls.trace"), 1, "contexts-000000.parquet", "missing"
    )


_GENERATES = r"""
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static char area[8 * 4096];
        void touch(void) { *(volatile char*)(area + 4096) = 1; }
        int main(int arguments, char** texts) {
            (void)texts;
            /* sub rsp, 8; call rdi; add rsp, 8; ret */
            const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
            char* made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char name[64];
            memcpy(made, code, sizeof code);
            snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
            FILE* map = fopen(name, "w");
            fprintf(map, "%lx %zx generated by hand\n", (long)made, sizeof code);
            fclose(map);
            /* As if an earlier process with this number had written it. */
            const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
            if (arguments > 1)
                utimensat(AT_FDCWD, name, old, 0);
            puts(name);
            ((void (*)(void (*)(void)))made)(touch);
            return 0;
        }
    """


def _record_generated(pagelab: Pagelab, folder: Path, *arguments: str) -> tuple[dict[str, Any], str, Path]:
    """Stacks of a program that generates code, what the recorder says, and the file that names the code."""
    (folder / "generates.c").write_text(_GENERATES)
    subprocess.run(["gcc", "-O1", "-o", folder / "generates", folder / "generates.c"], check=True)
    done = pagelab("record", "--stacks", "-o", "calls.trace", "--", folder / "generates", *arguments)
    assert done.returncode == 0, done.stderr
    named = Path(done.stdout.splitlines()[0])
    named.unlink()
    return _replay(pagelab, folder, "calls.trace", "--profile")["profile"]["stacks"], done.stderr, named


def test_generated_code_has_the_names_of_perfs_map(pagelab: Pagelab, tmp_path: Path) -> None:
    stacks, messages, named = _record_generated(pagelab, tmp_path)
    assert str(named) not in messages
    names = [node["name"] for node in stacks["nodes"] if "name" in node]
    assert names == ["generated by hand"]
    child = next(node for node in stacks["nodes"] if "name" in node)
    assert child["file"] is None


def test_names_of_an_earlier_process_are_ignored(pagelab: Pagelab, tmp_path: Path) -> None:
    stacks, messages, named = _record_generated(pagelab, tmp_path, "old")
    assert not [node for node in stacks["nodes"] if "name" in node]
    assert f"{named} was ignored: it is older than the recorded process" in " ".join(messages.split())
