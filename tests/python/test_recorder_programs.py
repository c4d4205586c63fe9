"""Programs that a recorder may hang on or change. Each does what it does natively, or its trace says what it lacks."""

import ctypes
import errno
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, needs_recorder

pytestmark = needs_recorder

COMMON = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096UL
static char *map(size_t pages, int flags) {
    return mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}
static void touch(volatile char *memory, size_t pages) { for (size_t i = 0; i < pages; i++) memory[i * PAGE] = 1; }
"""

REPAIRS = r"""
/* Each page is read-only until a handler has seen its first write. */
static int repaired;
static void repair(int number, siginfo_t *fault, void *context) {
    repaired++;
    mprotect((void *)((size_t)fault->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}
int main(void) {
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    char *memory = map(100, 0);
    sigaction(SIGSEGV, &action, 0);
    for (int round = 0; round < 4; round++) {
        mprotect(memory, 100 * PAGE, PROT_READ);
        touch(memory, 100);
    }
    printf("%d\n", repaired);
}
"""

LOCKS_FUTURE = r"""
#include <sys/resource.h>
#include <sys/shm.h>
int main(void) {
    /* What grows or becomes writable is populated, but not what is locked as it faults. */
    if (mlockall(MCL_FUTURE) || map(2048, 0) == MAP_FAILED) return 1;
    char *reserved = mmap(0, 1024 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mprotect(reserved, 1024 * PAGE, PROT_READ | PROT_WRITE)) return 1;
    if (mremap(reserved, 1024 * PAGE, 2048 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED) return 1;
    char *parts = mmap(0, 600 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 600; i += 2) mprotect(parts + i * PAGE, PAGE, PROT_READ);
    if (mprotect(parts, 600 * PAGE, PROT_READ | PROT_WRITE)) return 1;
    int segment = shmget(IPC_PRIVATE, 400 * PAGE, 0600);
    char *attached = shmat(segment, 0, 0);
    shmctl(segment, IPC_RMID, 0);
    if (attached == (char *)-1) return 1;
    if (mlockall(MCL_FUTURE | MCL_ONFAULT) || map(100, MAP_POPULATE) == MAP_FAILED) return 1;
    munlockall();
    /* Beyond the limit nothing is locked. */
    struct rlimit limit = {PAGE, PAGE};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    setuid(65534);
    return !mlock(map(300, 0), 300 * PAGE);
}
"""

WRITTEN_CODE = r"""
/* mov $n, %eax; ret */
static void generate(char *code, int n) { memcpy(code, (char[]){0xb8, n, 0, 0, 0, 0xc3}, 6); }
static int run_all(char *written, char *executed) {
    int sum = 0;
    for (int n = 1; n <= 4; n++) { generate(written, n); sum = sum * 10 + ((int (*)(void))executed)(); }
    return sum;
}
int main(void) {
    int both = PROT_READ | PROT_WRITE, all = both | PROT_EXEC, sum = 0;
    int file = memfd_create("code", 0);
    char name[] = "code-XXXXXX", code[6];
    ftruncate(file, PAGE);
    char *written = mmap(0, PAGE, both, MAP_SHARED, file, 0);
    printf("%d", run_all(written, mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0)));
    char *same = mmap(0, PAGE, all, MAP_SHARED, file, 0);
    printf(" %d", run_all(same, same));
    int other = mkstemp(name);
    unlink(name);
    ftruncate(other, PAGE);
    char *own = mmap(0, PAGE, all, MAP_PRIVATE, other, 0);
    printf(" %d", run_all(own, own));
    char *called = mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, other, 0);
    for (int n = 1; n <= 4; n++) {
        generate(code, n); pwrite(other, code, 6, 0); sum = sum * 10 + ((int (*)(void))called)();
    }
    printf(" %d", sum);
    for (int n = 1, sum = 0; n <= 4; n++) {
        mprotect(own, PAGE, both); generate(own, n); mprotect(own, PAGE, PROT_READ | PROT_EXEC);
        sum = sum * 10 + ((int (*)(void))own)();
        if (n == 4) printf(" %d\n", sum);
    }
}
"""

EXECUTES_ITSELF = r"""
extern char **environ;
int main(int n, char **names) {
    char path[4096] = "";
    readlink("/proc/self/exe", path, 4095);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char by_descriptor[40], by_id[40];
    sprintf(by_descriptor, "/proc/self/fd/%d", file);
    sprintf(by_id, "/proc/%d/exe", getpid());
    printf("%s %s\n", names[0], strrchr(path, '/') + 1); fflush(stdout);
    switch (atoi(names[1])) {
    case 0: execl("/proc/self/exe", "one", "1", NULL); break;
    case 1: execl(by_id, "two", "2", NULL); break;
    case 2: execl(by_descriptor, "three", "3", NULL); break;
    case 3: fexecve(file, (char *[]){"four", "4", NULL}, environ); break;
    case 4: {
        int copy = memfd_create("copy", MFD_CLOEXEC), n;
        while ((n = read(file, path, 4096)) > 0) write(copy, path, n);
        fexecve(copy, (char *[]){"five", "5", NULL}, environ); break;
    }
    default: return 0;
    }
    perror("exec"); return 1;
}
"""

DROPS = r"""
/* Gives up its rights, goes on, forks, and executes another program. */
int main(int n, char **names) {
    int status;
    if (setgid(65534) || setuid(65534)) return 2;
    touch(map(100, 0), 100);
    if (!fork()) { touch(map(100, 0), 100); execl("/bin/sh", "sh", "-c", "exit 3", NULL); _exit(9); }
    wait(&status);
    printf("%d %d\n", getuid(), WEXITSTATUS(status));
}
"""

NESTED = r"""
static int child(int depth) {
    int status;
    if (depth == 0) return 0;
    if (!fork()) _exit(child(depth - 1) + 1);
    wait(&status);
    return WEXITSTATUS(status);
}
int main(void) { fprintf(stderr, "%d\n", child(12)); }
"""

DEEP = r"""
static int deep(int n) {
    volatile char room[65536];
    room[0] = n; room[65535] = 1;
    return n ? deep(n - 1) + room[0] : 0;
}
int main(void) { deep(600); puts("ok"); }
"""

MOVED = r"""
int main(void) {
    char *old = map(50, 0);
    old[0] = 7;
    char *new = mremap(old, 50 * PAGE, 50 * PAGE, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, NULL);
    printf("%d %d %d\n", new != MAP_FAILED, new[0], old[0]);
}
"""

SUPERVISES = r"""
int main(void) {
    int child = fork(), status;
    if (!child) _exit(5);
    int descriptor = syscall(434 /* pidfd_open */, child, 0);
    struct { unsigned long flags, mode, resolve; } how = {O_RDONLY, 0, 0};
    int opened = syscall(437 /* openat2 */, AT_FDCWD, "/etc/passwd", &how, sizeof how);
    waitpid(child, &status, 0);
    printf("%d %d %d\n", descriptor >= 0, opened >= 0, WEXITSTATUS(status));
}
"""

MISSES = r"""int main(void) { printf("%d\n", syscall(SYS_userfaultfd, O_CLOEXEC) < 0 && errno == ENOSYS); }"""

CLONES = r"""
int main(void) {
    unsigned long how[11] = {0, 0, 0, 0, SIGCHLD};
    int child = syscall(435 /* clone3 */, how, 88);
    if (child == 0) _exit(0);
    printf("%d\n", child < 0 && errno == ENOSYS);
}
"""

# landlock_create_ruleset (444), landlock_restrict_self (446). Without rights the second fails with EPERM.
SANDBOXED = r"""
static int restricts(int rules, unsigned flags) { errno = 0; return syscall(446, rules, flags) ? errno : 0; }
int main(void) {
    long rights = 4 /* LANDLOCK_ACCESS_FS_READ_FILE */;
    int rules = syscall(444, &rights, sizeof rights, 0);
    if (getuid() == 0) setuid(65534);
    int alone = restricts(rules, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int wrong[] = {restricts(-1, 0), restricts(open("/", O_RDONLY), 0), restricts(rules, 1U << 31)};
    printf("%d %d %d %d %d\n", alone, wrong[0], wrong[1], wrong[2], restricts(rules, 0));
}
"""


def has_landlock() -> bool:
    # landlock_create_ruleset of nothing tells the version.
    version: int = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return version > 0


needs_landlock = pytest.mark.skipif(not has_landlock(), reason="the kernel has no landlock")

RING = r"""
#include <linux/io_uring.h>
/* Reads a file of 1,024 pages by io_uring, half of it by a vector. */
int main(void) {
    struct io_uring_params about = {0};
    int ring = syscall(SYS_io_uring_setup, 8, &about), both = PROT_READ | PROT_WRITE, file = memfd_create("data", 0);
    if (ring < 0) return 77;
    ftruncate(file, 1024 * PAGE);
    char *in = mmap(0, about.sq_off.array + 4 * about.sq_entries, both, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries =
        mmap(0, about.sq_entries * sizeof *entries, both, MAP_SHARED, ring, IORING_OFF_SQES);
    char *memory = map(1024, 0);
    struct iovec vectors[] = {{memory, 256 * PAGE}, {memory + 256 * PAGE, 256 * PAGE}};
    entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_READV, .fd = file, .addr = (size_t)vectors, .len = 2};
    entries[1] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = file, .addr = (size_t)memory + 512 * PAGE,
                                       .len = 512 * PAGE, .user_data = 1};
    ((unsigned *)(in + about.sq_off.array))[1] = 1;
    __atomic_store_n((unsigned *)(in + about.sq_off.tail), 2, __ATOMIC_RELEASE);
    return syscall(SYS_io_uring_enter, ring, 2, 2, IORING_ENTER_GETEVENTS, 0, 0) != 2;
}
"""


def compiled(folder: Path, source: str, *options: str) -> Path:
    program = folder / "program"
    (folder / "program.c").write_text(COMMON + source)
    subprocess.run(["gcc", "-O1", "-w", *options, "-o", program, folder / "program.c"], check=True)
    return program


def lines(text: str) -> list[str]:
    """Of a program's standard error: without what the recorder says."""
    return [line for line in text.splitlines() if not line.startswith(("pagelab: ", "t.trace: "))]


def losses(pagelab: Pagelab) -> list[str]:
    about = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)
    listed: list[str] = about["meta"].get("losses", [])
    assert about["complete"] == (not listed)
    return listed


def processes(pagelab: Pagelab) -> int:
    number: int = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)["event_counts"]["processes"]
    return number


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        pytest.param(REPAIRS, [], "400\n", id="handlers repair faults"),
        pytest.param(WRITTEN_CODE, [], "1234 1234 1234 1234 1234\n", id="code of files changes"),
        pytest.param(
            EXECUTES_ITSELF,
            ["0"],
            "{0} program\none program\ntwo program\nthree program\nfour program\nfive memfd:copy (deleted)\n",
            id="programs execute themselves",
        ),
        pytest.param(MOVED, [], "1 7 0\n", id="mremap leaves a mapping"),
        pytest.param(SUPERVISES, [], "1 1 5\n", id="newer system calls"),
    ],
)
def test_programs_do_what_they_do_natively(
    pagelab: Pagelab, tmp_path: Path, source: str, arguments: list[str], expected: str
) -> None:
    program = compiled(tmp_path, source)
    native = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, *arguments)
    assert (recorded.returncode, recorded.stdout) == (0, native.stdout), recorded.stderr
    assert native.stdout == expected.format(program)
    assert losses(pagelab) == []


def test_the_name_that_a_program_is_called_by_stays(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, r"""int main(int n, char **names) { puts(names[0]); }""")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", "bash", "-c", f"exec -a myname {program}")
    assert recorded.stdout == "myname\n", recorded.stderr


@pytest.mark.parametrize("limit", ["unlimited", str(64 << 10)])
def test_stacks_grow_as_far_as_their_limit(tmp_path: Path, limit: str) -> None:
    program = compiled(tmp_path, DEEP)
    command = f'ulimit -s {limit}; exec "$@"'
    recorded = subprocess.run(
        ["bash", "-c", command, "bash", *COMMAND, "record", "-q", "-o", "t.trace", "--", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "cannot modify limit" in recorded.stderr:
        pytest.skip("the hard limit is lower")
    assert (recorded.returncode, recorded.stdout) == (0, "ok\n"), recorded.stderr


def test_nothing_of_valgrind_is_in_the_programs_standard_error(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, NESTED))
    assert lines(recorded.stderr) == ["12"]
    assert processes(pagelab) == 13


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_processes_without_rights_are_recorded(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, DROPS))
    assert (recorded.stdout, lines(recorded.stderr)) == ("65534 3\n", [])
    assert (processes(pagelab), losses(pagelab)) == (2, [])


def _has_namespaces() -> bool:
    return subprocess.run(["unshare", "-fp", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _has_namespaces(), reason="PID namespaces are not allowed here")
def test_processes_of_other_pid_namespaces_are_told_apart(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, r"""int main(void) { touch(map(100, 0), 100); printf("%d\n", getpid()); }""")
    script = f"{program}; {program} & wait; echo done"
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", "unshare", "-fp", "sh", "-c", script)
    assert (recorded.returncode, recorded.stdout) == (0, "2\n3\ndone\n"), recorded.stderr
    assert (processes(pagelab), losses(pagelab)) == (4, [])


def test_a_program_in_another_root_runs_natively_if_valgrind_is_not_there(pagelab: Pagelab, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root changes its root")
    inside = tmp_path / "root"
    inside.mkdir()
    compiled(inside, r"""int main(void) { puts("inside"); return 4; }""", "-static")
    source = r"""int main(int n, char **names) {
        if (chroot(names[1]) || chdir("/")) return 1;
        execl("/program", "program", NULL);
        return 2;
    }"""
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, source), inside)
    assert (recorded.returncode, recorded.stdout) == (4, "inside\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert "/program, which was executed where Valgrind's own files cannot be reached" in loss


@pytest.mark.parametrize(
    ("source", "status", "output", "loss"),
    [
        pytest.param(MISSES, 0, "1\n", "userfaultfd (323) failed with ENOSYS", id="missing system call"),
        pytest.param(CLONES, 0, "1\n", "clone3 (435) failed with ENOSYS", id="clone3 without a C library"),
        pytest.param(
            SANDBOXED,
            0,
            f"{errno.EPERM} {errno.EBADF} {errno.EBADFD} {errno.EINVAL} 0\n",
            "sandbox of files (landlock), which was not set up",
            id="landlock",
            marks=needs_landlock,
        ),
    ],
)
def test_what_the_program_did_not_get_is_a_loss_that_all_commands_tell(
    pagelab: Pagelab, tmp_path: Path, source: str, status: int, output: str, loss: str
) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, source))
    assert (recorded.returncode, recorded.stdout) == (status, output), recorded.stderr
    assert loss in recorded.stderr
    (only,) = losses(pagelab)
    assert loss in only
    shown = pagelab("trace", "info", "t.trace").stdout
    assert re.search(r"^complete +no: see what is missing below$", shown, re.MULTILINE), shown
    assert re.search(rf"^missing +process \d+: .*{re.escape(loss)}", shown, re.MULTILINE), shown
    assert loss in pagelab("run", "t.trace", "-s", "radix").stderr


@pytest.mark.parametrize(
    ("code", "named"),
    [
        pytest.param(".byte 0x62, 0xf1, 0x7d, 0x48, 0xfe, 0xc1", "0x62 0xF1 0x7D 0x48", id="vpaddd of 512 bits"),
        pytest.param("sub $128, %rsp; pushfq; popfw", "0x66 0x9D", id="popf of 16 bits"),
    ],
)
def test_an_instruction_that_valgrind_does_not_know_is_a_loss(
    pagelab: Pagelab, tmp_path: Path, code: str, named: str
) -> None:
    source = f'int main(void) {{ __asm__ volatile("{code}"); }}'
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, source))
    assert recorded.returncode == 132, recorded.stderr
    (loss,) = losses(pagelab)
    assert f"does not know the instruction {named}" in loss
    assert "SIGILL" in loss


def test_processes_that_outlive_the_program_do_not_hold_the_recorder(pagelab: Pagelab) -> None:
    command = ("sh", "-c", "sleep 1000 & echo started")
    recorded = pagelab("record", "-q", "--max-idle", "0.5", "-o", "t.trace", "--", *command)
    assert (recorded.returncode, recorded.stdout) == (0, "started\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert "the program has ended, but not its processes" in loss


def _has_ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_signal_after_the_programs_end_ends_the_recorder(pagelab: Pagelab, tmp_path: Path) -> None:
    command = [*COMMAND, "record", "-q", "-o", "t.trace", "--", "sh", "-c", "sleep 1000 & echo $$"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        program = int(recorder.stdout.readline())
        while not _has_ended(program) and recorder.poll() is None:
            time.sleep(0.05)
        recorder.terminate()
        _, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == 128 + signal.SIGTERM, errors
    # On a busy machine there is also a loss that tells of a process that has not begun.
    assert any("a signal ended the recorder before the program's last process" in loss for loss in losses(pagelab))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            """int main(void) { char *memory = map(1024, 0); touch(memory, 1024); munmap(memory + 512 * PAGE, PAGE);
            if (!madvise(memory, 1024 * PAGE, MADV_DONTNEED)) return 1;
            touch(memory, 512); touch(memory + 513 * PAGE, 511); }""",
            1024 + 1023,
            id="madvise over a hole",
        ),
        pytest.param("int main(void) { return mlock(map(2048, 0), 2048 * PAGE); }", 2048, id="mlock"),
        pytest.param("int main(void) { return syscall(SYS_mlock2, map(2048, 0), 2048 * PAGE, 0); }", 2048, id="mlock2"),
        pytest.param("int main(void) { map(2048, MAP_LOCKED); }", 2048, id="MAP_LOCKED"),
        pytest.param(LOCKS_FUTURE, 5096, id="mlockall, future"),
        pytest.param("int main(void) { map(2048, 0); return mlockall(MCL_CURRENT); }", 2048, id="mlockall, current"),
        # With pages of the program and its libraries.
        pytest.param(
            "int main(void) { return mlockall(MCL_CURRENT | MCL_FUTURE) || map(2048, 0) == MAP_FAILED; }",
            2140,
            id="mlockall, both",
        ),
        pytest.param(
            """int main(void) { char *to = map(1024, 0), *from = map(1024, 0);
            struct iovec a = {from, 1024 * PAGE}, b = {to, 1024 * PAGE};
            return process_vm_writev(getpid(), &a, 1, &b, 1, 0) != 1024 * PAGE; }""",
            2048,
            id="process_vm_writev",
        ),
        pytest.param(RING, 1024, id="io_uring"),
    ],
)
def test_memory_that_calls_fill_or_empty_is_counted(
    pagelab: Pagelab, tmp_path: Path, source: str, expected: int
) -> None:
    """Within 1 % of the kernel's count, of what a program without the calls has less."""
    faults = []
    for text in (source, "int main(void) { return 0; }"):
        program = compiled(tmp_path, text)
        recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program)
        if recorded.returncode == 77:
            pytest.skip("this kernel has no io_uring")
        assert recorded.returncode == 0, recorded.stderr
        replayed = pagelab("run", "t.trace", "-s", "radix", "--json", "-")
        faults.append(json.loads(replayed.stdout)["results"][0]["stats"]["fault.minor.count"])
    assert faults[0] - faults[1] == pytest.approx(expected, rel=0.05 if "MCL_CURRENT" in source else 0.01)
