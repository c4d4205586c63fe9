"""What a program learns of its own signals and limits: from its handlers, and from files below /proc."""

import subprocess
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, needs_recorder
from test_recorder_limits import LIMITS
from test_recorder_natively import natively
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

FAULTS = r"""
#include <setjmp.h>
static sigjmp_buf back;
static char *address;
static void look(int number, siginfo_t *fault, void *context) {
    printf("%d %d %ld\n", number, fault->si_code, (long)((char *)fault->si_addr - address));
    siglongjmp(back, 1);
}
static void try(const char *where, int executes) {
    address = (char *)where;
    if (sigsetjmp(back, 1)) return;
    if (executes) ((void (*)(void))where)();
    printf("%d\n", *(volatile char *)where);
}
int main(void) {
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    char *data = map(4, 0);
    memset(data, 0xc3, PAGE);
    munmap(data + PAGE, PAGE);
    mprotect(data + 2 * PAGE, PAGE, PROT_NONE);
    for (int executes = 1; executes >= 0; executes--) {
        try(NULL, executes);
        try((char *)0x1001, executes);
        try((char *)0x10000000000, executes);
        /* Where Valgrind has its own memory, and the kernel. */
        if (executes) try((char *)0x7fe000001000, executes);
        if (executes) try((char *)0x70001000, executes);
        try(data + PAGE + 5, executes);
        try(data + 2 * PAGE + 5, executes);
        try(data + 5, executes);
        if (executes) try("read-only", executes);
    }
}
"""

LOOKS_AT_ITS_SIGNALS = r"""
#include <pthread.h>
#include <sys/syscall.h>
static void show(const char *path) {
    char line[200];
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file)) if (!strncmp(line, "Sig", 3) && line[3] != 'Q') fputs(line, stdout);
    fclose(file);
}
static void *in_thread(void *unused) {
    char path[60];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    /* pthread_create blocks all signals of its caller for a moment. */
    usleep(200000);
    show("/proc/thread-self/status");
    sprintf(path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
    show(path);
    show("/proc/self/status");
    return 0;
}
static void handle(int number) { show("/proc/self/status"); }
int main(void) {
    char path[60];
    pthread_t thread;
    int file = open("/proc/self/status", O_RDONLY);
    printf("%d %d %d\n", file, fcntl(file, F_GETFD), fcntl(file, F_GETFL) & O_ACCMODE);
    close(file);
    signal(SIGUSR1, handle);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGRTMIN + 3, handle);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, 0);
    show("/proc/self/status");
    sprintf(path, "/proc/%d/status", getpid());
    show(path);
    raise(SIGUSR1);
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    fflush(stdout);
    if (!fork()) {
        show("/proc/self/status");
        fflush(stdout);
        execl("/bin/grep", "grep", "Sig[BIC]", "/proc/self/status", NULL);
    }
    wait(0);
}
"""

LOOKS_AT_ITS_MEMORY = r"""
static size_t pages(void) {
    size_t size, data;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%zu %*u %*u %*u %*u %zu", &size, &data);
    fclose(file);
    return size;
}
int main(void) {
    size_t before = pages();
    printf("%d", before < 4096);
    map_kind(16 * MIB, PROT_NONE, MAP_PRIVATE);
    printf(" %zu", pages() - before);
    /* Programs that limit themselves to what they have and some more. */
    limit(RLIMIT_AS, pages() * PAGE + 40 * MIB);
    printf(" %d\n", COUNT(map_kind(16 * MIB, BOTH, MAP_PRIVATE)));
    fflush(stdout);
    limit(RLIMIT_AS, 512 * MIB);
    limit(RLIMIT_DATA, 256 * MIB);
    return system("grep -E 'data|stack' /proc/self/limits");
}
"""


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(FAULTS, [], id="faults"),
        pytest.param(LOOKS_AT_ITS_SIGNALS, ["-pthread"], id="signals in status"),
        pytest.param(LIMITS + LOOKS_AT_ITS_MEMORY, [], id="memory in statm and limits"),
    ],
)
def test_a_program_learns_of_itself_what_it_learns_natively(
    pagelab: Pagelab, tmp_path: Path, source: str, options: list[str]
) -> None:
    program = compiled(tmp_path, source, *options)
    native = natively(program)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert losses(pagelab) == []


IGNORES = r"""
/* Without arguments it prints its ignored signals. Otherwise it ignores those before "--" and executes what follows. */
int main(int n, char **names) {
    char text[4096];
    if (n == 1) {
        text[read(open("/proc/self/status", O_RDONLY), text, sizeof text - 1)] = 0;
        return write(1, strstr(text, "SigIgn"), 25) != 25;
    }
    struct { void *handler; unsigned long flags, restorer, mask; } ignored = {SIG_IGN};
    for (names++; strcmp(*names, "--"); names++) syscall(SYS_rt_sigaction, atoi(*names), &ignored, 0, 8);
    execv(names[1], names + 1);
    return 1;
}
"""


@pytest.mark.parametrize("method", [[], ["--single-step"]], ids=["valgrind", "single-step"])
@pytest.mark.parametrize("signals", [[], ["10", "40"], ["32"], ["20", "32", "33"]], ids=" ".join)
def test_a_program_inherits_which_signals_are_ignored(tmp_path: Path, signals: list[str], method: list[str]) -> None:
    """32 and 33 are the C library's own: posix_spawn() ignores them in the new process where they have a handler."""
    program = compiled(tmp_path, IGNORES, "-static")
    ignoring: list[str | Path] = [program, *signals, "--"]
    native = subprocess.run([*ignoring, program], capture_output=True, text=True, check=True).stdout
    wanted = sum(1 << int(number) - 1 for number in signals)
    assert int(native.split()[1], 16) & wanted == wanted
    record: list[str | Path] = ["record", "-q", *method, "-o", tmp_path / "t.trace", "--", program]
    recorded = subprocess.run([*ignoring, *COMMAND, *record], capture_output=True, text=True, timeout=120, check=False)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr


STEPS = r"""
#include <sys/ptrace.h>
static void debug(int request) {
    int child = fork(), status, stops = 0;
    if (!child) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); getppid(); raise(SIGUSR1); _exit(5); }
    waitpid(child, &status, 0);
    printf("%d", WSTOPSIG(status));
    do {
        int signal = WSTOPSIG(status) == SIGUSR1 ? SIGUSR1 : 0;
        /* Under Valgrind it stops a second time for a signal that ends it. */
        if (signal && stops++ == 0) printf(" stopped");
        ptrace(request, child, 0, signal);
        waitpid(child, &status, 0);
    } while (WIFSTOPPED(status));
    printf(" %d\n", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}
int main(int n, char **names) { debug(atoi(names[1])); }
"""


@pytest.mark.parametrize("call", [7, 9, 24], ids=["PTRACE_CONT", "PTRACE_SINGLESTEP", "PTRACE_SYSCALL"])
def test_a_recorded_process_can_be_debugged_to_its_end(pagelab: Pagelab, tmp_path: Path, call: int) -> None:
    """Its signals, its end and its status are seen; steps would be Valgrind's."""
    program = compiled(tmp_path, STEPS)
    recorded = pagelab("record", "-q", "--max-idle", "20", "-o", "t.trace", "--", program, str(call))
    assert (recorded.returncode, recorded.stdout) == (0, "19 stopped -10\n"), recorded.stderr
    lost = losses(pagelab)
    assert len(lost) == (call != 7)
    assert all("it debugs a process that is recorded (ptrace)" in loss for loss in lost)


FAULTS_OF_DEBUGGED = r"""
#include <sys/mman.h>
#include <sys/ptrace.h>
static void handler(int signal) { printf(" handler %d", signal); fflush(stdout); _exit(3); }
static void debug(int at, int passes) {
    int child = fork(), status;
    if (!child) {
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        signal(SIGSEGV, handler); signal(SIGILL, handler); signal(SIGFPE, handler);
        signal(SIGTRAP, handler);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        switch (at) {
        case 0: ((void (*)(void))page)();
        case 1: ((void (*)(void))0x1000)();
        case 2: asm volatile("ud2");
        case 3: asm volatile("xor %%edx, %%edx; mov %%edx, %%ecx; mov $1, %%eax; div %%ecx" ::: "eax", "ecx", "edx");
        case 4: asm volatile("int3"); _exit(4);
        case 5: ((void (*)(void))0)();
        }
    }
    waitpid(child, &status, 0);
    printf("stopped %d", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    fflush(stdout);
    if (passes)
        ptrace(PTRACE_CONT, child, 0, passes == 1 ? WSTOPSIG(status) : 0);
    else
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf(" %d\n", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}
int main(void) { for (int i = 0; i < 12; i++) debug(i / 2, i % 2); debug(4, 2); }
"""


def test_a_debugger_sees_faults_before_the_handler(pagelab: Pagelab, tmp_path: Path) -> None:
    """gdb tests a child in this way as it starts. Its handler wrote of a fatal error and read its debug information."""
    program = compiled(tmp_path, FAULTS_OF_DEBUGGED)
    native = subprocess.run([program], capture_output=True, text=True, check=True, timeout=30).stdout
    recorded = pagelab("record", "-q", "--max-idle", "20", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert native.splitlines()[:4] == ["stopped 11 -9", "stopped 11 handler 11 3"] * 2
    assert native.splitlines()[8:10] == ["stopped 5 -9", "stopped 5 handler 5 3"]
    assert native.splitlines()[10:] == ["stopped 11 -9", "stopped 11 handler 11 3", "stopped 5 4"]


REGISTERS_OF_DEBUGGED = r"""
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
extern char breakpoint[], illegal[], second[];
#define JUMP(to) asm volatile("stc; jmp *%0" :: "r"(to))
static void debug(int at) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *places[] = {page, (char *)0x1000, 0, illegal, breakpoint};
    struct user_regs_struct all, other;
    struct iovec area = {&other, sizeof other}, part = {&other, 8};
    int child = fork(), status, alike = 1;
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        asm volatile("mov %0, %%r12; mov $7, %%r15" :: "r"(77L + at) : "r12", "r15");
        switch (at) {
        case 0: JUMP(page);
        case 1: JUMP(0x1000L);
        case 2: JUMP(0L);
        case 3: asm volatile("stc; illegal: ud2");
        case 4: asm volatile("stc; breakpoint: int3");
        }
    }
    waitpid(child, &status, 0);
    int failed = ptrace(PTRACE_GETREGS, child, 0, &all) || ptrace(PTRACE_GETREGSET, child, 1, &area);
    for (long i = 0; i < sizeof all / 8; i++) {
        long word = ptrace(PTRACE_PEEKUSER, child, 8 * i, 0);
        alike &= word == ((long *)&all)[i] && word == ((long *)&other)[i];
    }
    failed |= ptrace(PTRACE_GETREGSET, child, 1, &part);
    printf("%d %d", failed || !alike, (int)(all.rip - (long)places[at]));
    printf(" %d %d %d %d", (int)all.r12, (int)other.r15, (int)all.eflags & 1, (int)all.orig_rax);
    printf(" %x %x %x\n", (int)all.cs, (int)all.ss, (int)all.ds);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}
/* Its tool has stopped the child once. The next signal stops it elsewhere. */
static void stop_twice(void) {
    int child = fork(), status;
    if (!child) { ptrace(PTRACE_TRACEME, 0, 0, 0); asm volatile("int3; second: nop"); raise(SIGUSR1); _exit(0); }
    waitpid(child, &status, 0);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    long there = ptrace(PTRACE_PEEKUSER, child, offsetof(struct user_regs_struct, rip), 0);
    printf("%d %d\n", WSTOPSIG(status), there == (long)second);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}
int main(int n, char **names) { if (n > 1) stop_twice(); else for (int at = 0; at < 5; at++) debug(at); }
"""


def test_a_debugger_sees_registers_of_the_program_at_faults(pagelab: Pagelab, tmp_path: Path) -> None:
    """gdb compares the program counter of its test with the address without code."""
    program = compiled(tmp_path, REGISTERS_OF_DEBUGGED)
    native = subprocess.run([program], capture_output=True, text=True, check=True, timeout=30).stdout
    assert native.splitlines() == [f"0 {int(at == 4)} {77 + at} 7 1 -1 33 2b 0" for at in range(5)]
    recorded = pagelab("record", "-q", "--max-idle", "20", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert losses(pagelab) == []
    recorded = pagelab("record", "-q", "--force", "--max-idle", "20", "-o", "t.trace", "--", program, "twice")
    assert (recorded.returncode, recorded.stdout) == (0, "10 0\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert "registers that it saw were Valgrind's" in loss
