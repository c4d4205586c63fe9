"""Recording by single steps: what Valgrind cannot run, and the same counts where both can."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars
import pytest
from conftest import COMMAND, ROOT, Pagelab, assert_fails, needs_recorder

from pagelab.capture.recorder import VALGRIND_LACKS, Recording

PRELUDE = r"""
typedef unsigned long u64;
static inline long call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
__attribute__((noreturn)) static void end(int status) { for (;;) call(231, status, 0, 0, 0, 0, 0); }
static char memory[1 << 16] __attribute__((aligned(4096)));
static char *map(long bytes) { return (char *)call(9, 0, bytes, 3, 0x22, -1, 0); }
"""

INTEGERS = r"""
static long table[4096];
static long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
void _start(void) {
    long sum = fibonacci(10), n = 100;
    for (long i = 0; i < 200; i++) { table[i * 37 & 4095] += i; sum ^= table[i & 4095]; }
    char *to = memory;
    __asm__ volatile("cld; rep stosb" : "+D"(to), "+c"(n) : "a"(0) : "memory");
    end(sum & 1);
}
"""

# mlock2 (325), mprotect (10), mremap (25), mlockall (151), shmget (29), shmat (30), shmctl (31).
# Each but the first populates 200 pages that it does not touch; on fault, none.
FAULTS = {
    "touch": "volatile char *pages = map(1500 << 12); for (long i = 0; i < 1500; i++) pages[i << 12] = 1;",
    "mprotect": "char *to = (char *)call(9, 0, 200 << 12, 1, 0x22, -1, 0); call(325, (long)to, 200 << 12, 0, 0, 0, 0);"
    "call(10, (long)to, 200 << 12, 3, 0, 0, 0);",
    "half of mprotect": "char *to = (char *)call(9, 0, 201 << 12, 1, 0x22, -1, 0);"
    "call(11, (long)to + (200 << 12), 4096, 0, 0, 0, 0); call(325, (long)to, 200 << 12, 0, 0, 0, 0);"
    "call(10, (long)to, 201 << 12, 3, 0, 0, 0);",
    "mprotect, on fault": "char *to = (char *)call(9, 0, 200 << 12, 1, 0x22, -1, 0);"
    "call(325, (long)to, 200 << 12, 1, 0, 0, 0); *(volatile char *)to; call(10, (long)to, 200 << 12, 3, 0, 0, 0);",
    "mremap": "char *to = map(1 << 12); call(325, (long)to, 1 << 12, 0, 0, 0, 0);"
    "call(25, (long)to, 1 << 12, 201 << 12, 1, 0, 0);",
    "mremap, on fault": "char *to = map(1 << 12); call(325, (long)to, 1 << 12, 1, 0, 0, 0); *to = 1;"
    "call(25, (long)to, 1 << 12, 201 << 12, 1, 0, 0);",
    "mmap, on fault": "call(151, 6, 0, 0, 0, 0, 0); call(9, 0, 200 << 12, 3, 0x2022, -1, 0);",
    # pipe2 (293) without blocking, vmsplice (278): of 200 pages 32 are faulted, and 16 are copied from the pipe.
    "vmsplice": "int ends[2]; call(293, (long)ends, 2048, 0, 0, 0, 0); char *to = map(200 << 12);"
    "u64 part[2] = {(u64)to, 200 << 12}; if (call(278, ends[1], (long)part, 1, 0, 0, 0) != 16 << 12) end(1);"
    "part[0] = (u64)map(200 << 12); if (call(278, ends[0], (long)part, 1, 0, 0, 0) != 16 << 12) end(1);"
    "for (long i = 0; i < 16; i++) *(volatile char *)(part[0] + (i << 12)) = 1;",
    "shmat": "long id = call(29, 0, 200 << 12, 0600 | 01000, 0, 0, 0); call(151, 2, 0, 0, 0, 0, 0);"
    "call(30, id, 0, 0, 0, 0, 0); call(31, id, 0, 0, 0, 0, 0);",
}

# Each ends with what it found, natively as in a recording.
PROGRAMS = {
    "AVX-512": r"""
void _start(void) {
    for (int i = 0; i < 64; i++) memory[i] = i;
    __asm__ volatile("mov $0x0f, %%eax; kmovw %%eax, %%k1; vmovdqu32 (%0), %%zmm0%{%%k1%}%{z%};"
                     "vmovdqu32 %%zmm0, 1024(%0)%{%%k1%}" :: "r"(memory) : "rax", "memory");
    end(memory[1024 + 15] == 15 && memory[1024 + 16] == 0 ? 7 : 8);
}""",
    "a gather": r"""
void _start(void) {
    int *words = (int *)memory;
    for (int i = 0; i < 64; i++) words[i] = 3 * i;
    for (int i = 0; i < 8; i++) words[1024 + i] = 8 * i;
    __asm__ volatile("vpcmpeqd %%ymm2, %%ymm2, %%ymm2; vmovdqu 4096(%0), %%ymm1;"
                     "vpgatherdd %%ymm2, (%0,%%ymm1,4), %%ymm0; vmovdqu %%ymm0, 8192(%0)" :: "r"(memory) : "memory");
    end(words[2048 + 7] == 3 * 56 ? 7 : 8);
}""",
    "flags": r"""
void _start(void) {
    u64 flags;
    __asm__ volatile("pushfq; pop %0" : "=r"(flags));
    end(flags & 0x100 ? 8 : 7);
}""",
    "process_madvise": r"""
void _start(void) {
    char *pages = map(16 << 12);
    pages[0] = 1;
    u64 part[2] = {(u64)pages, 16 << 12};
    long self = call(434, call(39, 0, 0, 0, 0, 0, 0), 0, 0, 0, 0, 0);
    end(call(440, self, (long)part, 1, 20, 0, 0) == 16 << 12 ? 7 : 8);
}""",
    "userfaultfd": r"""
void _start(void) {
    long file = call(323, 1 | 0x80000, 0, 0, 0, 0, 0);
    if (file < 0) end(9);
    u64 api[3] = {0xaa, 0, 0};
    if (call(16, file, 0xc018aa3f, (long)api, 0, 0, 0)) end(8);
    char *pages = map(2 << 12);
    u64 range[4] = {(u64)pages, 2 << 12, 1, 0};
    if (call(16, file, 0xc020aa00, (long)range, 0, 0, 0)) end(8);
    memory[5] = 42;
    u64 copy[5] = {(u64)pages, (u64)memory, 4096, 0, 0};
    if (call(16, file, 0xc028aa03, (long)copy, 0, 0, 0)) end(8);
    end(pages[5] == 42 ? 7 : 8);
}""",
    "a full pipe": r"""
void _start(void) {
    int ends[2];
    call(22, (long)ends, 0, 0, 0, 0, 0);
    call(72, ends[1], 1031, 4096, 0, 0, 0);
    if (call(57, 0, 0, 0, 0, 0, 0) == 0) {
        long all = 0;
        for (long n = 1; n > 0 && all < 20000; all += n) n = call(0, ends[0], (long)memory, 3000, 0, 0, 0);
        end(0);
    }
    long written = call(1, ends[1], (long)memory, 20000, 0, 0, 0);
    int status = 1;
    call(61, -1, (long)&status, 0, 0, 0, 0);
    end(written == 20000 && status == 0 ? 7 : 8);
}""",
    "a restartable sequence": r"""
static struct { unsigned cpu_start, cpu; u64 sequence; unsigned rest[4]; } area __attribute__((aligned(32)));
void _start(void) {
    u64 *count = (u64 *)memory;
    long is_there = call(334, (long)&area, 32, 0, 0x53053053, 0, 0) == 0;
    for (long i = 0; i < 100; i++) {
        if (!is_there) { ++*count; continue; }
        __asm__ volatile("jmp 1f; .balign 32; 5: .long 0, 0; .quad 2f, 3f - 2f, 4f; .long 0x53053053;"
                         "4: 1: lea 5b(%%rip), %%rax; mov %%rax, 8(%0);"
                         "2: mov (%1), %%rax; inc %%rax; mov %%rax, (%1); 3:" :: "r"(&area), "r"(count)
                         : "rax", "memory");
    }
    end(*count == 100 ? 7 : 8);
}""",
    "a null pointer": "void _start(void) { *(volatile char *)4 = 1; end(0); }",
}


def compiled(folder: Path, source: str) -> Path:
    """A static program without a C library."""
    (folder / "program.c").write_text(PRELUDE + source)
    options = ["-O1", "-nostdlib", "-static", "-fno-stack-protector", "-fcf-protection=none", "-w"]
    subprocess.run(["gcc", *options, "-o", "program", "program.c"], cwd=folder, check=True)
    return folder / "program"


STACKS = 1 << 40
"""The kernel puts stacks above, at random places"""


def program_accesses(trace: Path) -> list[tuple[int, ...]]:
    """Kind, size, instruction, instructions since the last one, and address of each access that the program made."""
    table = polars.scan_parquet(trace / "accesses-*.parquet").filter(polars.col("kind") < 3).collect()
    rows = table.select("kind", "size", "pc", "gap", "vaddr").iter_rows()
    return [(*row[:4], row[4] if row[4] < STACKS else STACKS) for row in rows]


def status_of(process: subprocess.CompletedProcess[str]) -> int:
    """As a shell has it."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


@needs_recorder
def test_accesses_are_those_of_valgrind(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, INTEGERS)
    pagelab("record", "--quiet", "--single-step", "-o", "a.trace", "--", program)
    pagelab("record", "--quiet", "-o", "b.trace", "--", program)
    ours, theirs = (program_accesses(tmp_path / name) for name in ("a.trace", "b.trace"))
    assert len(ours) > 1000
    assert ours == theirs


# Executes a command at fixed addresses; after "count", it tells how many faults the command had until its end. The
# child of vfork has none before its execve, since it is on a stack that has been touched.
AT_FIXED_ADDRESSES = r"""
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **names) {
    struct rusage used;
    int status, counts = !strcmp(names[1], "count");
    personality(ADDR_NO_RANDOMIZE);
    if (!counts) return execv(names[1], names + 1);
    int child = vfork();
    if (!child) { execv(names[2], names + 2); _exit(1); }
    wait4(child, &status, 0, &used);
    printf("%ld\n", used.ru_minflt);
    return 0;
}
"""


@pytest.mark.parametrize("name", FAULTS)
def test_page_faults_are_those_of_the_program(tmp_path: Path, name: str) -> None:
    """At random addresses, arguments and variables on the first stack take a page more or less."""
    launcher, program = tmp_path / "launcher", compiled(tmp_path, f"void _start(void) {{ {FAULTS[name]} end(0); }}")
    (tmp_path / "launcher.c").write_text(AT_FIXED_ADDRESSES)
    subprocess.run(["gcc", "-w", "-D_GNU_SOURCE", "-o", launcher, tmp_path / "launcher.c"], check=True)

    def output_of(*command: str | Path) -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120).stdout

    native = int(output_of(launcher, "count", program))
    output_of(launcher, *COMMAND, "record", "--quiet", "--single-step", "-o", "t.trace", "--", program)
    replayed = json.loads(output_of(*COMMAND, "run", "t.trace@0", "-s", "radix", "--json", "-"))
    assert replayed["results"][0]["stats"]["fault.minor.count"] == native


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_what_they_do_natively(pagelab: Pagelab, tmp_path: Path, name: str) -> None:
    program = compiled(tmp_path, PROGRAMS[name])
    native = subprocess.run([program], text=True, check=False)
    recorded = pagelab("record", "--quiet", "--single-step", "-o", "t.trace", "--", program)
    assert recorded.returncode == status_of(native), recorded.stderr
    if name not in ("a null pointer", "AVX-512", "a gather", "userfaultfd"):
        # The others depend on the processor and the kernel.
        assert native.returncode == 7
    assert "incomplete" not in recorded.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stacks"], "--stacks is not possible with --single-step"),
        (["--max-threads", "5"], "--max-threads is not possible with --single-step"),
        (["--faults"], "--single-step is not possible with --faults"),
    ],
)
def test_options_without_meaning_are_refused(pagelab: Pagelab, options: list[str], words: str) -> None:
    process = pagelab("record", "--single-step", *options, "--", "true")
    assert_fails(process, 2, words)


WAITS = r"""
/* The first child works for long, the second is waited for by waitid (247), which tells 28 bytes. */
void _start(void) {
    int told[32];
    for (int which = 0; which < 2; which++) {
        if (call(57, 0, 0, 0, 0, 0, 0) == 0) {
            for (int i = 0; i < 500; i++) memory[i % 16 << 12] = i;
            end(which);
        }
        if (which == 0) call(61, -1, (long)told, 0, 0, 0, 0);
        else call(247, 0, 0, (long)told, 4, 0, 0);
        memory[which] = 1;
    }
    end(told[6] == 1 ? 7 : 8);
}
"""


def test_a_parent_that_waits_goes_on_after_its_childs_end(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "--single-step", "-o", "t.trace", "--", compiled(tmp_path, WAITS))
    assert recorded.returncode == 7, recorded.stderr
    events = polars.read_parquet(tmp_path / "t.trace" / "events-*.parquet").select("kind", "process", "argument").rows()
    edges = [(kind, process) for kind, process, _ in events if kind in ("exit", "wake", "woken")]
    assert edges == [("exit", 1), ("wake", 1), ("woken", 0), ("exit", 2), ("wake", 2), ("woken", 0), ("exit", 0)]
    numbers = [number for kind, _, number in events if kind in ("wake", "woken")]
    assert numbers[:2] == [numbers[0]] * 2
    assert numbers[2:] == [numbers[2]] * 2


def test_a_limit_ends_the_program(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, "void _start(void) { for (volatile int i = 0;; i++) memory[i & 1023] = i; }")
    pagelab("record", "--quiet", "--single-step", "--max-accesses", "500", "-o", "t.trace", "--", program)
    assert polars.scan_parquet(tmp_path / "t.trace/accesses-*.parquet").select(polars.len()).collect().item() == 500


THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static void *work(void *argument) {
    long number = (long)argument;
    char *bytes = malloc(20000);
    for (int i = 0; i < 20000; i += 64) bytes[i] = number;
    pthread_mutex_lock(&lock);
    sum += bytes[64 * number];
    pthread_mutex_unlock(&lock);
    free(bytes);
    return 0;
}
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("%ld\n", sum);
    return 0;
}
"""


@pytest.mark.parametrize(
    ("command", "threads"),
    [
        (["./threads"], 5),
        pytest.param(["bash", "-c", "printf '%s\\n' d a c b | LC_ALL=C sort"], 2, marks=pytest.mark.slow),
        pytest.param(["bash", "-c", "echo a | cat; (exit 3); echo $?"], 4, marks=pytest.mark.slow),
    ],
)
def test_programs_with_a_c_library_print_what_they_print_natively(
    pagelab: Pagelab, tmp_path: Path, command: list[str], threads: int
) -> None:
    (tmp_path / "threads.c").write_text(THREADS)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", "threads", "threads.c"], cwd=tmp_path, check=True)
    native = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    recorded = pagelab("record", "--quiet", "--single-step", "-o", "t.trace", "--", *command)
    assert recorded.stdout == native
    facts = json.loads(pagelab("trace", "info", "--json", "t.trace").stdout)
    assert facts["complete"]
    assert facts["meta"]["notes"] == []
    assert facts["meta"]["events"]["threads"] >= threads


@pytest.mark.parametrize("options", [["--max-bytes", "20KB"], ["--start-at", "main"]])
def test_a_part_is_recorded(pagelab: Pagelab, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "threads.c").write_text(THREADS)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", "threads", "threads.c"], cwd=tmp_path, check=True)
    pagelab("record", "--quiet", "--single-step", "-o", "whole.trace", "--", "./threads")
    pagelab("record", "--quiet", "--single-step", *options, "-o", "part.trace", "--", "./threads")
    counts = [
        polars.scan_parquet(tmp_path / name / "accesses-*.parquet").select(polars.len()).collect().item()
        for name in ("part.trace", "whole.trace")
    ]
    assert 0 < counts[0] < counts[1]
    assert json.loads(pagelab("trace", "info", "--json", "part.trace").stdout)["complete"]


def test_an_interrupted_recording_keeps_what_it_has(tmp_path: Path) -> None:
    program = compiled(tmp_path, "void _start(void) { for (volatile int i = 0;; i++) memory[i & 1023] = i; }")
    command = [*COMMAND, "record", "--single-step", "-o", "t.trace", "--", str(program)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stderr is not None
        next(line for line in recorder.stderr if "M accesses" in line)
        recorder.send_signal(signal.SIGINT)
        rest = recorder.stderr.read()
    assert recorder.returncode == 130, rest
    assert polars.scan_parquet(tmp_path / "t.trace/accesses-*.parquet").select(polars.len()).collect().item() > 1000


def test_stretches_are_recorded(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, INTEGERS)
    recorded = pagelab(
        "record", "--quiet", "--single-step", "--windows", "every=1000,length=100", "-o", "t.trace", "--", program
    )
    assert "windows of" in recorded.stderr + recorded.stdout


def test_nothing_is_left_when_the_recorder_is_killed(tmp_path: Path) -> None:
    program = compiled(tmp_path, "void _start(void) { for (;;) memory[0]++; }")
    recorder = subprocess.Popen(
        [*COMMAND, "record", "--quiet", "--single-step", "-o", "t.trace", "--", program], cwd=tmp_path
    )

    def traced() -> list[int]:
        pids = []
        for entry in Path("/proc").glob("[0-9]*/exe"):
            try:
                if entry.readlink() == program:
                    pids.append(int(entry.parent.name))
            except OSError:
                continue
        return pids

    while not traced():
        assert recorder.poll() is None
        time.sleep(0.05)
    recorder.kill()
    recorder.wait()
    deadline = time.monotonic() + 60
    while traced() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not traced()


def test_the_reason_is_told_where_tracing_is_forbidden(tmp_path: Path) -> None:
    # A filter of system calls, as containers have: ptrace fails with EPERM.
    forbid = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 101, 0x06, 0, 0, 0x00050001, 0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(buffer))), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
    command = [sys.executable, "-c", forbid, *COMMAND, "record", "--single-step", "-o", "t.trace", "--", "true"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_fails(process, 2, "single steps are forbidden here")
    assert not (tmp_path / "t.trace").exists()


def test_valgrind_recordings_name_the_option() -> None:
    def needs(loss: str) -> bool:
        return Recording(
            accesses=1,
            processes=1,
            threads=1,
            exit_code=132,
            signal=4,
            truncated_at=None,
            truncated_by=None,
            gave_up=False,
            notes=[],
            losses=[loss],
            elapsed_seconds=1.0,
            stretches=None,
            size_bytes=1,
            content_hash="",
            program_cpu_seconds=1.0,
            recorder_cpu_seconds=1.0,
        ).needs_single_steps

    assert needs("process 5: Valgrind does not know the instruction 0x62; the program got SIGILL there")
    assert needs("process 5: its system call userfaultfd (323) failed with ENOSYS, since Valgrind does not have it")
    assert not needs("process 5 executed x, which is a 32-bit program")
    # The words are those of the recorder.
    sources = [ROOT / "crates/pagelab-trace/src/record/log.rs", ROOT / "capture/valgrind/syscalls.c"]
    assert all(words in path.read_text() for words, path in zip(VALGRIND_LACKS, sources, strict=True))
