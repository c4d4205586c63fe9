"""Programs that filter their own system calls (seccomp): recorded ones do what they do natively."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Pagelab, needs_recorder

pytestmark = needs_recorder

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(number, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, yes, no)
#define RETURN(verdict) BPF_STMT(BPF_RET | BPF_K, verdict)
#define ALU(operation, k) BPF_STMT(BPF_ALU | operation | BPF_K, k)

static long install(struct sock_filter *filter, int n, int flags) {
    struct sock_fprog program = {n, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
/* `verdict` on one call, the others are allowed. */
static long forbid(int number, unsigned verdict, int flags) {
    struct sock_filter filter[] = {LOAD(arch), IF(AUDIT_ARCH_X86_64, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS),
                                   LOAD(nr), IF(number, 0, 1), RETURN(verdict), RETURN(SECCOMP_RET_ALLOW)};
    return install(filter, 7, flags);
}
static int call(int number) { errno = 0; int value = syscall(number); return errno ? -errno : value > 0; }
static void show(const char *name, long value) { printf("%s %ld\n", name, value); fflush(stdout); }

static void errors(void) {
    show("install", forbid(SYS_getppid, SECCOMP_RET_ERRNO | EDOM, 0));
    show("filtered", call(SYS_getppid));
    show("other", call(SYS_getpid));
    show("mode", prctl(PR_GET_SECCOMP));
    /* The newer one's EBUSY holds among equal actions; a lower action holds in any order. */
    forbid(SYS_getppid, SECCOMP_RET_ERRNO | EBUSY, 0);
    show("newest", call(SYS_getppid));
    forbid(SYS_getpgrp, SECCOMP_RET_ERRNO, 0);
    show("no error", call(SYS_getpgrp));
    forbid(SYS_getuid, SECCOMP_RET_LOG, 0);
    show("logged", call(SYS_getuid) >= 0);
    forbid(SYS_getegid, SECCOMP_RET_TRACE, 0);
    show("traced", call(SYS_getegid));
    forbid(SYS_getpgrp, SECCOMP_RET_ERRNO | 5000, 0);
    show("large error", syscall(SYS_getpgrp));
}

/* Error (argument 0 × 3 + argument 1) ^ 5, by way of scratch memory and X, for getpriority(0 to 100, …). */
static void computes(void) {
    struct sock_filter filter[] = {
        LOAD(nr), IF(SYS_getpriority, 1, 0), RETURN(SECCOMP_RET_ALLOW),
        LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 100, 14, 0), ALU(BPF_MUL, 3), BPF_STMT(BPF_ST, 2),
        LOAD(args[1]), BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_MEM, 2),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0), ALU(BPF_XOR, 5), ALU(BPF_LSH, 4), ALU(BPF_RSH, 4), ALU(BPF_AND, 0xfff),
        ALU(BPF_OR, SECCOMP_RET_ERRNO), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x4000, 1, 0),
        BPF_STMT(BPF_RET | BPF_A, 0), RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_ERRNO | EXDEV)};
    show("install", install(filter, sizeof filter / sizeof *filter, 0));
    for (int i = 0; i < 30; i += 7) { syscall(SYS_getpriority, i, 3 * i); show("computed", errno); }
    syscall(SYS_getpriority, 101, 0); show("greater", errno);
}

static volatile int trapped;
static void emulate(int signal, siginfo_t *about, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    trapped = about->si_code == 1 && about->si_syscall == SYS_getppid && about->si_arch == AUDIT_ARCH_X86_64
              && about->si_errno == 7 && registers[REG_RAX] == SYS_getppid
              && (greg_t)about->si_call_addr == registers[REG_RIP];
    registers[REG_RAX] = 1234;
}
static void traps(void) {
    struct sigaction action = {.sa_sigaction = emulate, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    show("install", forbid(SYS_getppid, SECCOMP_RET_TRAP | 7, 0));
    show("emulated", syscall(SYS_getppid));
    show("trapped", trapped);
}

static void *in_thread(void *nothing) { return (void *)(long)call(SYS_getppid); }
static void *waits(void *pipe) { char byte; read(*(int *)pipe, &byte, 1); return in_thread(0); }
static void inherits(char *self) {
    int status, ends[2]; pthread_t earlier, later; void *found; long first = 0;
    pipe(ends);
    pthread_create(&earlier, 0, waits, &ends[0]);
    show("install", forbid(SYS_getppid, SECCOMP_RET_ERRNO | EDOM, SECCOMP_FILTER_FLAG_TSYNC));
    pthread_create(&later, 0, in_thread, 0);
    pthread_join(later, &found); show("later thread", (long)found);
    write(ends[1], "", 1); pthread_join(earlier, &found); show("earlier thread", (long)found);
    if (!fork()) { show("child", call(SYS_getppid)); _exit(0); }
    wait(&status);
    execl("/nowhere", "nowhere", NULL);
    execl(self, self, "executed", NULL);
}
static void executed(void) {
    show("executed", call(SYS_getppid));
    show("and added", forbid(SYS_getpid, SECCOMP_RET_ERRNO | EDOM, 0));
    show("added", call(SYS_getpid));
    show("still", call(SYS_getppid));
}

static void ends(unsigned verdict) {
    show("install", forbid(SYS_getppid, verdict, 0));
    call(SYS_getppid); puts("never");
}
static void strict(void) {
    if (prctl(PR_SET_SECCOMP, 1)) return;
    write(1, "written\n", 8);
    call(SYS_getppid); puts("never");
}

static void mistakes(void) {
    struct sock_filter backwards[] = {BPF_STMT(BPF_JMP | BPF_JA, 1), RETURN(0)}, endless[] = {LOAD(nr)},
        outside[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), RETURN(0)}, divides[] = {ALU(BPF_DIV, 0), RETURN(0)},
        unknown[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), RETURN(0)}, far[] = {BPF_STMT(BPF_ST, 16), RETURN(0)},
        odd[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), RETURN(0)};
    struct { struct sock_filter *filter; int n; } all[] = {{backwards, 2}, {endless, 1}, {outside, 2}, {divides, 2},
                                                           {unknown, 2}, {far, 2}, {odd, 2}, {odd, 0}, {NULL, 2}};
    for (int i = 0; i < 9; i++) show("mistake", install(all[i].filter, all[i].n, 0) ? errno : 0);
    show("flag", install(odd, 2, 1 << 20) ? errno : 0);
    show("none", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) ? errno : 0);
}

int main(int n, char **names) {
    if (!strcmp(names[1], "errors")) errors();
    if (!strcmp(names[1], "computes")) computes();
    if (!strcmp(names[1], "traps")) traps();
    if (!strcmp(names[1], "inherits")) inherits(names[0]);
    if (!strcmp(names[1], "executed")) executed();
    if (!strcmp(names[1], "kills")) ends(SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(names[1], "kills the thread")) ends(SECCOMP_RET_KILL_THREAD);
    if (!strcmp(names[1], "unhandled trap")) ends(SECCOMP_RET_TRAP);
    if (!strcmp(names[1], "strict")) strict();
    if (!strcmp(names[1], "mistakes")) mistakes();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filters")
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-w", "-pthread", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("errors", "large error -1"),
        ("computes", "greater 18"),
        ("traps", "trapped 1"),
        ("inherits", "still -33"),
        ("kills", "install 0"),
        ("kills the thread", "install 0"),
        ("unhandled trap", "install 0"),
        ("strict", "written"),
        ("mistakes", "none 14"),
    ],
)
def test_filters_of_system_calls_do_what_they_do_natively(
    pagelab: Pagelab, program: Path, what: str, last: str
) -> None:
    native = subprocess.run([program, what], capture_output=True, text=True, timeout=60, check=False)
    assert native.stdout.splitlines()[-1] == last
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, what)
    assert recorded.stdout == native.stdout, recorded.stderr
    assert recorded.returncode == (native.returncode if native.returncode >= 0 else 128 - native.returncode)
    about = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)
    assert (about["complete"], about["meta"].get("losses", [])) == (True, [])
