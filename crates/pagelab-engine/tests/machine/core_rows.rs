//! Compares accesses passed to a core in rows with the same accesses passed singly.

use pagelab_engine::base::addr::{MachineAddr, PageSize};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::core_model::{
    CoreConfig, CoreModel, CoreTime, Data, DataLocation, IncomingAccess, L1TlbMiss, ROW, Row, Siblings, Stall, Timing,
};
use pagelab_trace::{Access, AccessKind, Branches, Maker};

const L1_LATENCY: Cycles = Cycles(4);

/// Contents of a row.
#[derive(Default)]
struct Drawn {
    accesses: Vec<Access>,
    branches: Vec<Branches>,
    found: Vec<DataLocation>,
}

impl Drawn {
    fn new(rng: &mut Rng) -> Self {
        let mut drawn = Self::default();
        // In some rows nearly all accesses hit, so that outstanding ones complete.
        let (misses, stores, has_branches) = (rng.below(4), 1 + rng.below(4), rng.below(4) > 0);
        for _ in 0..1 + rng.below(ROW as u64) {
            let kind = match rng.below(2 * stores) {
                0 => AccessKind::Store,
                1 => AccessKind::Modify,
                _ => AccessKind::Load,
            };
            let gap = [0, 1, 1, 2, 3, 5, 60][rng.below(7) as usize];
            let distance = [0, 0, 1, 2, 3, 17, 200, 254][rng.below(8) as usize];
            let pc = 4 * rng.below(50);
            drawn.accesses.push(Access { gap, pc, maker: Maker::after(distance), ..Access::new(kind, 0, 8) });
            let mut branches = Branches::NONE;
            for _ in 0..rng.below(20).saturating_sub(12) {
                branches.push(rng.below(3) > 0);
            }
            branches.wait_for(rng.below(30));
            drawn.branches.push(branches);
            let latency = if rng.below(4) < misses { [14, 50, 200][rng.below(3) as usize] } else { L1_LATENCY.0 };
            drawn.found.push(DataLocation { latency: Cycles(latency), line: rng.below(40) * 64 });
        }
        // Exactly one per access, fewer, more, or none.
        match rng.below(4) {
            0 => drawn.branches.clear(),
            1 => drawn.branches.extend([drawn.branches[0]; 7]),
            2 => drawn.branches.truncate(drawn.branches.len() / 2),
            _ => {}
        }
        if !has_branches {
            drawn.branches.clear();
        }
        drawn
    }

    /// Stores only.
    fn stores(mut self) -> Self {
        self.accesses.iter_mut().for_each(|access| access.kind = AccessKind::Store);
        self
    }
}

/// A core, and the position of its program.
struct Program {
    core: CoreModel,
    at: CoreTime,
    stalls: Stall,
}

impl Program {
    fn new(core: CoreModel) -> Self {
        Self { core, at: CoreTime { instructions: 0, now: Cycles::ZERO }, stalls: Stall::default() }
    }

    fn spend(&mut self, stall: Stall) {
        self.at.now += stall.sum();
        self.stalls += stall;
    }

    fn retire(&mut self, gap: u32) {
        let instructions = self.at.instructions + u64::from(gap);
        self.at.now += self.core.base_cycles(instructions) - self.core.base_cycles(self.at.instructions);
        self.at.instructions = instructions;
    }

    /// Singly, the first after a walk if there is one.
    fn make(&mut self, drawn: &Drawn, has_dependencies: bool, walk: Option<L1TlbMiss>) {
        for (number, (access, found)) in drawn.accesses.iter().zip(&drawn.found).enumerate() {
            let branches = drawn.branches.get(number).copied().unwrap_or_default();
            let stall =
                self.core.begin_access(IncomingAccess { access, again: false, has_dependencies, branches }, self.at);
            self.spend(stall);
            if let Some(walk) = walk.filter(|_| number == 0) {
                let stall = self.core.translation_stall(walk, self.at);
                self.spend(stall);
            }
            let data = Data { latency: found.latency, line: found.line, traffic: None };
            let stall = self.core.data_stall(data, self.at);
            self.spend(stall);
            self.retire(access.gap);
        }
    }

    fn make_row(&mut self, drawn: &Drawn, has_dependencies: bool) {
        let row = Row { accesses: &drawn.accesses, branches: &drawn.branches, found: &drawn.found, has_dependencies };
        let stall = self.core.make_all(&row, self.at);
        self.spend(stall);
        drawn.accesses.iter().for_each(|access| self.retire(access.gap));
    }
}

fn configs() -> Vec<CoreConfig> {
    let small = |keys: serde_json::Value| {
        let mut all =
            serde_json::json!({"model": "window", "cycles_per_instruction": 0.25, "branch_predictor": "tage"});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        serde_json::from_value::<CoreConfig>(all).unwrap()
    };
    let mut all = CoreConfig::samples();
    all.extend([
        small(serde_json::json!({})),
        small(serde_json::json!({"window": 16, "load_queue": 3, "store_queue": 2, "fill_buffers": 2})),
        small(serde_json::json!({"window": 300, "load_queue": 5, "store_queue": 1})),
        small(serde_json::json!({"window": 40, "load_queue": 200, "store_queue": 0, "cycles_per_instruction": 1})),
        small(serde_json::json!({"window": 500, "unknown_dependencies": "serial", "branch_predictor": "perfect"})),
    ]);
    all
}

#[test]
fn rows_are_as_their_accesses_one_by_one() {
    for config in configs() {
        config.validate("core").unwrap();
        for beside_another in [false, true] {
            let mut rng = Rng::new(11, "rows");
            let core = CoreModel::new(&config, L1_LATENCY);
            let (mut apart, mut rows) = (Program::new(core.clone()), Program::new(core));
            let mut common = Some((apart.core.common(), rows.core.common()));
            let mut active = [0, 0];
            for round in 0..400 {
                let drawn = Drawn::new(&mut rng);
                let has_dependencies = rng.below(8) > 0;
                // So many that no load is within the reach of the next.
                let drawn = if (200..220).contains(&round) { drawn.stores() } else { drawn };
                if beside_another && rng.below(4) == 0 {
                    // The shared state changes owner; the window is divided, or undivided again.
                    let held = common.take().unwrap_or_else(|| (apart.core.pause(), rows.core.pause()));
                    if let (Some(first), Some(second)) = held {
                        let siblings = Siblings { active: rng.below(2) as u32, now: apart.at.now };
                        active[siblings.active as usize] += 1;
                        apart.core.resume(first, siblings);
                        rows.core.resume(second, siblings);
                    }
                }
                if rng.below(6) == 0 {
                    // The pages that contain the lines.
                    let page = Translation::new(MachineAddr(rng.below(40) << 12), PageSize::Size4K, true, true);
                    let drawn = Drawn { accesses: drawn.accesses[..1].to_vec(), ..Drawn::new(&mut rng) };
                    let (look_up, walk) = (Cycles(7), Cycles(rng.below(400)));
                    let walk = L1TlbMiss { look_up, walk, page: Some(page), fetches: false };
                    apart.make(&drawn, has_dependencies, Some(walk));
                    rows.make(&drawn, has_dependencies, Some(walk));
                } else {
                    apart.make(&drawn, has_dependencies, None);
                    rows.make_row(&drawn, has_dependencies);
                }
                let state = |program: &Program| (program.at, program.stalls, program.core.branches());
                assert_eq!(state(&apart), state(&rows), "{config:?} {round}");
                if rng.below(30) == 0 {
                    for program in [&mut apart, &mut rows] {
                        let stall = program.core.drain(program.at);
                        program.spend(stall);
                    }
                    assert_eq!(apart.at, rows.at, "{config:?} {round}");
                }
            }
            let Stall { data, translation, .. } = apart.stalls;
            assert!(data > Cycles::ZERO && translation > Cycles::ZERO, "{config:?}");
            let shares = beside_another && rows.core.common().is_some();
            assert!(!shares || active.iter().all(|&times| times > 10), "{config:?}: {active:?}");
        }
    }
}
