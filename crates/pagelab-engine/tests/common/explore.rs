//! Explores all orders of the steps of a few actors on a small machine.

use std::fmt::Debug;

use pagelab_engine::base::ids::CpuId;
use pagelab_engine::machine::cpu::CpuState;
use pagelab_engine::machine::simulation::Simulation;

/// The state of a machine on which each CPU has an actor.
pub trait Race: Clone {
    type Actor: Copy + Debug;

    fn simulation(&self) -> &Simulation;

    /// Executes an actor's next step that is visible to others; true if it was the last one.
    fn step(&mut self, cpu: CpuId, actor: Self::Actor) -> bool;

    /// Checks what must hold at the end of every schedule.
    fn check(&mut self);
}

/// Runs one schedule. At the n-th step the `schedule[n]`-th of the runnable actors runs, counted from the one that ran
/// before; after the schedule's end, the first one. Runnable actors are preempted at most `interruptions` times.
/// Returns for each step which actor ran, and how many were runnable.
fn run_schedule<R: Race>(
    begin: &R,
    actors: &[R::Actor],
    interruptions: usize,
    schedule: &[usize],
    finish: &dyn Fn(&R),
) -> Vec<(usize, usize)> {
    let (mut race, mut left) = (begin.clone(), interruptions);
    let (mut done, mut last) = (vec![false; actors.len()], CpuId(0));
    let mut taken = Vec::new();
    while done.contains(&false) {
        let able = |&cpu: &CpuId| !done[cpu] && race.simulation().scheduler.cpus[cpu].state == CpuState::Ready;
        let mut able: Vec<CpuId> = CpuId::all(actors.len()).filter(able).collect();
        assert!(!able.is_empty(), "all wait for each other: {actors:?}, {taken:?}");
        able.sort_by_key(|&cpu| cpu != last);
        let goes_on = able[0] == last;
        let choices = if goes_on && left == 0 { 1 } else { able.len() };
        let turn = schedule.get(taken.len()).copied().unwrap_or(0);
        taken.push((turn, choices));
        left -= usize::from(goes_on && turn > 0 && taken.len() > 1);
        last = able[turn];
        done[last] = race.step(last, actors[last]);
    }
    assert!(!race.simulation().kernels.os.locks.any_held(), "{actors:?}, {taken:?}");
    race.check();
    finish(&race);
    taken
}

/// Runs all schedules from `begin` with at most this many preemptions; returns their number.
pub fn explore<R: Race>(begin: &R, actors: &[R::Actor], interruptions: usize, finish: &dyn Fn(&R)) -> usize {
    let (mut schedule, mut count) = (Vec::new(), 0);
    loop {
        let taken = run_schedule(begin, actors, interruptions, &schedule, finish);
        count += 1;
        let Some(last) = taken.iter().rposition(|&(turn, choices)| turn + 1 < choices) else { return count };
        schedule = taken[..=last].iter().map(|&(turn, _)| turn).collect();
        schedule[last] += 1;
    }
}
