/* Stands in for Valgrind's launcher, LAUNCHER, and counts the instructions that Valgrind's process executes between the
   two marks of accesses.S. Writes their number to COUNT. Arguments and descriptors are passed on. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK 0x6d61726b

static void fail(const char *what) {
    fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* Goes on to the next stop, where signals of the program are passed on. Returns the signal, or -1 at the end. */
static int go_on(pid_t child, int request, int *signal, int *status) {
    if (ptrace(request, child, 0, *signal)) fail("ptrace");
    if (waitpid(child, status, 0) < 0) fail("waitpid");
    if (!WIFSTOPPED(*status)) return -1;
    int stop = WSTOPSIG(*status);
    *signal = stop == SIGTRAP || stop == (SIGTRAP | 0x80) ? 0 : stop;
    return stop;
}

int main(int count, char **arguments) {
    arguments[0] = LAUNCHER;
    if (count < 3) {
        execv(LAUNCHER, arguments);
        fail(LAUNCHER);
    }
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) fail("ptrace");
        raise(SIGSTOP);
        execv(LAUNCHER, arguments);
        fail(LAUNCHER);
    }
    int status, signal = 0, stop;
    if (waitpid(child, &status, 0) < 0) fail("waitpid");
    if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) fail("ptrace");
    struct user_regs_struct registers;
    unsigned long long steps = 0;
    do {
        if ((stop = go_on(child, PTRACE_SYSCALL, &signal, &status)) < 0) break;
        if (ptrace(PTRACE_GETREGS, child, 0, &registers)) fail("ptrace");
    } while (stop != (SIGTRAP | 0x80) || registers.orig_rax != SYS_getppid || registers.rdi != MARK);
    while (stop >= 0 && (registers.rax != SYS_getppid || registers.rdi != MARK + 1)) {
        if ((stop = go_on(child, PTRACE_SINGLESTEP, &signal, &status)) < 0) break;
        steps += signal == 0;
        if (ptrace(PTRACE_GETREGS, child, 0, &registers)) fail("ptrace");
    }
    if (stop >= 0) {
        FILE *file = fopen(COUNT, "w");
        if (!file || fprintf(file, "%llu\n", steps) < 0 || fclose(file)) fail(COUNT);
    }
    while (stop >= 0) stop = go_on(child, PTRACE_CONT, &signal, &status);
    if (WIFSIGNALED(status)) raise(WTERMSIG(status));
    return WEXITSTATUS(status);
}
