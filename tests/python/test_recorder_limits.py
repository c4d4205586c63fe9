"""Limits of resources that a program sets itself or inherits: they hold for the program, not for the recorder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, needs_recorder
from test_recorder_natively import natively
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

LIMITS = r"""
#include <pthread.h>
#include <sys/resource.h>
#include <sys/shm.h>
#define MIB (1UL << 20)
static int limit(int resource, size_t bytes) {
    struct rlimit limit = {bytes, bytes};
    return setrlimit(resource, &limit);
}
/* How often the call can be made before it fails with ENOMEM. */
#define COUNT(call) ({ int n = 0; while (n < 1000 && (call) != MAP_FAILED) n++; n < 1000 && errno == ENOMEM ? n : -1; })
static void *map_kind(size_t bytes, int protection, int flags) {
    return mmap(0, bytes, protection, MAP_ANONYMOUS | flags, -1, 0);
}
enum { BOTH = PROT_READ | PROT_WRITE };
"""

LIMITS_ITS_ADDRESS_SPACE = r"""
int main(void) {
    struct rlimit is;
    /* Valgrind itself would have no memory left. */
    printf("%d", limit(RLIMIT_AS, 300 * MIB));
    getrlimit(RLIMIT_AS, &is);
    printf(" %lu %lu\n", is.rlim_cur >> 20, is.rlim_max >> 20);
    char *one = map_kind(16 * MIB, BOTH, MAP_PRIVATE);
    printf("%d", COUNT(map_kind(16 * MIB, n % 2 ? PROT_NONE : BOTH, n % 3 ? MAP_PRIVATE : MAP_SHARED)));
    printf(" %d", mmap(one, 16 * MIB, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == one);
    printf(" %d", mremap(one, 16 * MIB, 32 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    printf(" %d", mremap(one, 16 * MIB, 16 * MIB, MREMAP_MAYMOVE | 4) == MAP_FAILED && errno == ENOMEM);
    printf(" %d", sbrk(16 * MIB) == (void *)-1 && errno == ENOMEM);
    int segment = shmget(IPC_PRIVATE, 16 * MIB, 0600);
    printf(" %d", shmat(segment, 0, 0) == (void *)-1 && errno == ENOMEM);
    shmctl(segment, IPC_RMID, 0);
    munmap(one, 16 * MIB);
    printf(" %d", sbrk(15 * MIB) != (void *)-1);
    printf(" %d\n", malloc(16 * MIB) == NULL);
    fflush(stdout);
    /* Children inherit it, whether they are recorded or not. */
    int status;
    if (!fork()) { printf("%d\n", map_kind(16 * MIB, BOTH, MAP_PRIVATE) == MAP_FAILED); exit(0); }
    wait(&status);
    return system("ulimit -v");
}
"""

LIMITS_ITS_DATA = r"""
int main(void) {
    printf("%d", limit(RLIMIT_DATA, 200 * MIB));
    printf(" %d", COUNT(map_kind(16 * MIB, BOTH, MAP_PRIVATE)));
    printf(" %d", sbrk(16 * MIB) == (void *)-1);
    /* Memory that cannot be written, or is shared, does not count. */
    char *read_only = map_kind(64 * MIB, PROT_READ, MAP_PRIVATE);
    printf(" %d", read_only != MAP_FAILED);
    printf(" %d", map_kind(64 * MIB, BOTH, MAP_SHARED) != MAP_FAILED);
    printf(" %d\n", mprotect(read_only, 64 * MIB, BOTH) && errno == ENOMEM);
    fflush(stdout);
    return system("ulimit -d");
}
"""

LIMITS_ITS_HEAP = r"""
int main(void) {
    limit(RLIMIT_DATA, 64 * MIB);
    printf("%d", COUNT(sbrk(4 * MIB)));
    limit(RLIMIT_DATA, 0);
    printf(" %d %d\n", sbrk(4 * MIB) == (void *)-1, errno == ENOMEM);
}
"""

LIMITS_ITS_STACK = r"""
static int recurse(volatile char *above, int depth) {
    char here[4096];
    here[0] = above[0] + depth;
    return depth == 0 ? here[0] : recurse(here, depth - 1) + here[0];
}
static void overflow(int number) { write(1, "overflow\n", 9); _exit(0); }
int main(void) {
    static char other[65536], filled[4096];
    /* The stack must not grow by 7 MiB, since other memory has taken what the limit leaves. */
    stack_t stack = {other, 0, sizeof other};
    struct sigaction action = {.sa_handler = overflow, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGSEGV, &action, 0);
    limit(RLIMIT_AS, 100 * MIB);
    printf("%d\n", recurse(filled, 250) != 1);
    fflush(stdout);
    COUNT(map_kind(MIB, PROT_NONE, MAP_PRIVATE));
    recurse(filled, 1750);
    puts("grew");
}
"""

RAISES_ITS_LIMITS = r"""
int main(void) {
    int resources[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK};
    struct rlimit is;
    for (int i = 0; i < 3; i++) {
        printf("%d", limit(resources[i], 512 * MIB));
        is = (struct rlimit){2, 1};
        printf(" %d", setrlimit(resources[i], &is) && errno == EINVAL);
        printf(" %d", prlimit(0, resources[i], (void *)8, 0) && errno == EFAULT);
        if (!fork()) {
            setuid(65534);
            printf(" %d\n", limit(resources[i], 600 * MIB) && errno == EPERM);
            exit(0);
        }
        wait(0);
        printf(" %d\n", limit(resources[i], 1024 * MIB));
        fflush(stdout);
    }
    return system("ulimit -v; ulimit -d; ulimit -s");
}
"""

OF_OTHERS = r"""
static const int all[] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_AS, RLIMIT_NOFILE, RLIMIT_CORE};
static const long values[] = {20, MIB, 1024 * MIB, 4 * MIB, 4096 * MIB, 64, 4096};
#define EACH(call) do { for (int i = 0; i < 7; i++) call; puts(""); fflush(stdout); } while (0)
static void change(int process, int resource, long soft, long hard) {
    struct rlimit to = {soft, hard}, was = {7, 7};
    errno = 0;
    int result = prlimit(process, resource, soft ? &to : 0, &was);
    printf(" %d/%d %ld:%ld", result, errno, (long)was.rlim_cur, (long)was.rlim_max);
}
static void *in_thread(void *nothing) {
    int thread = syscall(SYS_gettid);
    struct rlimit descriptors = {100, 200};
    change(thread, RLIMIT_CPU, 30, 60); change(0, RLIMIT_CPU, 0, 0); change(thread, RLIMIT_AS, 4096 * MIB, 8192 * MIB);
    prlimit(thread, RLIMIT_NOFILE, &descriptors, 0);
    puts("");
    return 0;
}
int main(void) {
    int to_child[2], to_parent[2], status;
    char byte;
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    pipe(to_child); pipe(to_parent);
    int child = fork();
    if (!child) {
        read(to_child[0], &byte, 1);
        EACH(change(0, all[i], 0, 0)); EACH(change(getppid(), all[i], 0, 0));
        system("ulimit -t; ulimit -f; ulimit -v; ulimit -n; grep -c 'file size  *1048576  *1048576' /proc/self/limits");
        EACH(change(0, all[i], values[i] / 2, values[i]));
        write(to_parent[1], "", 1); read(to_child[0], &byte, 1);
        _exit(0);
    }
    EACH((change(child, all[i], values[i], values[i]), change(child, all[i], values[i] + 1, values[i])));
    change(999999, RLIMIT_CPU, 1, 1); change(child, 99, 1, 1);
    write(to_child[1], "", 1); read(to_parent[0], &byte, 1);
    EACH(change(child, all[i], 0, 0));
    if (!fork()) { setuid(65534); EACH(change(child, all[i], 1, 1)); exit(0); }
    wait(0);
    printf("%d", prlimit(child, RLIMIT_CPU, (void *)8, 0) ? errno : 0);
    printf(" %d\n", prlimit(child, RLIMIT_CPU, 0, (void *)8) ? errno : 0);
    write(to_child[1], "", 1);
    wait(&status);
    change(0, RLIMIT_FSIZE, 5 * MIB, 6 * MIB);
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "ulimit -f; ulimit -Hf; ulimit -t; ulimit -Ht", NULL);
}
"""

OF_A_STARTING_PROGRAM = r"""
int main(int n, char **names) {
    struct rlimit descriptors = {32, 100}, size = {MIB, 2 * MIB}, was[2] = {{7, 7}, {7, 7}}, is[2];
    int gone[2], go[2];
    char byte;
    if (n > 1) {
        read(0, &byte, 1);
        getrlimit(RLIMIT_NOFILE, &is[0]); getrlimit(RLIMIT_FSIZE, &is[1]);
        printf("%lu:%lu %lu:%lu\n", is[0].rlim_cur, is[0].rlim_max, is[1].rlim_cur, is[1].rlim_max);
        return 0;
    }
    pipe2(gone, O_CLOEXEC); pipe(go);
    int child = fork();
    if (!child) {
        dup2(go[0], 0);
        limit(RLIMIT_NOFILE, 200); limit(RLIMIT_FSIZE, 5 * MIB);
        execl(names[0], names[0], "executed", NULL);
    }
    close(gone[1]);
    /* Ends once the child executes. */
    read(gone[0], &byte, 1);
    prlimit(child, RLIMIT_NOFILE, &descriptors, &was[0]); prlimit(child, RLIMIT_FSIZE, &size, &was[1]);
    printf("%lu:%lu %lu:%lu\n", was[0].rlim_cur, was[0].rlim_max, was[1].rlim_cur, was[1].rlim_max);
    fflush(stdout);
    write(go[1], "", 1);
    wait(0);
}
"""

PROTECTS_PARTS = r"""
/* The permissions of the mappings with these addresses. */
static void show(char *first, size_t bytes) {
    char line[600], permissions[9];
    unsigned long start, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %8s", &start, &end, permissions) == 3 && start < (size_t)first + bytes
            && (size_t)first < end) printf(" %s", permissions);
    }
    fclose(maps);
}
#define TRY(call) ({ errno = 0; int result = (call); printf(" %d/%d", result, errno); })
int main(void) {
    char *one = map_kind(96 * MIB, PROT_READ, MAP_PRIVATE);
    mprotect(one + 16 * MIB, 80 * MIB, PROT_READ | PROT_EXEC);
    struct rlimit data = {64 * MIB, RLIM_INFINITY};
    setrlimit(RLIMIT_DATA, &data);
    TRY(mprotect(one, 96 * MIB, BOTH)); show(one, 96 * MIB);
    one[0] = 1;
    data.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_DATA, &data);
    /* A hole, and a mapping of a file that must not be written. */
    char *holed = map_kind(3 * PAGE, PROT_READ, MAP_PRIVATE);
    munmap(holed + 2 * PAGE, PAGE);
    mprotect(holed + PAGE, PAGE, PROT_NONE);
    TRY(mprotect(holed, 3 * PAGE, BOTH)); show(holed, 2 * PAGE);
    holed[PAGE] = 1;
    TRY(mprotect(holed + 2 * PAGE, 0, BOTH)); TRY(mprotect(holed + 8, 1, BOTH)); TRY(mprotect(holed, -1, BOTH));
    char *filed = map_kind(3 * PAGE, PROT_READ, MAP_PRIVATE);
    mmap(filed + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, open("/proc/self/exe", O_RDONLY), 0);
    TRY(mprotect(filed, 3 * PAGE, BOTH)); show(filed, 3 * PAGE);
    filed[0] = 1;
    puts("");
}
"""

LOCKS = r"""
#define TRY(call) ({ errno = 0; int result = (call); printf(" %d/%d", result, errno); show_locked(); })
static void show_locked(void) {
    char line[600];
    long locked;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) if (sscanf(line, "VmLck: %ld", &locked) == 1) printf(":%ld", locked >> 10);
    fclose(status);
}
static void *lock(size_t bytes, int flags) { return map_kind(bytes, BOTH, MAP_PRIVATE | flags); }
int main(void) {
    /* Groups make /proc/self/status longer. */
    static gid_t groups[2000];
    for (int i = 0; i < 2000; i++) groups[i] = 100000 + i;
    setgroups(2000, groups);
    limit(RLIMIT_MEMLOCK, 8 * MIB);
    if (setuid(65534)) puts("not root");
    /* Valgrind's own memory does not count. */
    printf("%d", mlockall(MCL_CURRENT)); munlockall();
    char *one = map_kind(7 * MIB, BOTH, MAP_PRIVATE), *other = map_kind(7 * MIB, BOTH, MAP_PRIVATE);
    TRY(mlock(one, 4 * MIB)); TRY(mlock(one, 7 * MIB)); TRY(munlock(one, 3 * MIB)); TRY(mlock(other, 5 * MIB));
    TRY(lock(3 * MIB, MAP_LOCKED) != MAP_FAILED); TRY(lock(2 * MIB, MAP_LOCKED) != MAP_FAILED);
    TRY(munlockall()); TRY(mlockall(MCL_CURRENT)); TRY(mlockall(0)); TRY(mlockall(MCL_ONFAULT)); TRY(mlockall(8));
    TRY(mlockall(MCL_FUTURE)); TRY((one = lock(2 * MIB, 0)) != MAP_FAILED); TRY(lock(7 * MIB, 0) != MAP_FAILED);
    TRY(sbrk(7 * MIB) != (void *)-1); TRY(sbrk(MIB) != (void *)-1);
    TRY((one = mremap(one, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED);
    TRY(mremap(one, 3 * MIB, 8 * MIB, MREMAP_MAYMOVE) != MAP_FAILED);
    int segment = shmget(IPC_PRIVATE, 7 * MIB, 0600);
    TRY(shmat(segment, 0, 0) != (void *)-1);
    shmctl(segment, IPC_RMID, 0);
    segment = shmget(IPC_PRIVATE, 2 * MIB, 0600);
    void *attached;
    TRY((attached = shmat(segment, 0, 0)) != (void *)-1); TRY(shmdt(attached));
    shmctl(segment, IPC_RMID, 0);
    if (!fork()) { TRY(lock(9 * MIB, 0) != MAP_FAILED); fflush(stdout); _exit(0); }
    wait(0);
    TRY(mlockall(MCL_FUTURE | MCL_ONFAULT)); TRY((one = lock(MIB, MAP_POPULATE)) != MAP_FAILED);
    unsigned char present[256];
    mincore(one, MIB, present);
    printf(" %d", present[7] & 1);
    munlockall();
    one = map_kind(MIB, BOTH, MAP_PRIVATE);
    TRY(syscall(SYS_mlock2, one, MIB, 1 /* MLOCK_ONFAULT */));
    TRY((one = mremap(one, MIB, 2 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED);
    TRY(mremap(one, 2 * MIB, 9 * MIB, MREMAP_MAYMOVE) != MAP_FAILED);
    munlockall();
    limit(RLIMIT_MEMLOCK, 0);
    TRY(mlock(one, PAGE)); TRY(mlockall(MCL_FUTURE)); TRY(lock(MIB, MAP_LOCKED) != MAP_FAILED); TRY(munlock(one, PAGE));
    puts("");
}
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(LIMITS_ITS_ADDRESS_SPACE, "0 300 300\n17 1 1 1 1 1 1 1\n1\n307200\n", id="address space"),
        pytest.param(LIMITS_ITS_DATA, "0 12 1 1 1 1\n204800\n", id="data"),
        pytest.param(LIMITS_ITS_HEAP, "15 1 1\n", id="heap"),
        pytest.param(LIMITS_ITS_STACK, "1\noverflow\n", id="stack"),
        pytest.param(RAISES_ITS_LIMITS, None, id="raised limits"),
        pytest.param(OF_OTHERS, None, id="of threads and other processes"),
        pytest.param(OF_A_STARTING_PROGRAM, None, id="of a program that starts"),
        pytest.param(PROTECTS_PARTS, None, id="mprotect of several mappings"),
        pytest.param(LOCKS, None, id="locked memory"),
    ],
)
def test_limits_hold_as_they_do_natively(pagelab: Pagelab, tmp_path: Path, source: str, expected: str | None) -> None:
    program = compiled(tmp_path, LIMITS + source)
    native = natively(program)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert expected is None or native == expected
    assert [loss for loss in losses(pagelab) if "limit of file sizes" not in loss] == []


def test_limits_of_a_process_out_of_reach_are_a_loss(pagelab: Pagelab, tmp_path: Path) -> None:
    """The kernel lets a user set limits of a process that has closed its memory (PR_SET_DUMPABLE)."""
    source = r"""
    #include <sys/prctl.h>
    int main(void) {
        struct rlimit size = {MIB, MIB}, is;
        int closed[2], go[2];
        char byte;
        if (getuid() == 0) setuid(65534);
        pipe(closed); pipe(go);
        int child = fork();
        if (!child) {
            prctl(PR_SET_DUMPABLE, 0);
            write(closed[1], "", 1); read(go[0], &byte, 1);
            getrlimit(RLIMIT_FSIZE, &is);
            printf("%d\n", is.rlim_cur == MIB);
            return 0;
        }
        read(closed[0], &byte, 1);
        prlimit(child, RLIMIT_FSIZE, 0, &is);
        printf("%d\n", prlimit(child, RLIMIT_FSIZE, &size, 0));
        fflush(stdout);
        write(go[1], "", 1);
        wait(0);
    }
    """
    program = compiled(tmp_path, LIMITS + source)
    assert natively(program) == "0\n1\n"
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, "0\n0\n"), recorded.stderr
    assert any("prlimit" in loss and "no effect" in loss for loss in losses(pagelab)), losses(pagelab)
    assert any("prlimit" in loss and "may be Valgrind's" in loss for loss in losses(pagelab)), losses(pagelab)


# A filter of system calls: process_vm_readv and process_vm_writev fail with EPERM. So they do under yama, for a process
# that is no descendant.
WITHOUT_ACCESS = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
rules = (0x20, 0, 0, 0), (0x15, 1, 0, 310), (0x15, 0, 1, 311), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rules), ctypes.addressof(buffer))), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("sets", "words"), [(1, "set for another process (prlimit) had no effect"), (0, "may be Valgrind's")]
)
def test_limits_of_a_process_that_yama_protects_are_a_loss(
    pagelab: Pagelab, tmp_path: Path, sets: int, words: str
) -> None:
    source = r"""
    int main(int n, char **names) {
        struct rlimit files = {77, 77}, is = {0, 0};
        int go[2], status, sets = names[1][0] == '1';
        char byte;
        pipe(go);
        int child = fork();
        if (!child) {
            read(go[0], &byte, 1);
            getrlimit(RLIMIT_NOFILE, &is);
            return is.rlim_cur == 77;
        }
        printf("%d", prlimit(child, RLIMIT_NOFILE, sets ? &files : 0, &is));
        printf(" %d\n", prlimit(999999, RLIMIT_NOFILE, &files, 0) && errno == ESRCH);
        fflush(stdout);
        write(go[1], "", 1); wait(&status);
        return WEXITSTATUS(status);
    }
    """
    program = compiled(tmp_path, LIMITS + source)
    command = [
        sys.executable,
        "-c",
        WITHOUT_ACCESS,
        *COMMAND,
        "record",
        "-q",
        "-o",
        "t.trace",
        "--",
        str(program),
        str(sets),
    ]
    recorded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (recorded.returncode, recorded.stdout) == (0, "0 1\n"), recorded.stderr
    (loss,) = losses(pagelab)
    assert words in loss
    # Where the kernel gives access, nothing is lost, and a limit that is set holds.
    recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, str(sets))
    assert (recorded.returncode, recorded.stdout, losses(pagelab)) == (sets, "0 1\n", []), recorded.stderr


def test_cpu_time_is_counted_a_hundredfold(pagelab: Pagelab, tmp_path: Path) -> None:
    """Natively the program is ended after a second."""
    source = r"""
    #include <time.h>
    int main(void) {
        struct rlimit limit = {1, 2}, is;
        printf("%d", setrlimit(RLIMIT_CPU, &limit));
        int zeros = open("/dev/zero", O_RDONLY);
        char *memory = map_kind(16 * MIB, BOTH, MAP_PRIVATE);
        while (clock() < 1.1 * CLOCKS_PER_SEC) read(zeros, memory, 16 * MIB);
        getrlimit(RLIMIT_CPU, &is);
        printf(" %lu %lu\n", is.rlim_cur, is.rlim_max);
        limit.rlim_cur = 3;
        printf("%d\n", setrlimit(RLIMIT_CPU, &limit) && errno == EINVAL);
        fflush(stdout);
        return system("ulimit -t; grep -c 'cpu time  *1  *2 ' /proc/self/limits");
    }
    """
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, LIMITS + source))
    assert recorded.stdout == "0 1 2\n1\n1\n1\n", recorded.stderr
    assert "its limit of CPU time (ulimit -t) of 1 s was one of 100 s" in recorded.stderr
    assert losses(pagelab) == []


def test_the_address_space_has_as_many_pages_as_natively(pagelab: Pagelab, tmp_path: Path) -> None:
    """With those of the vdso. A static program, as ld.so allocates a page more where there is a vdso."""
    source = r"""
    int main(void) {
        char text[100] = "";
        limit(RLIMIT_AS, 16 * MIB);
        read(open("/proc/self/statm", O_RDONLY), text, 8);
        int pages = 0;
        while (map_kind(PAGE, pages % 2 ? BOTH : PROT_READ, MAP_PRIVATE) != MAP_FAILED) pages++;
        printf("%d %d\n", atoi(text), pages);
    }
    """
    program = compiled(tmp_path, LIMITS + source, "-static")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert recorded.stdout == natively(program), recorded.stderr


@pytest.mark.parametrize("option", ["-v", "-d", "-s"])
def test_programs_inherit_limits_of_memory(tmp_path: Path, option: str) -> None:
    """Those with which the recorder was started, and those of a recorded program that is executed."""
    program = ("sh", "-c", f"ulimit {option}; ulimit {option} 900000; sh -c 'ulimit {option}'; grep -c . /proc/version")
    script = f'ulimit -S {option} 1000000; "$@"'
    outputs = [
        subprocess.run(
            ["sh", "-c", script, "sh", *recorder, *program],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for recorder in ((), (*COMMAND, "record", "-q", "-o", "t.trace", "--"))
    ]
    assert outputs[1].stdout == outputs[0].stdout == "1000000\n900000\n1\n", outputs[1].stderr


def test_a_limit_of_file_sizes_that_is_inherited_has_no_effect(tmp_path: Path) -> None:
    script = "ulimit -f; ulimit -S -f unlimited; truncate -s 20M file; stat -c %s file; rm file; ulimit -f"
    for recorder in ((), (*COMMAND, "record", "-q", "-o", "t.trace", "--")):
        run = subprocess.run(
            ["sh", "-c", 'ulimit -S -f 20000; "$@"', "sh", *recorder, "sh", "-c", script],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.stdout == "20000\n20971520\nunlimited\n", run.stderr
    assert "its limit of file sizes (ulimit -f) had no effect" in run.stderr
