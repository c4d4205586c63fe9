"""Minor faults by what the kernel does beside a program's accesses: holes of files in memory, advice, populating calls.

Each expected number is what Linux 6.18 counted, without huge pages: `N` faults for pages that fault one by one, `W` for
pages that fault by windows of 16. docs/system-calls.md says which call has which effect.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Pagelab, needs_recorder

N = 1024
W = N // 16

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096UL
#define N 1024UL
#define ALL (N * PAGE)
#define HALF (ALL / 2)
enum { PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS, SHARED = MAP_SHARED | MAP_ANONYMOUS };
static char block[PAGE];
static volatile char sum;

static void must(int holds) { if (!holds) { perror("a call of the test"); exit(1); } }
/* At a multiple of the windows' size, so that their number is known. */
static char *map_some(size_t bytes, int flags, int file) {
    static size_t next = 0x600000000;
    char *at = mmap((void *)next, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    must(at != MAP_FAILED);
    next += 4 * ALL;
    return at;
}
static char *map(int flags, int file) { return map_some(ALL, flags, file); }
static void load(volatile char *at, size_t bytes) { for (size_t i = 0; i < bytes; i += PAGE) sum += at[i]; }
static void store(volatile char *at, size_t bytes) { for (size_t i = 0; i < bytes; i += PAGE) at[i] = 1; }
static int memory_file(void) { int file = memfd_create("buffer", 0); must(!ftruncate(file, ALL)); return file; }
static void fill(int file) {
    memset(block, 1, PAGE);
    for (size_t i = 0; i < N; i++) must(pwrite(file, block, PAGE, i * PAGE) == PAGE);
}
static int disk_file(void) {
    char name[] = "data-XXXXXX";
    int file = mkstemp(name);
    unlink(name); fill(file); fsync(file);
    return file;
}
static void in_child(void (*does)(volatile char *, size_t), char *at) {
    int status;
    if (!fork()) { does(at, ALL); _exit(0); }
    wait(&status);
}

static void nothing(void) {}
static void holes(void) {
    char *at = map(MAP_SHARED, memory_file());
    load(at, ALL); store(at, ALL);
    at = map(MAP_PRIVATE, memory_file());
    load(at, ALL); store(at, ALL);
    store(map(MAP_PRIVATE, memory_file()), ALL);
    map(MAP_SHARED | MAP_POPULATE, memory_file());
}
static void below_dev_shm(void) {
    char name[] = "/dev/shm/pagelab-test-XXXXXX";
    int file = mkstemp(name);
    must(file >= 0); unlink(name); must(!ftruncate(file, ALL));
    char *at = map(MAP_SHARED, file);
    load(at, HALF); store(at + HALF, HALF);
}
static void data(void) {
    int before = memory_file(), later = memory_file(), copy = memory_file(), half = memory_file();
    loff_t place = 0;
    fill(before);
    load(map(MAP_SHARED, before), ALL);
    char *at = map(MAP_SHARED, later);
    fill(later); load(at, ALL);
    at = map(MAP_SHARED, copy);
    while (copy_file_range(before, &place, copy, 0, ALL - place, 0) > 0);
    load(at, ALL);
    fill(half); must(!ftruncate(half, HALF)); must(!ftruncate(half, ALL));
    load(map(MAP_SHARED, half), ALL);
}
static void gone(void) {
    int file = memory_file(), modes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    char *at = map(MAP_SHARED, file), path[40];
    store(at, ALL); must(!fallocate(file, modes, 0, HALF)); load(at, ALL);
    must(!madvise(at, HALF, MADV_REMOVE)); load(at, ALL);
    must(!ftruncate(file, HALF)); must(!ftruncate(file, ALL)); load(at, ALL);
    sprintf(path, "/proc/self/fd/%d", file);
    close(open(path, O_RDWR | O_TRUNC)); must(!ftruncate(file, ALL)); load(at, ALL);
    unsigned long how[3] = {O_RDWR | O_TRUNC};
    close(syscall(437 /* openat2 */, AT_FDCWD, path, how, sizeof how)); must(!ftruncate(file, ALL)); load(at, ALL);
}
static void same_name(void) {
    load(map(MAP_SHARED, memory_file()), ALL);
    int file = memory_file();
    char *at = map(MAP_SHARED, file);
    store(at, ALL); munmap(at, ALL);
    load(map(MAP_SHARED, file), ALL);
}
static void moved(void) {
    int file = memory_file();
    fill(file);
    char *at = map_some(HALF, MAP_SHARED, file);
    at = mremap(at, HALF, ALL, MREMAP_MAYMOVE);
    store(at, HALF); load(at, ALL);
}
static void shared_anonymous(void) {
    char *at = map(SHARED, -1);
    load(at, ALL); store(at, ALL);
    must(!madvise(at, ALL, MADV_DONTNEED)); load(at, ALL);
    in_child(load, at);
    must(!madvise(at, ALL, MADV_REMOVE)); in_child(store, at); load(at, ALL);
}
static void system_v(void) {
    int segment = shmget(IPC_PRIVATE, ALL, 0600);
    for (int i = 0; i < 2; i++) load(shmat(segment, 0, 0), ALL);
    shmctl(segment, IPC_RMID, 0);
}
static void cold(void) {
    char *at = map(PRIVATE, -1);
    store(at, ALL); must(!madvise(at, ALL, 20 /* MADV_COLD */)); store(at, ALL);
}
static void page_out(void) {
    char *at = map(PRIVATE, -1);
    store(at, ALL); must(!madvise(at, ALL, 21 /* MADV_PAGEOUT */)); store(at, ALL);
    at = map(MAP_SHARED, memory_file());
    store(at, ALL); must(!madvise(at, ALL, 21)); load(at, ALL);
    at = map(MAP_SHARED, disk_file());
    load(at, ALL); must(!madvise(at, ALL, 21)); load(at, ALL);
}
static void half_allowed(void) {
    char *at = map(PRIVATE, -1);
    mprotect(at + HALF, HALF, PROT_READ); must(madvise(at, ALL, 23 /* MADV_POPULATE_WRITE */));
    at = map(PRIVATE, -1);
    mprotect(at + HALF, HALF / 2, PROT_NONE); must(madvise(at, ALL, 22 /* MADV_POPULATE_READ */));
    at = map(PRIVATE, -1);
    mprotect(at + HALF, HALF / 2, PROT_NONE); must(mlock(at, ALL));
    at = map(PRIVATE, -1);
    munmap(at + HALF, PAGE); must(mlock(at, ALL));
    int file = memory_file();
    must(!ftruncate(file, HALF));
    map(MAP_SHARED | MAP_POPULATE, file);
    map(MAP_PRIVATE | MAP_POPULATE, file);
}
static void punched_disk(void) {
    int file = disk_file(), modes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    char *at = map(MAP_SHARED, file), *own = map(MAP_PRIVATE, file);
    store(at, ALL); store(own, HALF);
    must(!fallocate(file, modes, 0, HALF));
    store(at, ALL); store(own, HALF);
}
static void protected(void) {
    char *at = map(PRIVATE, -1);
    mprotect(at, HALF, PROT_READ); load(at, HALF); store(at + HALF, HALF);
    mprotect(at, HALF, PROT_READ | PROT_WRITE); store(at, ALL);
}
static void merged(void) {
    char *at = map(PRIVATE, -1);
    store(at, ALL);
    madvise(at, ALL, MADV_MERGEABLE);
    store(at, ALL);
}
static void fresh(void) {
    int file = disk_file();
    char *at = map(PRIVATE, -1);
    struct iovec parts[] = {{at, HALF}, {at + HALF, HALF}};
    must(preadv(file, parts, 2, 0) == ALL);
    at = map(PRIVATE, -1);
    munmap(at + HALF, HALF);
    must(pread(file, at, ALL, 0) == HALF);
}
static void other_process(void) {
    char *to = map(PRIVATE, -1), *from = map(PRIVATE, -1), end;
    struct iovec own = {from, ALL}, other = {to, ALL};
    int status, ends[2];
    must(!pipe(ends)); store(from, ALL);
    int child = fork();
    if (!child) { read(ends[0], &end, 1); _exit(0); }
    must(process_vm_writev(child, &own, 1, &other, 1, 0) == ALL);
    write(ends[1], "", 1); wait(&status);
    own.iov_base = map(PRIVATE, -1); other.iov_base = map(PRIVATE, -1);
    must(process_vm_readv(getpid(), &own, 1, &other, 1, 0) == ALL);
}
/* Advice that fails half-way: at a locked page, at memory without a file, and at a hole. */
static void half_advised(void) {
    char *at = map(PRIVATE, -1);
    store(at, ALL); must(!mlock(at + HALF, PAGE)); must(madvise(at, ALL, MADV_DONTNEED)); store(at, ALL);
    at = map(MAP_SHARED, memory_file());
    mmap(at + HALF, PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0);
    store(at, ALL); must(madvise(at, ALL, MADV_REMOVE)); store(at, ALL);
    at = map(PRIVATE, -1);
    struct iovec range = {at, ALL};
    int self = syscall(434 /* pidfd_open */, getpid(), 0);
    store(at, ALL); munmap(at + HALF, PAGE);
    must(syscall(440 /* process_madvise */, self, &range, 1, 21 /* MADV_PAGEOUT */, 0) < 0);
    store(at, HALF); store(at + HALF + PAGE, HALF - PAGE);
}
/* mremap that leaves the old mapping (MREMAP_DONTUNMAP). */
static void kept(void) {
    int flags[] = {PRIVATE, MAP_SHARED};
    for (int i = 0; i < 2; i++) {
        char *at = map(flags[i], i ? memory_file() : -1), *to;
        store(at, ALL);
        to = mremap(at, ALL, ALL, MREMAP_MAYMOVE | 4, 0);
        must(to != MAP_FAILED); store(to, ALL); store(at, ALL);
    }
}
/* Calls that fill a part of their buffer. */
static void partly_filled(void) {
    int ends[2], pipes[2];
    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)); must(!pipe(pipes));
    memset(block, 1, PAGE);
    write(ends[1], "abc", 3); must(recv(ends[0], map(PRIVATE, -1), ALL, 0) == 3);
    write(ends[1], block, PAGE); must(recv(ends[0], map(PRIVATE, -1), PAGE / 2, MSG_TRUNC) == PAGE);
    struct iovec whole = {map(PRIVATE, -1), ALL};
    struct msghdr message = {.msg_iov = &whole, .msg_iovlen = 1};
    write(ends[1], "abc", 3); must(recvmsg(ends[0], &message, 0) == 3);
    write(pipes[1], "abc", 3); must(read(pipes[0], map(PRIVATE, -1), ALL) == 3);
    char *at = map(PRIVATE, -1);
    struct iovec parts[] = {{at + HALF, 4}, {at, HALF}};
    write(pipes[1], "abcdef", 6); must(vmsplice(pipes[0], parts, 2, 0) == 6);
    must(syscall(SYS_sched_getaffinity, 0, ALL, map(PRIVATE, -1)) > 0);
}
/* The kernel faults 16 pages at a time, before it looks whether the pipe has room: pipes have 16 places. */
static void splice_to(int pipe, char *at, int bytes, int result) {
    struct iovec parts[] = {{at, 0}, {at, bytes}};
    must(vmsplice(pipe, parts, 2, SPLICE_F_NONBLOCK) == result);
}
static void spliced(void) {
    int pipes[2];
    must(!pipe2(pipes, O_NONBLOCK));
    char *at = map(PRIVATE, -1);
    must(vmsplice(pipes[1], &(struct iovec){at, 10 * PAGE}, 1, 0) == 10 * PAGE); store(at, 10 * PAGE);
    while (read(pipes[0], block, sizeof block) > 0);
    for (int i = 0; i < 4; i++) {
        splice_to(pipes[1], map(PRIVATE, -1), ALL, 16 * PAGE); splice_to(pipes[1], map(PRIVATE, -1), ALL, -1);
        while (read(pipes[0], block, sizeof block) > 0);
    }
    write(pipes[1], block, 1);
    splice_to(pipes[1], map(PRIVATE, -1), ALL, 15 * PAGE);
    while (read(pipes[0], block, sizeof block) > 0);
    at = map(PRIVATE, -1); munmap(at + 17 * PAGE, ALL - 17 * PAGE);
    splice_to(pipes[1], at, ALL, 16 * PAGE);
    at = map(PRIVATE, -1);
    splice_to(pipes[0], at, ALL, 16 * PAGE); store(at, 16 * PAGE);
}

#define CASE(name) if (!strcmp(names[1], #name)) { name(); return 0; }
int main(int n, char **names) {
    CASE(nothing) CASE(holes) CASE(below_dev_shm) CASE(data) CASE(gone) CASE(same_name) CASE(moved)
    CASE(shared_anonymous) CASE(system_v) CASE(cold) CASE(page_out) CASE(half_allowed) CASE(punched_disk)
    CASE(protected) CASE(merged) CASE(fresh) CASE(other_process) CASE(partly_filled)
    CASE(half_advised) CASE(kept) CASE(spliced)
    return 2;
}
"""

EXPECTED = {
    "holes": N + 2 * N + N + N,
    "below_dev_shm": N,
    "data": 3 * W + W // 2 + N // 2,
    "gone": N + 3 * N // 2 + N + N,
    "same_name": 2 * N + W,
    "moved": N // 2 + W // 2,
    # The child of a fork faults some pages of its own.
    "shared_anonymous": N + W + W + N + W + 60,
    "system_v": 2 * N,
    "cold": N,
    "page_out": N + N + W + 2 * W,
    "half_allowed": 3 * N // 2 + N // 2 + N // 2,
    "punched_disk": N + N // 2 + N // 2,
    "protected": N // 2 + N // 2 + N // 2,
    "merged": N,
    "fresh": N + N // 2,
    "other_process": N + N + 2 * N + 30,
    "partly_filled": 7,
    "half_advised": (N + N // 2) + (N + N // 2) + N,
    "kept": 2 * N + 2 * N,
    "spliced": (10 + 10) + 4 * 32 + 16 + 17 + 16,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "program.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-w", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def faults(pagelab: Pagelab, program: Path, case: str) -> int:
    recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, case)
    assert recorded.returncode == 0, recorded.stderr
    # On one CPU the processes run in the recorded order.
    replayed = pagelab("run", "t.trace@0", "-s", "radix", "--json", "-")
    stats = json.loads(replayed.stdout)["results"][0]["stats"]
    assert stats["fault.major.count"] == 0
    # What the kernel has touched is mapped.
    assert stats["accesses.refused"] == 0
    count: int = stats["fault.minor.count"]
    return count


@needs_recorder
@pytest.mark.parametrize("case", EXPECTED)
def test_what_the_kernel_does_beside_accesses_is_counted(pagelab: Pagelab, program: Path, case: str) -> None:
    """Within 1 %, or 10 faults, of what the kernel counted beyond a program that does nothing."""
    counted = faults(pagelab, program, case) - faults(pagelab, program, "nothing")
    assert counted == pytest.approx(EXPECTED[case], rel=0.01, abs=10)


EVENTS = ROOT / "crates" / "pagelab-trace" / "src" / "format" / "event_row.rs"
TOOL = [ROOT / "capture" / "valgrind" / name for name in ("memory.c", "files.c")]


def test_the_page_of_system_calls_has_each_event_and_each_call() -> None:
    """Each kind of event, and each call that the recorder's tool handles, is in docs/system-calls.md."""
    page = (ROOT / "docs" / "system-calls.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    kinds = re.search(r"const KINDS: \[&str; \d+\] = \[(.*?)\];", EVENTS.read_text(), re.DOTALL)
    assert kinds is not None
    assert set(re.findall(r'"(\w+)"', kinds[1])) <= named
    calls = {call for path in TOOL for call in re.findall(r"__NR_(\w+)", path.read_text())}
    own = {"fstatfs"}  # the tool's own calls
    assert calls - own <= named | {call.removesuffix("64") for call in named} | {f"{call}64" for call in named}
