"""System calls that Valgrind does not know, or refuses: recorded programs get what they get natively."""

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from conftest import Pagelab, needs_recorder
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

ADVISES = r"""
/* Natively old kernels do not allow MADV_DONTNEED here; all allow MADV_PAGEOUT. */
int main(void) {
    char *memory = map(64, 0);
    memset(memory, 1, 64 * PAGE);
    struct iovec parts[] = {{memory, 8 * PAGE}, {memory + 16 * PAGE, 8 * PAGE}};
    int self = syscall(434 /* pidfd_open */, getpid(), 0);
    printf("%ld\n", syscall(440 /* process_madvise */, self, parts, 2L, MADV_PAGEOUT, 0));
}
"""

POLLS = r"""
#include <sys/epoll.h>
int main(void) {
    int descriptor = epoll_create1(0), ends[2];
    struct epoll_event asked = {EPOLLIN, {.u64 = 7}}, found[4] = {0};
    struct timespec second = {1, 0}, none = {0, 0};
    pipe(ends);
    epoll_ctl(descriptor, EPOLL_CTL_ADD, ends[0], &asked);
    long before = syscall(441 /* epoll_pwait2 */, descriptor, found, 4, &none, 0, 8);
    write(ends[1], "x", 1);
    long after = syscall(441, descriptor, found, 4, &second, 0, 8);
    printf("%ld %ld %d\n", before, after, (int)found[0].data.u64);
}
"""

WAITS_FOR_MANY = r"""
#include <pthread.h>
#include <stdint.h>
static uint32_t word, other;
static void *wakes(void *unused) {
    usleep(50000);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    while (syscall(SYS_futex, &word, 1 | 128 /* FUTEX_WAKE, private */, 1) == 0) usleep(1000);
    return 0;
}
int main(void) {
    pthread_t thread;
    struct { uint64_t value, address; uint32_t flags, reserved; } waiters[] =
        {{0, (uint64_t)&other, 2 | 128, 0}, {0, (uint64_t)&word, 2 | 128, 0}};
    pthread_create(&thread, 0, wakes, 0);
    printf("%ld", syscall(449 /* futex_waitv */, waiters, 2L, 0, 0, 0));
    printf(" %ld %d\n", syscall(449, waiters, 2L, 0, 0, 0), errno == EAGAIN);
}
"""

WAITS_AND_MOVES = r"""
#include <pthread.h>
#include <stdint.h>
static uint32_t word, other;
enum { FLAGS = 2 | 128 /* 32 bits, private */ };
static long wait_for(uint32_t *word, long value, struct timespec *until) {
    return syscall(455 /* futex_wait */, word, value, 0xffffffffL, (long)FLAGS, until, 1L);
}
static long wake(uint32_t *word) { return syscall(454 /* futex_wake */, word, 0xffffffffL, 1L, (long)FLAGS); }
static void *waits(void *unused) { return (void *)wait_for(&word, 0, 0); }
int main(void) {
    pthread_t thread;
    void *result;
    struct timespec past = {0, 1};
    struct { uint64_t value, address; uint32_t flags, reserved; } both[] =
        {{0, (uint64_t)&word, FLAGS, 0}, {0, (uint64_t)&other, FLAGS, 0}};
    if (wake(&word) < 0) { puts("no such call"); return 0; }
    for (int moved = 0; moved < 2; moved++) {
        pthread_create(&thread, 0, waits, 0);
        if (moved)
            while (syscall(456 /* futex_requeue */, both, 0L, 0L, 1L) == 0) usleep(1000);
        while (wake(moved ? &other : &word) == 0) usleep(1000);
        pthread_join(thread, &result);
        printf("%ld ", (long)result);
    }
    printf("%ld %d", wait_for(&word, 1, 0), errno == EAGAIN);
    printf(" %ld %d", wait_for(&word, 0, &past), errno == ETIMEDOUT);
    printf(" %ld %d\n", syscall(456, 8L, 0L, 0L, 1L), errno == EFAULT);
}
"""

READS_ASYNCHRONOUSLY = r"""
#include <linux/aio_abi.h>
#include <stdint.h>
int main(void) {
    aio_context_t context = 0;
    int file = memfd_create("data", 0);
    char *buffer = map(256, 0);
    ftruncate(file, 256 * PAGE);
    struct iocb operation = {.aio_fildes = file, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uint64_t)buffer,
                             .aio_nbytes = 256 * PAGE}, *list = &operation;
    struct io_event event;
    if (syscall(SYS_io_setup, 1, &context) || syscall(SYS_io_submit, context, 1L, &list) != 1) return 1;
    printf("%ld", syscall(333 /* io_pgetevents */, context, 1L, 1L, &event, 0, 0));
    printf(" %ld\n", (long)event.res / 4096);
}
"""

MAPS_AGAIN = r"""
static void look(char *first) {
    char *second = mremap(first, 0, 4 * PAGE, MREMAP_MAYMOVE), *third = map(8, 0);
    strcpy(first + PAGE, "both");
    printf("%d %s", second != first && second != MAP_FAILED, second + PAGE);
    third = mremap(first + PAGE, 0, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, third + 2 * PAGE);
    printf(" %s\n", third);
    munmap(second, PAGE);
    mprotect(second + PAGE, PAGE, PROT_READ);
    first[PAGE] = 'B';
    printf("%s\n", second + PAGE);
}
int main(void) {
    int both = PROT_READ | PROT_WRITE, file = memfd_create("data", 0);
    ftruncate(file, 8 * PAGE);
    look(mmap(0, 4 * PAGE, both, MAP_SHARED, file, 0));
    look(mmap(0, 4 * PAGE, both, MAP_SHARED, file, 2 * PAGE));
    printf("%d\n", mremap(map(1, 0), 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}
"""

REMAPS = r"""
int main(void) {
    int file = memfd_create("data", 0);
    ftruncate(file, 8 * PAGE);
    char *memory = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    strcpy(memory + 5 * PAGE, "fifth");
    printf("%ld", syscall(216 /* remap_file_pages */, memory, 2 * PAGE, 0, 5L, 0));
    printf(" %s\n", memory);
}
"""

SEALS = r"""
int main(void) {
    char *memory = map(2, 0);
    printf("%ld", syscall(462 /* mseal */, memory, PAGE, 0));
    printf(" %d %d", munmap(memory, PAGE), errno);
    printf(" %d\n", munmap(memory + PAGE, PAGE));
}
"""

KEEPS = r"""
/* mremap that leaves the old mapping of shared memory, with the same content. */
static void keep(int flags, int file) {
    char *old = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, flags, file, 0), *place = map(4, 0), *new;
    strcpy(old + PAGE, "both");
    new = mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | 4 /* MREMAP_DONTUNMAP */, place);
    if (new != place) { perror("mremap"); return; }
    old[PAGE] = 'B';
    printf("%s %s\n", old + PAGE, new + PAGE);
}
int main(void) {
    int file = memfd_create("data", 0);
    ftruncate(file, 4 * PAGE);
    keep(MAP_SHARED, file);
    keep(MAP_SHARED | MAP_ANONYMOUS, -1);
}
"""

RAISES_STACK = r"""
#include <setjmp.h>
#include <sys/resource.h>
/* How many MiB the first stack has before it faults, as its limit changes. */
static sigjmp_buf before;
static char *lowest;
static void leave(int number) { siglongjmp(before, 1); }
static int descend(int n) {
    volatile char room[4096];
    lowest = (char *)room; room[0] = n;
    return descend(n + 1) + room[0];
}
int main(int n, char **names) {
    struct rlimit limit;
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = leave, .sa_flags = SA_ONSTACK};
    sigaltstack(&other, 0);
    sigaction(SIGSEGV, &action, 0);
    getrlimit(RLIMIT_STACK, &limit);
    for (int mebibytes = 4; mebibytes <= 64; mebibytes *= 2) {
        limit.rlim_cur = mebibytes << 20;
        setrlimit(RLIMIT_STACK, &limit);
        if (!sigsetjmp(before, 1)) descend(0);
        printf("%ld\n", ((char *)&limit - lowest + (1 << 19)) >> 20);
    }
}
"""

RUNS_SEGMENT = r"""
#include <sys/shm.h>
/* Code in a System V segment, written where it is attached a second time. */
int main(void) {
    int segment = shmget(IPC_PRIVATE, PAGE, 0700), sum = 0;
    char *written = shmat(segment, 0, 0), *executed = shmat(segment, 0, SHM_EXEC | SHM_RDONLY);
    shmctl(segment, IPC_RMID, 0);
    for (int n = 1; n <= 4; n++) {
        memcpy(written, (char[]){0xb8, n, 0, 0, 0, 0xc3}, 6); /* mov $n, %eax; ret */
        sum = sum * 10 + ((int (*)(void))executed)();
    }
    printf("%d\n", sum);
}
"""

MISTAKES = r"""
static void show(const char *name, long result) { printf("%s %ld %d\n", name, result, result < 0 ? errno : 0); }
/* Calls without an argument that they read, calls that the kernel does not have either, and too large a heap. */
int main(void) {
    show("perf_event_open", syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
    show("bpf", syscall(SYS_bpf, 5, 0, 48));
    show("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, 0, 0));
    show("poll", syscall(SYS_poll, map(1, 0), 4000000000U, 0));
    show("ppoll", syscall(SYS_ppoll, map(1, 0), 4000000000U, 0, 0, 8));
    show("create_module", syscall(174, 0, 0));
    show("malloc", malloc(1UL << 46) == NULL);
    show("set_mempolicy_home_node", syscall(450, map(1, 0), PAGE, -1, 0));
    struct { unsigned long value; unsigned size, flags; } set = {(unsigned long)"seven", 5};
    struct { unsigned long value; unsigned size, flags; } get = {(unsigned long)map(1, 0), 64};
    char *names = map(1, 0);
    int file = open("attributes", O_CREAT | O_RDWR, 0600);
    show("setxattrat", syscall(463, file, "", AT_EMPTY_PATH, "user.x", &set, sizeof set));
    show("getxattrat", syscall(464, file, "", AT_EMPTY_PATH, "user.x", &get, sizeof get));
    show("listxattrat", syscall(465, file, "", AT_EMPTY_PATH, names, 64));
    printf("%.5s %s\n", (char *)get.value, names);
    show("removexattrat", syscall(466, file, "", AT_EMPTY_PATH, "user.x"));
}
"""


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(ADVISES, [], id="process_madvise"),
        pytest.param(POLLS, [], id="epoll_pwait2"),
        pytest.param(WAITS_FOR_MANY, ["-pthread"], id="futex_waitv"),
        pytest.param(WAITS_AND_MOVES, ["-pthread"], id="futex_wait, futex_wake and futex_requeue"),
        pytest.param(READS_ASYNCHRONOUSLY, [], id="io_pgetevents"),
        pytest.param(MAPS_AGAIN, [], id="mremap of a length of 0"),
        pytest.param(REMAPS, [], id="remap_file_pages"),
        pytest.param(SEALS, [], id="mseal"),
        pytest.param(KEEPS, [], id="mremap keeps shared memory"),
        pytest.param(RUNS_SEGMENT, [], id="SHM_EXEC"),
        pytest.param(RAISES_STACK, [], id="a limit of stacks that is raised"),
        pytest.param(MISTAKES, [], id="mistakes, and newer calls"),
    ],
)
def test_calls_have_the_results_that_they_have_natively(
    pagelab: Pagelab, tmp_path: Path, source: str, options: list[str]
) -> None:
    """Whether the kernel has the call or not."""
    program = compiled(tmp_path, source, *options)
    native = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert losses(pagelab) == []


def _events(folder: Path, kind: str) -> pl.DataFrame:
    return pl.read_parquet(folder / "t.trace" / "events-*.parquet").filter(pl.col("kind") == kind)


def test_a_wait_for_several_futexes_has_an_edge(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, WAITS_FOR_MANY, "-pthread")
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    if not recorded.stdout.startswith("1 "):
        pytest.skip("this kernel has no futex_waitv")
    woken, wakes = _events(tmp_path, "woken"), _events(tmp_path, "wake")
    # The other thread by its creation, and this one by the other.
    assert len(woken) == 2
    by_thread = dict(zip(wakes["argument"], wakes["thread"], strict=True))
    assert {(by_thread[number], thread) for number, thread in woken.select("argument", "thread").rows()} == {
        (0, 1),
        (1, 0),
    }


def test_waits_on_the_newer_futex_calls_have_edges(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, WAITS_AND_MOVES, "-pthread"))
    if recorded.stdout.startswith("no such call"):
        pytest.skip("this kernel has no futex_wait")
    woken, wakes = _events(tmp_path, "woken"), _events(tmp_path, "wake")
    by_thread = dict(zip(wakes["argument"], wakes["thread"], strict=True))
    of_waits = [(by_thread[number], thread) for number, thread in woken.select("argument", "thread").rows()]
    # Each of the two threads by its creation, and by the call that ends its wait.
    assert [waker for waker, thread in of_waits if thread == 1] == [0, 0]
    assert [waker for waker, thread in of_waits if thread == 2] == [0, 0]


def test_advice_by_process_madvise_is_an_event(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, ADVISES))
    if recorded.stdout != f"{16 * 4096}\n":
        pytest.skip("this kernel has no process_madvise")
    advised = _events(tmp_path, "madvise").filter(pl.col("argument") == 21)
    assert advised["len"].to_list() == [8 * 4096, 8 * 4096]
    first, second = advised["addr"].to_list()
    assert second == first + 16 * 4096


def test_a_second_mapping_of_a_file_begins_where_the_first_does(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, MAPS_AGAIN)).returncode == 0
    mapped = _events(tmp_path, "mmap").filter(pl.col("file").str.starts_with("/memfd:data"))
    offsets = mapped.select("len", "file_offset").rows()
    assert [(length >> 12, offset >> 12) for length, offset in offsets] == [
        (4, 0), (4, 0), (2, 1), (4, 2), (4, 2), (2, 3),
    ]  # fmt: skip


WRITES_BY_RING = r"""
#include <linux/io_uring.h>
/* Writes 256 pages to a file in memory, then maps it and reads them: none is a hole. */
int main(int n, char **names) {
    struct io_uring_params about = {0};
    int ring = syscall(SYS_io_uring_setup, 8, &about), both = PROT_READ | PROT_WRITE, file = memfd_create("data", 0);
    if (ring < 0) return 77;
    int all = 2, awaited = 2;
    ftruncate(file, 512 * PAGE);
    volatile char *mapped = mmap(0, 512 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    char *in = mmap(0, about.sq_off.array + 4 * about.sq_entries, both, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries =
        mmap(0, about.sq_entries * sizeof *entries, both, MAP_SHARED, ring, IORING_OFF_SQES);
    char *memory = map(256, 0);
    struct iovec vectors[] = {{memory + 128 * PAGE, 64 * PAGE}, {memory + 192 * PAGE, 64 * PAGE}};
    memset(memory, 1, 256 * PAGE);
    entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = file, .addr = (size_t)memory,
                                       .len = 128 * PAGE, .off = 64 * PAGE};
    entries[1] = (struct io_uring_sqe){.opcode = IORING_OP_WRITEV, .fd = file, .addr = (size_t)vectors, .len = 2,
                                       .off = 192 * PAGE, .user_data = 1};
    ((unsigned *)(in + about.sq_off.array))[1] = 1;
    if (n > 1 && *names[1] == 'o') {
        /* At the descriptor's offset, which a read moves then. */
        lseek(file, 64 * PAGE, SEEK_SET);
        entries[2] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = file, .addr = (size_t)memory,
                                           .len = 32 * PAGE, .user_data = 2};
        ((unsigned *)(in + about.sq_off.array))[2] = 2;
        entries[0].flags = entries[1].flags = IOSQE_IO_LINK;
        entries[0].off = entries[1].off = entries[2].off = -1;
        awaited = all = 3;
    } else if (n > 1 && *names[1] == 'p') {
        /* A read at its offset waits behind a poll. */
        int ends[2];
        pipe(ends);
        entries[0].off = -1;
        entries[1] = (struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD, .fd = ends[0], .poll_events = 1,
                                           .flags = IOSQE_IO_LINK, .user_data = 1};
        entries[2] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = dup(file), .addr = (size_t)memory,
                                           .len = 32 * PAGE, .off = -1, .user_data = 2};
        ((unsigned *)(in + about.sq_off.array))[2] = 2;
        all = 3;
        awaited = 1;
    } else if (n > 1 && *names[1] == 'r') {
        entries[0].flags = IOSQE_FIXED_FILE;
        entries[0].fd = 0;
        syscall(SYS_io_uring_register, ring, 2 /* IORING_REGISTER_FILES */, &file, 1);
    }
    if (n > 1 && *names[n - 1] == 's') {
        for (int i = 0; i < all; i++) entries[i].user_data = 7;
        entries[0].flags = IOSQE_IO_LINK;
    }
    __atomic_store_n((unsigned *)(in + about.sq_off.tail), all, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, all, awaited, IORING_ENTER_GETEVENTS, 0, 0) != all) return 1;
    int sum = 0;
    for (int i = 0; i < 512; i++) sum += mapped[i * PAGE];
    printf("%d\n", sum);
}
"""


@pytest.mark.parametrize("options", [[], ["offset"], ["same user data"], ["offset", "same user data"]])
def test_writes_of_io_uring_fill_files_in_memory(pagelab: Pagelab, tmp_path: Path, options: list[str]) -> None:
    program = compiled(tmp_path, WRITES_BY_RING)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, *options)
    if recorded.returncode == 77:
        pytest.skip("this kernel has no io_uring")
    assert (recorded.returncode, recorded.stdout) == (0, "256\n"), recorded.stderr
    assert losses(pagelab) == []
    filled = _events(tmp_path, "file_data").filter(pl.col("file").str.starts_with("/memfd:data"))
    parts = filled.select("file_offset", "len").rows()
    assert [(offset >> 12, length >> 12) for offset, length in parts] == [(64, 128), (192, 64), (256, 64)]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("registered", "it uses io_uring with registered files in memory"),
        ("pending", "it uses io_uring with several operations at a descriptor's offset at once"),
    ],
)
def test_writes_of_io_uring_at_unknown_places_are_a_loss(
    pagelab: Pagelab, tmp_path: Path, option: str, expected: str
) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, WRITES_BY_RING), option)
    if recorded.returncode == 77:
        pytest.skip("this kernel has no io_uring")
    (loss,) = losses(pagelab)
    assert expected in loss


WRITES_ITS_MEMORY = r"""
int main(int n, char **names) {
    char *to = map(512, 0), *from = map(256, 0), path[40];
    if (n > 1) { printf("%d\n", from[0]); return 0; }
    int file = open("/proc/self/mem", O_RDWR);
    long written = pwrite(file, from, 256 * PAGE, (off_t)to);
    lseek(file, (off_t)to + 256 * PAGE, SEEK_SET);
    written += write(file, from, 256 * PAGE);
    printf("%ld\n", written >> 12);
}
"""


def test_writes_to_memory_by_proc_are_accesses(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, WRITES_ITS_MEMORY)
    counts = []
    for arguments, output in ((["x"], "0\n"), ([], "512\n")):
        recorded = pagelab("record", "-q", "--force", "-o", "t.trace", "--", program, *arguments)
        assert recorded.stdout == output, recorded.stderr
        replayed = pagelab("run", "t.trace", "-s", "radix", "--json", "-")
        counts.append(json.loads(replayed.stdout)["results"][0]["stats"]["fault.minor.count"])
    # 512 pages are written, and of the buffer's 256 pages all but the first are read only there.
    assert counts[1] - counts[0] == pytest.approx(512 + 255, abs=5)


SHARES_FOLDERS = r"""
#include <asm/prctl.h>
#include <sched.h>
static char storage[4096] __attribute__((aligned(64)));
static volatile unsigned long base;
/* The child of a sandbox's parent: it shares folders, and has thread-local storage of its own. */
static int child(void *folder) {
    unsigned long own;
    syscall(SYS_arch_prctl, ARCH_GET_FS, &own);
    base = own;
    return chdir(folder);
}
int main(void) {
    static char stack[65536];
    char here[4096];
    int status, flags = CLONE_FS | CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD;
    waitpid(clone(child, stack + 65536, flags, "/usr", 0, storage + 2048), &status, 0);
    printf("%d %d %s\n", WEXITSTATUS(status), base == (size_t)(storage + 2048), getcwd(here, 4096));
    int by_fork = clone(child, stack + 65536, CLONE_FS | SIGCHLD, "/", 0, 0);
    waitpid(by_fork, &status, 0);
    printf("%d %s\n", WEXITSTATUS(status), getcwd(here, 4096));
}
"""


def test_a_child_may_share_its_parents_folders(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, SHARES_FOLDERS)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, "0 1 /usr\n0 /\n"), recorded.stderr
    assert losses(pagelab) == []


FORKS = r"""
static int word;
static struct { unsigned numbers[8]; } __attribute__((aligned(32))) area;
int main(void) {
    int status;
    /* Under Valgrind this fails, and the C library has none either. */
    syscall(334 /* rseq */, &area, sizeof area, 0, 0x53053053);
    long child = syscall(SYS_clone, CLONE_CHILD_SETTID | SIGCHLD, 0, 0, &word, 0);
    if (!child) _exit(0);
    waitpid(child, &status, 0);
    printf("%zu %zu\n", (size_t)&word, (size_t)&area);
}
"""


def test_a_fork_has_the_writes_that_the_kernel_makes(pagelab: Pagelab, tmp_path: Path) -> None:
    """The child's thread id in the child alone, and the processor's number in both."""
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, "#include <sched.h>\n" + FORKS))
    word, area = map(int, recorded.stdout.split())
    accesses = pl.read_parquet(tmp_path / "t.trace" / "accesses-*.parquet")
    by_kernel = accesses.filter(pl.col("kind") == 1 + 16)
    assert by_kernel.filter(pl.col("vaddr") == word).select("tid", "size").rows() == [(1, 4)]
    assert sorted(by_kernel.filter(pl.col("vaddr") == area).select("tid", "size").rows()) == [(0, 8), (1, 8)]
