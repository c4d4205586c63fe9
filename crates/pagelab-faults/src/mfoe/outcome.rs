//! The result of a run.

use serde::Serialize;

use super::refill::Work;
use crate::timeline::Timeline;

/// What keeps the hit rate below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// No fault missed.
    Nothing,
    /// Most misses came before the rings were filled for the first time.
    Start,
    /// Most misses came while the thread slept: a larger ring or a shorter period would help.
    Ring,
    /// Most misses came while the thread refilled: a faster thread or more threads would help.
    Refill,
}

/// A core's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreOutcome {
    /// Faults considered.
    pub faults: u64,
    /// Those for which the ring had a page.
    pub hits: u64,
    /// Time that its faults took.
    pub before_ps: u64,
    /// Time that they take with the engine.
    pub after_ps: u64,
}

/// Misses by the activity of the core's refill thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// During the first fill.
    pub initial: u64,
    /// During a pass.
    pub refilling: u64,
    /// While it slept until the next pass.
    pub waiting: u64,
}

/// The effect of the engine on a program, as the model estimates it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Faults considered, on all cores.
    pub faults: u64,
    /// Those for which a ring had a page.
    pub hits: u64,
    /// `hits` / `faults`, 0 to 1.
    pub hit_rate: f64,
    /// Faults per second of the program without the engine.
    pub faults_per_second: f64,
    /// Share of the program's time on its cores that faults take without the engine.
    pub overhead_before: f64,
    /// The same with the engine.
    pub overhead_after: f64,
    /// How long the program runs without the engine.
    pub seconds_before: f64,
    /// How long it runs with the engine.
    pub seconds_after: f64,
    /// `seconds_before` / `seconds_after`.
    pub speed_up: f64,
    /// Cause of most misses.
    pub bound: Bound,
    /// Misses by the activity of the core's refill thread.
    pub misses: Misses,
    /// Passes that the background threads began.
    pub passes: u64,
    /// Passes that did not end within their period.
    pub late_passes: u64,
    /// Pages that passes put into rings.
    pub refilled_pages: u64,
    /// Pages that the first fill put into rings.
    pub filled_pages: u64,
    /// Total working time of the background threads.
    pub background_seconds: f64,
    /// The result core by core.
    pub cores: Vec<CoreOutcome>,
}

impl Outcome {
    pub(super) fn new(timeline: &Timeline, cores: Vec<CoreOutcome>, misses: Misses, work: Work) -> Self {
        let sum = |field: fn(&CoreOutcome) -> u64| cores.iter().map(field).sum::<u64>();
        let (faults, hits) = (sum(|core| core.faults), sum(|core| core.hits));
        let [before, after] = [sum(|core| core.before_ps), sum(|core| core.after_ps)].map(|ps| ps as f64 / 1e12);
        let seconds_before = timeline.duration_ns / 1e9;
        let seconds_after = seconds_before - (before - after) / timeline.parallelism;
        Self {
            faults,
            hits,
            hit_rate: hits as f64 / faults as f64,
            faults_per_second: faults as f64 / seconds_before,
            overhead_before: before / (seconds_before * timeline.parallelism),
            overhead_after: after / (seconds_after * timeline.parallelism),
            seconds_before,
            seconds_after,
            speed_up: seconds_before / seconds_after,
            bound: bound(&misses),
            misses,
            passes: work.passes,
            late_passes: work.late_passes,
            refilled_pages: work.refilled,
            filled_pages: work.filled,
            background_seconds: work.busy_ps as f64 / 1e12,
            cores,
        }
    }
}

fn bound(misses: &Misses) -> Bound {
    let Misses { initial, refilling, waiting } = *misses;
    match initial.max(refilling).max(waiting) {
        0 => Bound::Nothing,
        most if most == refilling => Bound::Refill,
        most if most == waiting => Bound::Ring,
        _ => Bound::Start,
    }
}
