"""How much of the address space recorded programs may use, and how many mappings they may have."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Pagelab, needs_recorder

pytestmark = needs_recorder

COMMON = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define PAGE 4096UL
#define GIB (1UL << 30)
static char *map(void *address, size_t bytes, int protection, int flags) {
    return mmap(address, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}
"""

RESERVES = r"""
/* Reserves memory, each argument in GiB, and writes to its ends. */
int main(int n, char **sizes) {
    for (int i = 1; i < n; i++) {
        size_t bytes = strtoul(sizes[i], 0, 10) * GIB;
        char *memory = map(0, bytes, PROT_READ | PROT_WRITE, 0);
        if (memory == MAP_FAILED) { printf("%s: %s\n", sizes[i], strerror(errno)); continue; }
        memory[0] = memory[bytes / 2] = memory[bytes - 1] = 1;
        printf("%s: %d\n", sizes[i], memory[bytes / 2]);
    }
}
"""

PLACES = r"""
/* Hints and fixed addresses from all over the address space, and where the rest lies. */
int main(void) {
    static size_t places[] = {0x7fff8000, 0xc000000000, 0x100000000000, 0x400000000000, 0x7b0000000000};
    char *heap = malloc(100), *anywhere = map(0, PAGE, PROT_NONE, 0), *next = map(0, PAGE, PROT_NONE, 0), here;
    for (int i = 0; i < 5; i++) {
        char *hinted = map((void *)places[i], PAGE, PROT_READ | PROT_WRITE, 0);
        char *fixed = map((void *)(places[i] + GIB), 8 * GIB, PROT_READ | PROT_WRITE, MAP_FIXED);
        hinted[0] = fixed[7 * GIB] = 1;
        printf("%d %d\n", hinted == (void *)places[i], fixed == (void *)(places[i] + GIB));
    }
    /* SBCL's code. Valgrind's tools lie there by default. */
    printf("%d\n", map((void *)0x50000000, 0xd500000, PROT_NONE, 0) == (void *)0x50000000);
    printf("%d %d %d\n", heap < anywhere, next < anywhere, anywhere < &here && &here - anywhere < 2048 * GIB);
}
"""

OVERFLOWS = r"""
int main(int n, char **names) {
    volatile char *memory = malloc(100);
    memset((void *)memory, 1, 100);
    printf("%d\n", memory[99]);
    fflush(stdout);
    if (n > 1) memory[100] = 1;
    free((void *)memory);
}
"""

SPLITS = r"""
/* Makes so many mappings out of one. */
int main(int n, char **arguments) {
    long mappings = strtol(arguments[1], 0, 10);
    char *memory = map(0, mappings * PAGE, PROT_READ | PROT_WRITE, 0);
    for (long i = 0; i < mappings; i += 2)
        if (mprotect(memory + i * PAGE, PAGE, PROT_READ)) { puts(strerror(errno)); return 0; }
    for (long i = 1; i < mappings; i += 2) memory[i * PAGE] = memory[(i - 1) * PAGE] + 1;
    for (long i = 0; i < mappings; i += 3) munmap(memory + i * PAGE, PAGE);
    char *more = map(0, PAGE, PROT_READ | PROT_WRITE, 0);
    more[0] = 1;
    printf("%d %d\n", memory[PAGE], more[0]);
}
"""


def compiled(folder: Path, source: str, *options: str) -> Path:
    program = folder / "program"
    (folder / "program.c").write_text(COMMON + source)
    subprocess.run(["gcc", "-O1", "-w", *options, "-o", program, folder / "program.c"], check=True)
    return program


def native(program: Path, *arguments: str) -> str:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


def losses(pagelab: Pagelab) -> list[str]:
    about = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)
    listed: list[str] = about["meta"].get("losses", [])
    assert about["complete"] == (not listed)
    return listed


def faults(pagelab: Pagelab) -> int:
    replayed = pagelab("run", "t.trace", "-s", "radix", "--json", "-")
    count: int = json.loads(replayed.stdout)["results"][0]["stats"]["fault.minor.count"]
    return count


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        pytest.param(RESERVES, ["70", "70", "1000", "5000"], id="gigabytes and terabytes"),
        pytest.param(RESERVES, ["14335"], id="14 TiB"),
        pytest.param(PLACES, [], id="addresses that the program chooses"),
        pytest.param(SPLITS, ["40000"], id="40,000 mappings"),
    ],
)
def test_programs_get_the_memory_that_they_get_natively(
    pagelab: Pagelab, tmp_path: Path, source: str, arguments: list[str]
) -> None:
    program = compiled(tmp_path, source)
    expected = native(program, *arguments)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, *arguments)
    assert (recorded.returncode, recorded.stdout) == (0, expected), recorded.stderr
    assert losses(pagelab) == []


def test_each_page_of_a_large_reservation_faults_once(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, RESERVES)
    counts = []
    for sizes in (["70"], ["70", "100", "1000"]):
        assert pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, *sizes).returncode == 0
        counts.append(faults(pagelab))
    assert 6 <= counts[1] - counts[0] <= 8


def test_programs_with_address_sanitizer_run(pagelab: Pagelab, tmp_path: Path) -> None:
    """Its shadow memory reaches from 2 GiB to 16 TiB."""
    program = compiled(tmp_path, OVERFLOWS, "-fsanitize=address")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, ASAN_OPTIONS="detect_leaks=0")
    assert (recorded.returncode, recorded.stdout) == (0, "1\n"), recorded.stderr
    assert losses(pagelab) == []
    recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, "x", ASAN_OPTIONS="detect_leaks=0")
    assert (recorded.returncode, recorded.stdout) == (1, "1\n")
    assert "heap-buffer-overflow" in recorded.stderr


def test_a_program_with_terabytes_starts_another_one(pagelab: Pagelab, tmp_path: Path) -> None:
    """The pages that the child of vfork wrote are found without a look at each page."""
    program = compiled(tmp_path, r"""int main(void) { return system("exit 3") >> 8; }""", "-fsanitize=address")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, ASAN_OPTIONS="detect_leaks=0")
    assert recorded.returncode == 3, recorded.stderr
    assert losses(pagelab) == []


def test_a_search_for_leaks_fails_and_does_not_hang(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, OVERFLOWS, "-fsanitize=address")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, ASAN_OPTIONS="detect_leaks=1")
    assert (recorded.returncode, recorded.stdout) == (1, "1\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert "LeakSanitizer is turned off by detect_leaks=0 in ASAN_OPTIONS or LSAN_OPTIONS" in loss


def test_a_search_for_leaks_alone_ends_the_program(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(
        tmp_path, r"""int main(void) { puts("ran"); fflush(stdout); free(malloc(100)); }""", "-fsanitize=leak"
    )
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (23, "ran\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert "LeakSanitizer is turned off by" in loss
    recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, LSAN_OPTIONS="detect_leaks=0")
    assert (recorded.returncode, recorded.stdout, losses(pagelab)) == (0, "ran\n", []), recorded.stderr


@pytest.fixture
def valgrind_of_other_build(tmp_path: Path) -> Path:
    """Folder of a Valgrind like the installed one, but without the names by which the limits are raised."""
    launcher = Path(shutil.which("valgrind") or "").resolve()
    installed, prefix = launcher.parents[1], tmp_path / "other"
    folders = [installed / "lib64/valgrind", installed / "lib/valgrind", *installed.glob("lib/*/valgrind")]
    libraries = next(folder for folder in folders if (folder / "libcoregrind-amd64-linux.a").exists())
    for folder in ("include", "libexec"):
        (prefix / folder).mkdir(parents=True)
        if (installed / folder / "valgrind").exists():
            (prefix / folder / "valgrind").symlink_to(installed / folder / "valgrind")
    (prefix / "lib/valgrind").mkdir(parents=True)
    for file in libraries.iterdir():
        (prefix / "lib/valgrind" / file.name).symlink_to(file)
    core = prefix / "lib/valgrind/libcoregrind-amd64-linux.a"
    core.unlink()
    subprocess.run(["strip", "--strip-unneeded", "-o", core, libraries / core.name], check=True)
    (prefix / "bin").mkdir()
    for name in ("valgrind", "valgrind.bin"):
        if launcher.with_name(name).exists():
            shutil.copy(launcher.with_name(name), prefix / "bin" / name)
    return prefix / "bin"


def test_where_the_limits_cannot_be_raised_the_trace_says_what_failed(
    pagelab: Pagelab, tmp_path: Path, valgrind_of_other_build: Path
) -> None:
    environment = {"PATH": f"{valgrind_of_other_build}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for source, argument, loss in (
        (RESERVES, "70", "its call for a mapping of 70 GiB failed with ENOMEM"),
        (SPLITS, "40000", "it had more than 29000 mappings"),
    ):
        program = compiled(tmp_path, source)
        recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, argument, **environment)
        assert recorded.stdout.endswith("Cannot allocate memory\n"), recorded.stderr
        assert loss in recorded.stderr
        (only,) = losses(pagelab)
        assert loss in only
