"""Processes that wait for their children: replay orders what they do next after the children's ends."""

from pathlib import Path

import polars as pl
from conftest import Pagelab, needs_recorder
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

WAITS = r"""
/* A child that touches 64 pages, the last one after so many rounds. */
static pid_t child(volatile char *memory, int rounds) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    for (int i = 0; i < rounds; i++) memory[i * 64L / rounds * PAGE] = 1;
    _exit(3);
}
int main(void) {
    int status;
    siginfo_t ended;
    char *first = map(64, 0), *behind = map(64, 0), *memory = map(64, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    waitpid(child(first, 20000), &status, 0);  /* process 1 */
    touch(behind, 64);
    pid_t early = child(memory, 64);  /* 2, which has ended before the wait */
    waitid(P_PID, early, &ended, WEXITED | WNOWAIT);
    waitpid(early, 0, 0);
    pid_t polled = child(memory, 1000);  /* 3 */
    while (waitpid(polled, &status, WNOHANG) == 0) usleep(1000);
    for (int i = 1; i <= 3; i++) child(memory, 100 * i);  /* 4 to 6 */
    for (int i = 0; i < 3; i++) wait(&status);
    child(memory, 64);  /* 7 */
    waitid(P_ALL, 0, &ended, WEXITED);
    if (fork() == 0) {  /* 8, and its child 9, which it leaves behind */
        child(memory, 64);
        _exit(0);
    }
    while (wait(&status) > 0);
    int runs[2];
    char byte = 0;
    if (pipe(runs) != 0) return 1;
    pid_t killed = fork();  /* 10, which cannot tell of its end; it is killed when it has begun */
    if (killed == 0) for (byte = write(runs[1], &byte, 1) != 1;;) pause();
    if (read(runs[0], &byte, 1) != 1) return 1;
    kill(killed, SIGKILL);
    waitpid(killed, &status, 0);
    signal(SIGCHLD, SIG_IGN);
    child(memory, 64);  /* 11, which the kernel waits for */
    status = wait(&status);
    printf("%d %ld %ld\n", status, (long)first, (long)behind);
}
"""


def test_a_parent_goes_on_after_the_end_of_each_child_that_it_waited_for(pagelab: Pagelab, tmp_path: Path) -> None:
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", compiled(tmp_path, WAITS))
    assert recorded.returncode == 0, recorded.stderr
    status, first, behind = map(int, recorded.stdout.split())
    assert (status, losses(pagelab)) == (-1, [])
    events = pl.read_parquet(tmp_path / "t.trace" / "events-*.parquet").with_row_index("number")
    by_kind = {kind: events.filter(pl.col("kind") == kind) for kind in ("exit", "wake", "woken")}
    ends = dict(by_kind["exit"].select("process", "number").rows())
    wakes = {
        edge: (process, number)
        for edge, process, number in by_kind["wake"].select("argument", "process", "number").rows()
    }
    # Each process but the first lets its parent go on when its memory has gone.
    assert {process: number - 1 for process, number in wakes.values()} == {n: ends[n] for n in range(1, 12)}
    woken = by_kind["woken"].select("argument", "process", "number").rows()
    assert all(process == 0 and number > wakes[edge][1] for edge, process, number in woken)
    order = [wakes[edge][0] for edge, _, _ in woken]
    # Not of 9, which was another's child, and 11, for which nobody waited.
    assert (order[:3], sorted(order[3:6]), order[6:]) == ([1, 2, 3], [4, 5, 6], [7, 8, 10])

    # On two CPUs, the parent touches pages after its child's last one.
    for scheduler in ('{"kind":"eevdf","tick_cycles":0}', '{"kind":"recorded"}'):
        faulted = tmp_path / f"{len(scheduler)}.faults"
        options = ["--faults", faulted, "--set", f"kernel.scheduler={scheduler}"]
        run = pagelab("run", "t.trace@0,1", "-s", "radix", *options)
        assert run.returncode == 0, run.stderr
        faults = pl.read_parquet(faulted)
        of_child, of_parent = (
            faults.filter(pl.col("address").is_between(start, start + 64 * 4096, closed="left"))
            for start in (first, behind)
        )
        assert (len(of_child), len(of_parent)) == (64, 64)
        assert set(of_child["core"]).isdisjoint(of_parent["core"])
        assert min(of_parent["time_ns"].to_list()) > max(of_child["time_ns"].to_list())
