"""The driver of `examples/stores`: YCSB's requests on LMDB and SQLite."""

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from conftest import ROOT

STORES = ROOT / "examples" / "stores"
NAMES = ("lmdb", "sqlite")
RECORDS = 3000
Completed: TypeAlias = subprocess.CompletedProcess[str]


def missing_for_stores() -> str:
    """What building the driver needs and is not here, by Debian's packages; empty if nothing is missing."""
    if not shutil.which("cc"):
        return "gcc"
    return missing_packages({"liblmdb-dev": ("lmdb.h", "-llmdb"), "libsqlite3-dev": ("sqlite3.h", "-lsqlite3")})


def missing_packages(packages: Mapping[str, tuple[str, str]]) -> str:
    """Those whose header or library is not here."""
    with tempfile.TemporaryDirectory() as folder:
        return ", ".join(
            package
            for package, (header, library) in packages.items()
            if subprocess.run(
                ["cc", "-x", "c", "-o", f"{folder}/a", "-", library],
                input=f"#include <{header}>\nint main(void) {{ return 0; }}\n",
                capture_output=True,
                text=True,
                check=False,
            ).returncode
        )


def build(folder: Path) -> Path:
    """The driver, which compiles without a warning. Skips the test where a package is missing."""
    if missing := missing_for_stores():
        pytest.skip(f"to run this test, install {missing}")
    sources = [STORES / name for name in ("ycsb.c", "lmdb.c", "sqlite.c")]
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2")
    libraries = ("-llmdb", "-lsqlite3", "-lm")
    done = run("cc", *flags, "-o", folder / "ycsb", *sources, *libraries)
    assert done.returncode == 0, done.stderr
    return folder / "ycsb"


def run(*command: str | Path) -> Completed:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)


def answers(done: Completed) -> dict[str, str]:
    """The lines KEY=VALUE of a run."""
    assert done.returncode == 0, done.stderr
    return dict(line.split("=") for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def ycsb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def loaded(ycsb: Path) -> dict[str, Path]:
    """A store of each kind."""
    stores = {name: ycsb.parent / f"loaded.{name}" for name in NAMES}
    for name, path in stores.items():
        printed = answers(run(ycsb, name, "load", path, "--records", str(RECORDS), "--size", "203"))
        assert printed == {"store": name, "records": str(RECORDS), "value_bytes": "203"}
    return stores


@pytest.mark.parametrize("mix", "abcdef")
def test_stores_answer_the_same(ycsb: Path, loaded: dict[str, Path], tmp_path: Path, mix: str) -> None:
    printed = []
    for name in NAMES:
        shutil.copy(loaded[name], tmp_path / name)
        printed.append(answers(run(ycsb, name, "run", tmp_path / name, "--mix", mix, "--operations", "2000")))
    one, other = ({k: v for k, v in line.items() if k not in ("store", "seconds")} for line in printed)
    for faults in ("major_faults", "minor_faults"):
        assert int(one.pop(faults)) >= 0
        assert int(other.pop(faults)) >= 0
    assert one == other
    assert int(one["checksum"], 16) != 0
    kinds = ("reads", "updates", "inserts", "scans", "read_modify_writes")
    assert sum(int(one[kind]) for kind in kinds) == int(one["operations"]) == 2000


def test_mixes_and_distributions_are_ycsbs(ycsb: Path, loaded: dict[str, Path], tmp_path: Path) -> None:
    shares = {"a": ("updates", 50), "b": ("updates", 5), "d": ("inserts", 5), "e": ("scans", 95)}
    shares |= {"c": ("reads", 100), "f": ("read_modify_writes", 50)}
    for mix, (kind, percent) in shares.items():
        path = Path(shutil.copy(loaded["lmdb"], tmp_path / mix))
        printed = answers(run(ycsb, "lmdb", "run", path, "--mix", mix, "--operations", "5000"))
        assert int(printed[kind]) / 50 == pytest.approx(percent, abs=3), mix
        assert printed["distribution"] == ("latest" if mix == "d" else "zipf")


def test_popular_records_are_as_zipfs_law_has_them(tmp_path: Path) -> None:
    """Of the driver's own code, since a store does not say which records were asked for."""
    if missing := missing_for_stores():
        pytest.skip(f"to run this test, install {missing}")
    (tmp_path / "zipf.c").write_text(
        f'#define main driver\n#include "{STORES}/ycsb.c"\n#undef main\n'
        'int main(void) { for (int i = 0; i < 200000; i++) printf("%" PRIu64 "\\n", zipf(1000));\n'
        "   distribution = LATEST;\n"
        '   for (int i = 0; i < 1000; i++) fprintf(stderr, "%" PRIu64 "\\n", chosen(1000, 5000));\n'
        "   (void)driver; }\n"
    )
    sources = [tmp_path / "zipf.c", STORES / "lmdb.c", STORES / "sqlite.c"]
    done = run("cc", "-O2", f"-I{STORES}", "-o", tmp_path / "zipf", *sources, "-llmdb", "-lsqlite3", "-lm")
    assert done.returncode == 0, done.stderr
    drew = run(tmp_path / "zipf")
    drawn = Counter(map(int, drew.stdout.split()))
    assert max(drawn) <= 999
    total = sum(rank**-0.99 for rank in range(1, 1001))
    expected = [200_000 * (rank + 1) ** -0.99 / total for rank in range(1000)]
    for first, end in ((0, 1), (1, 2), (10, 100), (100, 500), (500, 1000)):
        seen = sum(drawn[rank] for rank in range(first, end))
        assert seen == pytest.approx(sum(expected[first:end]), rel=0.05), (first, end)
    latest = Counter(map(int, drew.stderr.split()))
    assert (min(latest) >= 4000, latest.most_common(1)[0][0]) == (True, 4999), "the newest record is the most popular"


def test_a_seed_decides_the_requests(ycsb: Path, loaded: dict[str, Path]) -> None:
    command = ("run", loaded["lmdb"], "--operations", "500", "--distribution", "uniform", "--seed")
    sums = [answers(run(ycsb, "lmdb", *command, seed))["checksum"] for seed in ("1", "1", "2")]
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_told_that_reads_are_random(ycsb: Path, loaded: dict[str, Path], name: str) -> None:
    """As strace sees it."""
    if not shutil.which("strace"):
        pytest.skip("to run this test, install strace")
    for arguments, advised in (((), True), (("--read-ahead",), False)):
        command = (ycsb, name, "run", loaded[name], "--operations", "1", *arguments)
        traced = run("strace", "-e", "trace=madvise", *command)
        assert traced.returncode == 0, traced.stderr
        assert ("MADV_RANDOM" in traced.stderr) == advised


def test_bad_arguments_are_named(ycsb: Path, loaded: dict[str, Path]) -> None:
    store = str(loaded["lmdb"])
    for arguments, words in (
        ([], "a store, load or run, and a file are needed"),
        (["rocksdb", "run", store], "'rocksdb' is no store that is known; give one of lmdb|sqlite"),
        (["lmdb", "fill", store], "'fill' is nothing that can be done; give load or run"),
        (["lmdb", "run", store, "--mix", "g"], "--mix is 'g'; it must be a, b, c, d, e or f"),
        (["lmdb", "run", store, "--distribution", "normal"], "it must be uniform, zipf or latest"),
        (["lmdb", "run", store, "--operations", "-1"], "--operations is '-1'; it must be a whole number from 0 to "),
        (["lmdb", "run", store, "--operations"], "'--operations' is no option, or lacks its value"),
        (["lmdb", "run", store, "--fast"], "'--fast' is no option, or lacks its value"),
        (["lmdb", "run", store, "--records", "9"], "--records does not go with run"),
        (["lmdb", "load", store, "--mix", "a"], "--mix does not go with load"),
        (["lmdb", "run", store, "more"], "'more' is one argument too many"),
    ):
        done = run(ycsb, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert words in done.stderr.splitlines()[0]
        assert done.stderr.splitlines()[1].startswith("usage: ycsb lmdb|sqlite load FILE")


@pytest.mark.parametrize("name", NAMES)
def test_stores_that_cannot_be_used_are_named(ycsb: Path, loaded: dict[str, Path], tmp_path: Path, name: str) -> None:
    (tmp_path / "text").write_text("no store" * 1000)
    cases: tuple[tuple[tuple[str | Path, ...], str], ...] = (
        (("load", loaded[name]), "is there already; remove it, or name another"),
        (("run", tmp_path / "gone"), "gone"),
        (("run", tmp_path / "text"), "ycsb: "),
        (("load", tmp_path / "no" / "folder"), "folder"),
    )
    for arguments, words in cases:
        done = run(ycsb, name, *arguments)
        assert (done.returncode, done.stdout) == (1, ""), arguments
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
