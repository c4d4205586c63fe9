"""What execve and execveat do with odd arguments: as natively, whether the program runs or the call fails."""

from pathlib import Path

import pytest
from conftest import Pagelab, needs_recorder
from test_recorder_natively import natively
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

EXECUTES = r"""
#include <limits.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
extern char **environ;
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
static char *both[] = {"name", "more", NULL};
static int execute(int folder, const void *name, void *arguments, void *variables, int flags) {
    return syscall(SYS_execveat, folder, name, arguments, variables, flags);
}
/* In a child. A program that runs ends with status 7; else the status is the error. */
#define TRY(call) do { \
    int status; \
    if (!fork()) { call; _exit(errno); } \
    wait(&status); \
    printf(" %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)); \
    fflush(stdout); \
} while (0)
static void write_file(const char *name, const char *text, int mode) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    write(file, text, strlen(text));
    close(file);
    chmod(name, mode);
}
int main(int n, char **names) {
    if (n > 0 && strcmp(names[0], "again") != 0 && getenv("TARGET")) {
        printf("[%d %s %s]", n, names[0], n > 1 ? names[1] : "-");
        return 7;
    }
    char folder_name[] = "/tmp/executes-XXXXXX", self[PATH_MAX] = "";
    readlink("/proc/self/exe", self, PATH_MAX - 1);
    mkdtemp(folder_name);
    chdir(folder_name);
    symlink(self, "x");
    putenv("TARGET=1");
    mkdir("folder", 0700);
    write_file("plain", "text", 0600);
    write_file("text", "text", 0700);
    write_file("script", "#!/bin/sh\necho \"[script $0 $1]\"; exit 7\n", 0700);
    write_file("lost", "#!/nowhere/sh\n", 0700);
    write_file("plainly", "#!./plain\n", 0700);
    write_file("nobody", "#!\n", 0700);
    write_file("loop", "#!./loop\n", 0700);
    symlink("ring", "ring");
    int folder = open(".", O_RDONLY), closing = open(".", O_RDONLY | O_CLOEXEC);
    run(folder, closing);
    char remove[60];
    sprintf(remove, "rm -r %s", folder_name);
    return system(remove) != 0;
}
"""

BY_DESCRIPTOR = r"""
static void run(int folder, int closing) {
    TRY(execute(AT_FDCWD, "./x", both, environ, 0));
    TRY(execute(AT_FDCWD, "x", both, environ, 0));
    TRY(execute(folder, "x", both, environ, 0));
    TRY(execute(closing, "x", both, environ, 0));
    TRY(execute(folder, "script", both, environ, 0));
    TRY(execute(closing, "script", both, environ, 0));
    TRY(execute(folder, "/bin/true", (char *[]){"true", 0}, environ, 0));
    for (int flags = 0; flags <= MFD_CLOEXEC; flags += MFD_CLOEXEC) {
        int memory = memfd_create("script", flags);
        write(memory, "#!/bin/sh\necho \"[memory $1]\"; exit 7\n", 37);
        TRY(execute(memory, "", both, environ, AT_EMPTY_PATH));
    }
    int program = open("x", O_RDONLY | O_CLOEXEC);
    TRY(execute(program, "", both, environ, AT_EMPTY_PATH));
    puts("");
    /* The errors. */
    TRY(execute(folder, "", both, environ, AT_EMPTY_PATH));
    TRY(execute(AT_FDCWD, "", both, environ, AT_EMPTY_PATH));
    TRY(execute(folder, "", both, environ, 0));
    TRY(execute(-1, "x", both, environ, 0));
    TRY(execute(777, "x", both, environ, 0));
    TRY(execute(777, "", both, environ, AT_EMPTY_PATH));
    TRY(execute(program, "x", both, environ, 0));
    TRY(execute(folder, "x", both, environ, AT_SYMLINK_NOFOLLOW));
    TRY(execute(AT_FDCWD, "x", both, environ, AT_SYMLINK_NOFOLLOW));
    TRY(execute(folder, "script", both, environ, AT_SYMLINK_NOFOLLOW));
    TRY(execute(folder, "x", both, environ, 0x40));
    TRY(execute(folder, (void *)8, both, environ, 0));
    puts("");
}
"""

IN_VAIN = r"""
#define EXECVE(path, list, variables) syscall(SYS_execve, path, list, variables)
static void run(int folder, int closing) {
    static char long_name[5000], long_text[140000], *many[300000];
    memset(long_name, 'a', sizeof long_name - 1);
    memset(long_text, 'a', sizeof long_text - 1);
    const char *files[] = {"nowhere", "", "plain/x", "plain", "folder", ".", "text", "lost", "plainly", "nobody",
                           "loop", "ring", long_name, "nowhere/x", "/dev/null", "/proc/self/fd/777"};
    for (int i = 0; i < sizeof files / sizeof *files; i++) TRY(EXECVE(files[i], both, environ));
    TRY(EXECVE((void *)8, both, environ));
    TRY(EXECVE("x", 8, environ));
    TRY(EXECVE("x", both, 8));
    TRY(EXECVE("x", ((char *[]){"name", (char *)8, 0}), environ));
    TRY(EXECVE("x", both, ((char *[]){(char *)8, 0})));
    TRY(EXECVE("x", ((char *[]){"name", long_text, 0}), environ));
    for (int i = 0; i < 299999; i++) many[i] = "TARGET=1";
    TRY(EXECVE("x", many, environ));
    TRY(EXECVE("x", both, many));
    puts("");
    /* What is missing is added. */
    TRY(EXECVE("x", NULL, environ));
    TRY(EXECVE("x", ((char *[]){NULL}), environ));
    TRY(EXECVE("x", ((char *[]){"", "one", NULL}), environ));
    TRY(EXECVE("script", NULL, environ));
    TRY(EXECVE("/bin/false", NULL, NULL));
    struct rlimit stack = {32 << 20, RLIM_INFINITY};
    getrlimit(RLIMIT_STACK, &stack);
    stack.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_STACK, &stack);
    many[20000] = NULL;
    TRY(EXECVE("/bin/false", both, many));
    puts("");
}
"""

BUSY = r"""
#define OPEN(call) ({ errno = 0; int file = (call); printf(" %d", file < 0 ? errno : 0); if (file > 2) close(file); })
/* A child that has executed the file when this returns. */
static int start(const char *name) {
    int begun[2], child;
    char byte;
    pipe2(begun, O_CLOEXEC);
    if (!(child = fork())) { dup2(begun[1], 1); execl(name, name, "-c", "echo; read line < fifo", NULL); _exit(9); }
    read(begun[0], &byte, 1);
    close(begun[0]); close(begun[1]);
    return child;
}
static void end(int child) { kill(child, SIGKILL); waitpid(child, 0, 0); }
static void run(int folder, int closing) {
    struct { unsigned long flags, mode, resolve; } how = {O_WRONLY};
    char self[PATH_MAX] = "";
    readlink("x", self, PATH_MAX - 1);
    OPEN(open("x", O_WRONLY)); OPEN(openat(folder, "x", O_RDWR)); OPEN(creat("x", 0700)); OPEN(truncate(self, 1));
    OPEN(open("x", O_TRUNC)); OPEN(open("x", O_RDONLY)); OPEN(open(self, O_WRONLY | O_CREAT | O_EXCL, 0700));
    OPEN(syscall(437 /* openat2 */, AT_FDCWD, "x", &how, sizeof how)); OPEN(open("script", O_WRONLY));
    OPEN(syscall(437, AT_FDCWD, "x", &how, 8)); OPEN(syscall(437, AT_FDCWD, "x", 0, sizeof how));
    OPEN(open("x", O_WRONLY | O_DIRECTORY)); OPEN(open("x", O_ACCMODE)); OPEN(truncate(self, -1));
    how.mode = 0600; OPEN(syscall(437, AT_FDCWD, "x", &how, sizeof how)); how.mode = 0;
    how.flags |= 1UL << 40; OPEN(syscall(437, AT_FDCWD, "x", &how, sizeof how)); how.flags = O_WRONLY;
    /* What the recorder asks by a thread is asked without one if there can be none, and no thread remains. */
    TRY((unshare(CLONE_NEWPID), errno = 0, open("x", O_WRONLY)));
    for (int i = 0; i < 20; i++) TRY(({ open("x", O_WRONLY); int error = errno; errno = 0; unshare(CLONE_NEWUSER);
                                        errno = errno == 0 ? error : errno; }));
    how.resolve = 4 /* RESOLVE_NO_SYMLINKS */; OPEN(syscall(437, AT_FDCWD, "x", &how, sizeof how));
    how.resolve = 8 /* RESOLVE_BENEATH */; OPEN(syscall(437, AT_FDCWD, self, &how, sizeof how));
    system("cp /bin/sh copy; cp /bin/sh other");
    mkfifo("fifo", 0600);
    int written = open("copy", O_WRONLY);
    write_file("busy", "#!./copy\n", 0700);
    TRY(execl("./copy", "copy", "-c", "exit 7", NULL)); TRY(execl("./busy", "busy", NULL));
    close(written);
    TRY(execl("./copy", "copy", "-c", "exit 7", NULL));
    /* By one process, then by the next, a script. */
    int child = start("./copy");
    OPEN(open("copy", O_WRONLY));
    end(child);
    OPEN(open("copy", O_WRONLY));
    write_file("busy", "#!./other\necho\nread line < fifo\n", 0700);
    child = start("./busy");
    OPEN(open("other", O_WRONLY)); OPEN(open("busy", O_WRONLY));
    end(child);
    /* What the recorder asks of a file leaves the program its locks. */
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 1, 0};
    int locked = open("copy", O_RDWR);
    fcntl(locked, F_SETLK, &lock);
    open("copy", O_RDWR);
    if (!fork()) { fcntl(locked, F_GETLK, &lock); _exit(lock.l_type == F_WRLCK && lock.l_pid == getppid() ? 7 : 8); }
    int status;
    wait(&status);
    printf(" %d\n", WEXITSTATUS(status));
}
"""


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(BY_DESCRIPTOR, id="execveat"),
        pytest.param(IN_VAIN, id="execve in vain"),
        pytest.param(BUSY, id="files that run, or are written"),
    ],
)
def test_execve_does_what_it_does_natively(pagelab: Pagelab, tmp_path: Path, source: str) -> None:
    program = compiled(tmp_path, EXECUTES.replace("int main(", source + "int main("))
    native = natively(program)
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert losses(pagelab) == []
