//! Inputs of a core model, step by step.

use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::core_model::{CoreConfig, CoreModel, CoreTime, Data, IncomingAccess, L1TlbMiss, Stall, Timing};
use pagelab_trace::{Access, AccessKind, Branches, Maker};

pub const L1_LATENCY: u64 = 4;
pub const LATENCY: u64 = 200;
/// Instructions take almost no time, so only latencies count.
pub const FAST: f64 = 1.0 / 256.0;

/// A core with `keys`, and otherwise large resources.
pub fn core(keys: &str) -> CoreModel {
    let mut all: serde_json::Value = serde_json::json!({
        "model": "window", "cycles_per_instruction": FAST, "window": 4096, "load_queue": 4096, "store_queue": 4096,
        "fill_buffers": 64, "page_walkers": 64,
    });
    let keys: serde_json::Value = serde_json::from_str(keys).unwrap();
    all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let config: CoreConfig = serde_json::from_value(all).unwrap();
    config.validate("core").unwrap();
    CoreModel::new(&config, Cycles(L1_LATENCY))
}

/// The core model's input for an access; all lines differ unless set.
#[derive(Clone, Copy)]
pub struct Step {
    pub access: Access,
    pub walk: u64,
    /// The result of the page walk.
    pub page: Option<Translation>,
    pub latency: u64,
    pub line: Option<u64>,
    pub branches: Branches,
}

pub fn load() -> Step {
    Step {
        access: Access::new(AccessKind::Load, 0, 8),
        walk: 0,
        page: None,
        latency: LATENCY,
        line: None,
        branches: Branches::NONE,
    }
}

pub fn walking() -> Step {
    Step { walk: 50, ..load() }
}

pub fn store() -> Step {
    Step { access: Access::new(AccessKind::Store, 0, 8), ..load() }
}

/// Cycles until all steps are complete; of these, stalls for translation, and for data.
pub fn cycles(core: CoreModel, steps: impl IntoIterator<Item = Step>) -> [u64; 3] {
    let [all, translation, data, branch] = cycles_with_branches(core, steps);
    assert_eq!(branch, 0);
    [all, translation, data]
}

/// The same, plus stalls for mispredicted branches.
pub fn cycles_with_branches(mut core: CoreModel, steps: impl IntoIterator<Item = Step>) -> [u64; 4] {
    let mut at = CoreTime { instructions: 0, now: Cycles::ZERO };
    let mut sums = Stall::default();
    let mut spend = |at: &mut CoreTime, stall: Stall| {
        at.now += stall.sum();
        sums += stall;
    };
    for (step, number) in steps.into_iter().zip(1000..) {
        let stall = core.begin_access(
            IncomingAccess { access: &step.access, again: false, has_dependencies: true, branches: step.branches },
            at,
        );
        spend(&mut at, stall);
        if step.walk > 0 {
            let miss = L1TlbMiss { look_up: Cycles::ZERO, walk: Cycles(step.walk), page: step.page, fetches: false };
            let stall = core.translation_stall(miss, at);
            spend(&mut at, stall);
        }
        let line = step.line.unwrap_or(number);
        let stall = core.data_stall(Data { latency: Cycles(step.latency), line, traffic: None }, at);
        spend(&mut at, stall);
        let instructions = at.instructions + u64::from(step.access.gap);
        at.now += core.base_cycles(instructions) - core.base_cycles(at.instructions);
        at.instructions = instructions;
    }
    let stall = core.drain(at);
    spend(&mut at, stall);
    [at.now.0, sums.translation.0, sums.data.0, sums.branch.0]
}

pub fn repeated(step: Step, count: usize) -> Vec<Step> {
    vec![step; count]
}

pub fn after(distance: u64, step: Step) -> Step {
    Step { access: Access { maker: Maker::after(distance), ..step.access }, ..step }
}
