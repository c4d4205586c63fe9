"""Recorded programs from public reports of other tools: each does what it does natively."""

import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, assert_fails, needs_recorder
from test_contiguity import needs_frames
from test_fault_recorder import needs_perf
from test_native_major_faults import needs_memory_cgroup
from test_recorder_programs import MISSES, compiled, losses

pytestmark = needs_recorder

VFORKS = r"""
#include <spawn.h>
/* The child has its parent's memory, and the parent waits for it: rr's issue 1741, DynamoRIO's issue 6514. */
int main(void) {
    volatile int seen = 0, *on_heap = malloc(4);
    *on_heap = 1;
    if (!vfork()) {
        usleep(50000);
        *on_heap = 2;
        execl("/nowhere", "nowhere", NULL);
        seen = errno;
        _exit(3);
    }
    int status, child, order[2];
    printf("%d %d", seen, *on_heap);
    wait(&status);
    printf(" %d", WEXITSTATUS(status));
    char *names[] = {"no-such-program", NULL};
    printf(" %d", posix_spawnp(&child, names[0], 0, 0, names, names + 1));
    pipe(order);
    if (!vfork()) { usleep(50000); write(order[1], "c", 1); execl("/bin/true", "true", NULL); _exit(1); }
    write(order[1], "p", 1);
    char both[2];
    read(order[0], both, 2);
    printf(" %.2s\n", both);
}
"""

BORROWS_MUCH = r"""
/* What the child does before it ends is more than the recorder keeps waiting: it must not wait for its parent. */
int main(void) {
    static volatile char memory[1 << 20];
    if (!vfork()) {
        for (int round = 0; round < 20; round++) for (int i = 0; i < sizeof memory; i++) memory[i] += i;
        _exit(0);
    }
    long sum = 0;
    for (int i = 0; i < sizeof memory; i++) sum += memory[i];
    printf("%ld\n", sum);
}
"""

EXECUTES_IN_THREAD = r"""
#include <pthread.h>
static void *execute(void *nothing) { execl("/bin/echo", "echo", "executed", NULL); return NULL; }
static void *sleeps(void *nothing) { for (;;) pause(); }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, sleeps, 0);
    pthread_create(&thread, 0, execute, 0);
    for (;;) pause();
}
"""

HEAP = r"""
int main(void) {
    char *heap = sbrk(300 << 20);
    if (heap == (void *)-1) return 1;
    for (size_t at = 0; at < 300 << 20; at += 1 << 20) heap[at] = 1;
    puts("ok");
}
"""

DIVIDES = r"""
#include <ucontext.h>
/* A handler of SIGFPE looks at a register, repairs it, and lets the division be made again. */
static void repair(int number, siginfo_t *fault, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf("%lld ", registers[REG_RCX]);
    registers[REG_RCX] = 5;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    sigaction(SIGFPE, &action, 0);
    for (long n = 100; n < 103; n++) {
        long quotient = n;
        __asm__ volatile("mov $7, %%rcx; sub $7, %%rcx; cqto; idivq %%rcx" : "+a"(quotient) : : "rcx", "rdx");
        printf("%ld\n", quotient);
    }
}
"""

LOOKS_AT_ITSELF = r"""
/* What garbage collectors look for: where the stack and the heap are. */
int main(int n, char **names) {
    char line[600];
    unsigned long start, end;
    void *heap = malloc(10);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        sscanf(line, "%lx-%lx", &start, &end);
        if (start <= (size_t)&n && (size_t)&n < end) printf("%d", strstr(line, "[stack]") != NULL);
        if (start <= (size_t)heap && (size_t)heap < end) printf("%d", strstr(line, "[heap]") != NULL);
    }
    FILE *stat = fopen("/proc/self/stat", "r");
    for (int i = 1; i < 28; i++) fscanf(stat, "%*s");
    fscanf(stat, "%lu", &start);
    printf(" %d\n", start >= (size_t)&n && start - (size_t)&n < 1 << 20);
    memset(names[0], 'x', strlen(names[0]));
    if (!fork()) memset(names[0], 'y', 3);
    else wait(0);
    FILE *arguments = fopen("/proc/self/cmdline", "r");
    printf("%.5s\n", fgets(line, sizeof line, arguments));
    fflush(stdout);
    if (names[0][0] == 'y') _exit(0);
    sprintf(line, "cd /proc/%d; tr '\\0' ' ' < cmdline; tr '\\0' '\\n' < environ | grep -c ^PATH=", getpid());
    return system(line);
}
"""

MAPS = r"""
#include <sys/personality.h>
int main(void) {
    char *used = map(2, 0), code[] = "\xb8\x2a\0\0\0\xc3";
    printf("%d", mmap(used + PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
                     == MAP_FAILED && errno == EEXIST);
    munmap(used, 2 * PAGE);
    printf(" %d", mmap(used, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == used);
    personality(READ_IMPLIES_EXEC);
    char *readable = map(1, 0);
    memcpy(readable, code, sizeof code);
    printf(" %d\n", ((int (*)(void))readable)());
}
"""

BLOCKS = r"""
/* With SA_NODEFER, a handler blocks the signals of its mask, and not its own. SBCL ends otherwise. */
static void look(int number) {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("%d%d ", sigismember(&blocked, SIGUSR2), sigismember(&blocked, SIGUSR1));
}
int main(void) {
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_NODEFER};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGTRAP, &action, 0);
    raise(SIGUSR1);
    __asm__ volatile("int3");
    look(0);
    sigaction(SIGXFSZ, 0, &action);
    printf("%d\n", action.sa_handler == SIG_DFL);
}
"""

SHARES_MEMORY = r"""
#include <sched.h>
static int child(void *nothing) { return 0; }
int main(void) { printf("%d\n", clone(child, map(16, 0) + 16 * PAGE, CLONE_VM | SIGCHLD, 0) < 0 && errno == EINVAL); }
"""

LIMITS_FILES = r"""
#include <sys/resource.h>
int main(void) {
    struct rlimit limit = {4096, 4096};
    puts(setrlimit(RLIMIT_FSIZE, &limit) ? "error" : "set");
    fflush(stdout);
    if (!fork()) execl("/bin/echo", "echo", "more", NULL);
    wait(0);
}
"""

DEBUGS = r"""
#include <sys/ptrace.h>
#include <sys/resource.h>
/* The limits of descriptors are lowered by an earlier program of the process, and by another process. */
static void debug(int limit) {
    int ready[2], status;
    char byte;
    pipe(ready);
    int child = fork();
    if (!child) {
        read(ready[0], &byte, 1);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl("/bin/sh", "sh", "-c", "ulimit -n; ulimit -Hn; ulimit -f", NULL);
        _exit(9);
    }
    struct rlimit lower = {limit, limit};
    if (limit) prlimit(child, RLIMIT_NOFILE, &lower, 0);
    write(ready[1], "", 1);
    waitpid(child, &status, 0);
    printf("%d\n", WSTOPSIG(status)); fflush(stdout);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1); fflush(stdout);
}
int main(int n, char **names) {
    struct rlimit lower = {50, 60};
    debug(n > 1 ? 0 : 45);
    if (n > 1) return 0;
    setrlimit(RLIMIT_NOFILE, &lower);
    execl("/proc/self/exe", names[0], "again", NULL);
}
"""


def natively(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        pytest.param(VFORKS, [], "2 2 3 2 cp\n", id="vfork and posix_spawn"),
        pytest.param(BORROWS_MUCH, [], None, id="a child of vfork that does much"),
        pytest.param(EXECUTES_IN_THREAD, ["-pthread"], "executed\n", id="execve in a thread"),
        pytest.param(HEAP, [], "ok\n", id="a heap of 300 MiB"),
        pytest.param(DIVIDES, [], "0 20\n0 20\n0 20\n", id="divisions by zero are repaired"),
        pytest.param(LOOKS_AT_ITSELF, [], None, id="files below /proc"),
        pytest.param(MAPS, [], "1 1 42\n", id="flags of mmap"),
        pytest.param(BLOCKS, [], "10 10 00 1\n", id="signals blocked in handlers"),
    ],
)
def test_programs_of_reports_do_what_they_do_natively(
    pagelab: Pagelab, tmp_path: Path, source: str, options: list[str], expected: str | None
) -> None:
    program = compiled(tmp_path, source, *options)
    native = natively(program)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert expected is None or native == expected
    assert losses(pagelab) == []


def test_a_program_that_is_debugged_runs_natively(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, DEBUGS)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, natively(program)), recorded.stderr
    of_both = losses(pagelab)
    assert len(of_both) == 2
    for loss in of_both:
        assert "/bin/sh, which is debugged by another program (ptrace): it ran natively" in loss


KEEPS_FILE = r"""
int main(void) {
    char *memory = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open("/bin/sh", O_RDONLY), 0);
    printf("%ld\n", (long)mremap(memory, 4096, 4096, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, 0));
}
"""


@pytest.mark.parametrize(
    ("source", "output", "loss"),
    [
        pytest.param(SHARES_MEMORY, "1\n", "clone with CLONE_VM) failed with EINVAL", id="a child that shares memory"),
        pytest.param(LIMITS_FILES, "set\nmore\n", "ulimit -f) had no effect", id="a limit of file sizes"),
        pytest.param(
            KEEPS_FILE,
            "-1\n",
            "private mapping of a file with MREMAP_DONTUNMAP failed with EINVAL",
            id="a kept mapping",
        ),
    ],
)
def test_what_cannot_be_had_is_a_loss(pagelab: Pagelab, tmp_path: Path, source: str, output: str, loss: str) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, source))
    assert recorded.stdout == output, recorded.stderr
    assert any(loss in recorded_loss for recorded_loss in losses(pagelab))


def test_advice_repeats_losses(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, MISSES)).returncode == 0
    advice = pagelab("advise", "t.trace")
    assert advice.returncode == 0, advice.stderr
    assert "t.trace: the trace is incomplete: " in advice.stderr
    assert "userfaultfd (323) failed with ENOSYS" in advice.stderr


def test_a_trace_tells_of_numbers_that_valgrind_cuts(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(
        tmp_path, r"""int main(void) { volatile long double third = 1.0L / 3; printf("%.20Lf", third); }"""
    )
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert recorded.stdout.startswith("0.3333333333"), recorded.stderr
    (note,) = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)["meta"]["notes"]
    assert note.startswith("it computes with `long double` (x87), of which Valgrind keeps 64 bits")
    assert losses(pagelab) == []


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("env -i PATH=$PATH env", id="environment"),
        pytest.param("env -i PATH=$PATH LD_PRELOAD=libm.so.6 env", id="environment with a library to preload"),
        # The limit holds for what is executed, and descriptors are the lowest free ones.
        pytest.param('ulimit -n 50; sh -c "ulimit -n; exec 3<.; ls -l /proc/self/fd/4"', id="limit of descriptors"),
        pytest.param("python3 -c 'import os; print(os.open(\".\", 0))' <&- 2>/dev/null", id="closed standard input"),
        # ELF for another architecture.
        pytest.param(
            "cp /bin/true f; printf '\\267' | dd of=f bs=1 seek=18 conv=notrunc status=none; ./f", id="foreign"
        ),
    ],
)
def test_shells_do_what_they_do_natively(pagelab: Pagelab, tmp_path: Path, script: str) -> None:
    command = ("sh", "-c", f"({script}) 2>&1; echo $?")
    (tmp_path / "own").mkdir()
    native = subprocess.run(command, cwd=tmp_path / "own", capture_output=True, text=True, timeout=60, check=False)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", "env", "-C", tmp_path / "own", *command)
    assert (recorded.returncode, recorded.stdout) == (0, native.stdout), recorded.stderr
    assert losses(pagelab) == []


def test_a_cache_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(pagelab: Pagelab) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", "true", XDG_CACHE_HOME="/proc/nowhere")
    assert_fails(recorded, 2, "/proc/nowhere/pagelab: ", "let XDG_CACHE_HOME name a folder that you can write")


def test_the_program_ignores_what_the_recorder_was_told_to_ignore(tmp_path: Path) -> None:
    """As after nohup, and in the background of a script."""
    script = "trap '' INT HUP; \"$@\""
    program = ("sh", "-c", "kill -INT $$; kill -HUP $$; echo survived")
    recorded = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "record", "-q", "-o", "t.trace", "--", *program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (recorded.returncode, recorded.stdout) == (0, "survived\n"), recorded.stderr


INHERITS = r"""
/* Which standard streams there are, and one more, the mask, whether SIGINT is ignored, and the variables. */
extern char **environ;
int main(void) {
    sigset_t blocked;
    struct sigaction action;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    sigaction(SIGINT, NULL, &action);
    int flags[4];
    for (int i = 0; i < 3; i++) flags[i] = fcntl(i, F_GETFD);
    flags[3] = fcntl(atoi(getenv("OPEN")), F_GETFD);
    FILE *out = fopen("out", "a");
    for (int i = 0; i < 4; i++) fprintf(out, "%d", flags[i]);
    fprintf(out, "\t");
    fprintf(out, "%d%d", sigismember(&blocked, SIGUSR1), action.sa_handler == SIG_IGN);
    for (char **variable = environ; *variable; variable++) fprintf(out, "\t%s", *variable);
    fprintf(out, "\n");
    fclose(out);
    usleep(100000);
}
"""


LAYOUTS = ("LD_PRELOAD=", "GLIBC_TUNABLES=", "PAGELAB_LAYOUT")
"""Beginnings of the variables by which `measure` gives a program its layout"""


def _prepare_to_inherit() -> None:
    os.close(0)
    os.close(1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("command", "has_own_streams"),
    [
        pytest.param(["record", "-o", "t.trace"], False, id="record"),
        pytest.param(["record", "--single-step", "-o", "t.trace"], False, id="by single steps"),
        pytest.param(["record", "--faults", "-o", "t.faults"], False, id="faults", marks=needs_perf),
        pytest.param(["run", "--live", "-s", "radix"], False, id="live"),
        pytest.param(["contiguity", "-i", "0.02"], False, id="contiguity", marks=needs_frames),
        pytest.param(["measure", "-l", "4k", "-n", "1"], True, id="measure"),
        pytest.param(["major-faults", "--runs", "1"], True, id="major faults"),
        pytest.param(["major-faults", "--runs", "1", "--memory", "64MiB"], True, id="memory group"),
    ],
)
def test_a_program_inherits_what_the_command_was_started_with(
    tmp_path: Path, command: list[str], has_own_streams: bool
) -> None:
    """Without PATH Valgrind is still found. A shell would drop one variable and correct another."""
    if "--memory" in command:
        needs_memory_cgroup()
    program = compiled(tmp_path, INHERITS)
    folders = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
    descriptor = os.open(tmp_path, os.O_RDONLY)
    variables = {"OPEN": f"{descriptor}", "BASH_FUNC_f%%": "() { :; }", "PWD": "/nowhere"}
    for words in ((), (*COMMAND, *command, "--")):
        subprocess.run(
            [*words, program],
            cwd=tmp_path,
            env=variables | folders,
            preexec_fn=_prepare_to_inherit,
            pass_fds=[descriptor],
            timeout=60,
            # What measures needs programs that run longer, and says so after the first run.
            check=not has_own_streams,
        )
    os.close(descriptor)
    native, *others = (line.rstrip("\n").split("\t") for line in (tmp_path / "out").open())
    assert native[:2] == ["-1-100", "11"]
    assert others
    for inherited in others:
        assert inherited[0] == native[0] or (has_own_streams and inherited[0].endswith("00"))
        assert inherited[1] == native[1]
        assert {word for word in inherited[2:] if not word.startswith(LAYOUTS)} == set(native[2:])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file capabilities")
def test_a_program_with_capabilities_is_refused_before_valgrind_is_asked(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { return 0; }")
    version_2_effective, net_raw = 0x02000001, 1 << 13
    os.setxattr(program, "security.capability", struct.pack("<5I", version_2_effective, net_raw, 0, 0, 0))
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert_fails(recorded, 2, "has capabilities of its own", "record a copy without them")
