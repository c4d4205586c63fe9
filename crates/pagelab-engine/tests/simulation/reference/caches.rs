//! A second implementation of the data caches, written from the text of `pagelab_engine::cache` alone and as simply as
//! possible: ways in vectors, ages as numbers, states as an enum. Only the random generator is shared, since its draws
//! are part of the text.

use std::collections::BTreeMap;

use pagelab_engine::base::rng::Rng;
use pagelab_engine::cache::{CacheConfig, Inclusion, ReplacementPolicy, WalkerEntry};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    Shared,
    Exclusive,
    Modified,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    line: u64,
    state: LineState,
    /// When it was last accessed or filled.
    used: u64,
    /// SRRIP's prediction.
    prediction: u8,
    /// Whether a page walk has looked it up.
    of_table: bool,
}

#[derive(Debug)]
struct Level {
    sets: Vec<Vec<Option<Way>>>,
    /// Tree-PLRU: set and the node's range of ways (first, count) → whether the victim is on the right.
    trees: BTreeMap<(usize, usize, usize), bool>,
    policy: ReplacementPolicy,
    rng: Rng,
    now: u64,
    latency: u64,
    /// Of this phase, whether each look-up was by a page walk.
    look_ups: Vec<bool>,
    has_many_walks: bool,
    kept: u64,
}

impl Level {
    fn new(bytes: u64, ways: u32, policy: ReplacementPolicy, latency: u32, rng: Rng) -> Self {
        let sets = bytes / 64 / u64::from(ways);
        let sets = (0..sets).map(|_| vec![None; ways as usize]).collect();
        let has_many_walks = matches!(policy, ReplacementPolicy::KeepTables(bias) if bias.walks_per_1000 == 0);
        let (trees, look_ups) = (BTreeMap::new(), Vec::new());
        Self { sets, trees, policy, rng, now: 0, latency: latency.into(), look_ups, has_many_walks, kept: 0 }
    }

    fn look_up(&mut self, by_walk: bool) {
        let ReplacementPolicy::KeepTables(bias) = self.policy else { return };
        self.look_ups.push(by_walk);
        if self.look_ups.len() == bias.window as usize {
            let walks = self.look_ups.drain(..).filter(|&by_walk| by_walk).count() as u32;
            self.has_many_walks = walks * 1000 >= bias.walks_per_1000 * bias.window;
        }
    }

    fn mark(&mut self, line: u64, by_walk: bool) {
        let (set, way) = self.place(line).unwrap();
        self.sets[set][way].as_mut().unwrap().of_table |= by_walk;
    }

    fn place(&self, line: u64) -> Option<(usize, usize)> {
        let set = (line % self.sets.len() as u64) as usize;
        let way = self.sets[set].iter().position(|w| w.is_some_and(|w| w.line == line))?;
        Some((set, way))
    }

    fn state(&self, line: u64) -> Option<LineState> {
        self.place(line).map(|(set, way)| self.sets[set][way].unwrap().state)
    }

    fn set_state(&mut self, line: u64, state: LineState) {
        let (set, way) = self.place(line).unwrap();
        self.sets[set][way].as_mut().unwrap().state = state;
    }

    fn use_way(&mut self, set: usize, way: usize) {
        self.now += 1;
        self.sets[set][way].as_mut().unwrap().used = self.now;
        let (mut first, mut count) = (0, self.sets[set].len());
        while count > 1 {
            let left = count.div_ceil(2);
            let goes_left = way < first + left;
            // The bit points to the other side.
            self.trees.insert((set, first, count), goes_left);
            (first, count) = if goes_left { (first, left) } else { (first + left, count - left) };
        }
    }

    /// An access to a cached line.
    fn access(&mut self, line: u64) {
        let (set, way) = self.place(line).unwrap();
        self.use_way(set, way);
        let way = self.sets[set][way].as_mut().unwrap();
        way.prediction = match self.policy {
            ReplacementPolicy::KeepBlocks => way.prediction.saturating_sub(1),
            ReplacementPolicy::Srrip
            | ReplacementPolicy::Lru
            | ReplacementPolicy::TreePlru
            | ReplacementPolicy::Random
            | ReplacementPolicy::KeepTables(_) => 0,
        };
    }

    fn victim(&mut self, set: usize) -> usize {
        let ways = &mut self.sets[set];
        match self.policy {
            ReplacementPolicy::Lru => oldest(ways, |_| true).unwrap(),
            ReplacementPolicy::KeepTables(bias) => {
                let first = oldest(ways, |_| true).unwrap();
                let Some(of_data) = oldest(ways, |way| !way.of_table) else { return first };
                let draws = bias.share_percent < 100;
                if of_data == first || !self.has_many_walks || draws && self.rng.below(100) >= bias.share_percent.into()
                {
                    return first;
                }
                self.kept += 1;
                of_data
            }
            ReplacementPolicy::Random => self.rng.below(ways.len() as u64) as usize,
            ReplacementPolicy::Srrip | ReplacementPolicy::KeepBlocks => loop {
                if let Some(way) = ways.iter().position(|w| w.unwrap().prediction == 3) {
                    break way;
                }
                ways.iter_mut().for_each(|w| w.as_mut().unwrap().prediction += 1);
            },
            ReplacementPolicy::TreePlru => {
                let (mut first, mut count) = (0, ways.len());
                while count > 1 {
                    let left = count.div_ceil(2);
                    let right = self.trees.get(&(set, first, count)).copied().unwrap_or(false);
                    (first, count) = if right { (first + left, count - left) } else { (first, left) };
                }
                first
            }
        }
    }

    /// Inserts a line that is not cached; returns the victim.
    fn fill(&mut self, line: u64, state: LineState) -> Option<(u64, LineState)> {
        assert!(self.place(line).is_none());
        let set = (line % self.sets.len() as u64) as usize;
        let way = match self.sets[set].iter().position(Option::is_none) {
            Some(way) => way,
            None => self.victim(set),
        };
        let old = self.sets[set][way].replace(Way { line, state, used: 0, prediction: 2, of_table: false });
        self.use_way(set, way);
        old.map(|w| (w.line, w.state))
    }

    fn remove(&mut self, line: u64) -> Option<LineState> {
        let (set, way) = self.place(line)?;
        self.sets[set][way].take().map(|w| w.state)
    }
}

fn oldest(ways: &[Option<Way>], counts: impl Fn(&Way) -> bool) -> Option<usize> {
    (0..ways.len()).filter(|&way| counts(&ways[way].unwrap())).min_by_key(|&way| ways[way].unwrap().used)
}

#[derive(Debug)]
struct Core {
    l1: Level,
    l2: Option<Level>,
    counts: CoreCounts,
}

/// Counts per core, as `pagelab_engine::cache::CoreCacheStats` describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    pub upgrades: u64,
    pub l1_writebacks: u64,
    pub l2_writebacks: u64,
    pub invalidations: u64,
    pub downgrades: u64,
    pub downgrade_writebacks: u64,
    pub back_invalidations: u64,
}

impl Core {
    fn states(&self, line: u64) -> [Option<LineState>; 2] {
        [self.l1.state(line), self.l2.as_ref().and_then(|l2| l2.state(line))]
    }

    fn holds(&self, line: u64) -> bool {
        self.states(line).iter().any(Option::is_some)
    }

    fn holds_alone(&self, line: u64) -> bool {
        self.states(line).into_iter().flatten().any(|state| state != LineState::Shared)
    }

    /// Removes all copies; returns whether there was one, and whether one was modified.
    fn remove(&mut self, line: u64) -> (bool, bool) {
        let states = self.states(line);
        self.l1.remove(line);
        self.l2.as_mut().map(|l2| l2.remove(line));
        (states.iter().any(Option::is_some), states.contains(&Some(LineState::Modified)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitLevel {
    L1,
    L2,
    L3,
    Remote,
    Dram,
}

/// See the module's text.
#[derive(Debug)]
pub struct Caches {
    config: CacheConfig,
    cores: Vec<Core>,
    l3: Option<Level>,
    pub l3_writebacks: u64,
    pub dram_writes: u64,
    pub dma_invalidations: u64,
}

impl Caches {
    pub fn new(config: &CacheConfig, cores: usize, seed: u64) -> Self {
        let core = |n: usize| Core {
            l1: Level::new(
                config.l1.size_bytes.0,
                config.l1.ways,
                config.l1.policy,
                config.l1.latency_cycles,
                Rng::new(seed, &format!("cache.l1.{n}")),
            ),
            l2: config.l2.as_ref().map(|l2| {
                let rng = Rng::new(seed, &format!("cache.l2.{n}"));
                Level::new(l2.size_bytes.0, l2.ways, l2.policy, l2.latency_cycles, rng)
            }),
            counts: CoreCounts::default(),
        };
        let l3 = config
            .l3
            .as_ref()
            .map(|l3| Level::new(l3.size_bytes.0, l3.ways, l3.policy, l3.latency_cycles, Rng::new(seed, "cache.l3")));
        Self {
            config: config.clone(),
            cores: (0..cores).map(core).collect(),
            l3,
            l3_writebacks: 0,
            dram_writes: 0,
            dma_invalidations: 0,
        }
    }

    pub fn counts(&self, core: usize) -> &CoreCounts {
        &self.cores[core].counts
    }

    /// Victims of data instead of lines of page tables.
    pub fn tables_kept(&self) -> u64 {
        self.cores.iter().filter_map(|core| core.l2.as_ref()).chain(&self.l3).map(|level| level.kept).sum()
    }

    fn others(&self, core: usize) -> Vec<usize> {
        (0..self.cores.len()).filter(|&other| other != core).collect()
    }

    fn l1_victim(&mut self, core: usize, victim: Option<(u64, LineState)>) {
        let Some((line, LineState::Modified)) = victim else { return };
        self.cores[core].counts.l1_writebacks += 1;
        self.take_from_l1(core, line);
    }

    fn take_from_l1(&mut self, core: usize, line: u64) {
        match &mut self.cores[core].l2 {
            None => self.write_to_l3(line),
            Some(l2) if l2.state(line).is_some() => {
                l2.access(line);
                l2.set_state(line, LineState::Modified);
            }
            Some(l2) => {
                let next = l2.fill(line, LineState::Modified);
                self.l2_victim(core, next);
            }
        }
    }

    fn l2_victim(&mut self, core: usize, victim: Option<(u64, LineState)>) {
        let Some((line, LineState::Modified)) = victim else { return };
        self.cores[core].counts.l2_writebacks += 1;
        self.write_to_l3(line);
    }

    fn write_to_l3(&mut self, line: u64) {
        match &mut self.l3 {
            None => self.dram_writes += 1,
            Some(l3) if l3.state(line).is_some() => {
                l3.access(line);
                l3.set_state(line, LineState::Modified);
            }
            Some(l3) => {
                let victim = l3.fill(line, LineState::Modified);
                self.l3_victim(victim);
            }
        }
    }

    fn l3_victim(&mut self, victim: Option<(u64, LineState)>) {
        let Some((line, state)) = victim else { return };
        let mut dirty = state == LineState::Modified;
        if self.config.l3.as_ref().unwrap().inclusion == Inclusion::Inclusive {
            for core in &mut self.cores {
                let (held, modified) = core.remove(line);
                core.counts.back_invalidations += u64::from(held);
                dirty |= modified;
            }
        }
        self.l3_writebacks += u64::from(dirty);
        self.dram_writes += u64::from(dirty);
    }

    /// Removes the copies of all other cores; returns whether one was exclusive.
    fn take_from_others(&mut self, core: usize, line: u64) -> bool {
        let mut alone = false;
        for other in self.others(core) {
            let other = &mut self.cores[other];
            alone |= other.holds_alone(line);
            other.counts.invalidations += u64::from(other.remove(line).0);
        }
        alone
    }

    /// One request. Returns where it was served, and whether it needed an upgrade.
    fn request(&mut self, core: usize, line: u64, write: bool, at_l2: bool, by_walk: bool) -> (HitLevel, bool) {
        if at_l2 && let Some(state) = self.cores[core].l1.state(line) {
            if state == LineState::Modified {
                self.cores[core].counts.l1_writebacks += 1;
                self.take_from_l1(core, line);
                if self.cores[core].l1.state(line).is_some() {
                    self.cores[core].l1.set_state(line, LineState::Exclusive);
                }
            } else if self.cores[core].l2.as_ref().unwrap().state(line).is_none() {
                let victim = self.cores[core].l2.as_mut().unwrap().fill(line, state);
                self.l2_victim(core, victim);
            }
            if write {
                self.cores[core].l1.remove(line);
            }
        }
        if !at_l2 && let Some(state) = self.cores[core].l1.state(line) {
            self.cores[core].l1.access(line);
            let upgrade = write && state == LineState::Shared;
            if upgrade {
                self.cores[core].counts.upgrades += 1;
                self.take_from_others(core, line);
            }
            if write {
                self.cores[core].l1.set_state(line, LineState::Modified);
            }
            return (HitLevel::L1, upgrade);
        }
        if let Some(l2) = &mut self.cores[core].l2 {
            l2.look_up(by_walk);
        }
        if let Some(state) = self.cores[core].l2.as_ref().and_then(|l2| l2.state(line)) {
            self.cores[core].l2.as_mut().unwrap().access(line);
            self.cores[core].l2.as_mut().unwrap().mark(line, by_walk);
            let upgrade = write && state == LineState::Shared;
            if upgrade {
                self.cores[core].counts.upgrades += 1;
                self.take_from_others(core, line);
            }
            if at_l2 {
                if write {
                    self.cores[core].l2.as_mut().unwrap().set_state(line, LineState::Modified);
                }
            } else {
                let filled = match (write, state) {
                    (true, _) => LineState::Modified,
                    (false, LineState::Shared) => LineState::Shared,
                    (false, _) => LineState::Exclusive,
                };
                let victim = self.cores[core].l1.fill(line, filled);
                self.l1_victim(core, victim);
            }
            return (HitLevel::L2, upgrade);
        }
        let mut served = None;
        if write {
            if self.take_from_others(core, line) {
                served = Some(HitLevel::Remote);
            }
        } else if let Some(owner) = self.others(core).into_iter().find(|&o| self.cores[o].holds_alone(line)) {
            let owner = &mut self.cores[owner];
            let modified = owner.states(line).contains(&Some(LineState::Modified));
            for level in [Some(&mut owner.l1), owner.l2.as_mut()].into_iter().flatten() {
                if level.state(line).is_some() {
                    level.set_state(line, LineState::Shared);
                }
            }
            owner.counts.downgrades += 1;
            if modified {
                owner.counts.downgrade_writebacks += 1;
                self.write_to_l3(line);
            }
            served = Some(HitLevel::Remote);
        }
        if served.is_none() {
            self.l3.iter_mut().for_each(|l3| l3.look_up(by_walk));
        }
        let served = served.unwrap_or_else(|| match &mut self.l3 {
            Some(l3) if l3.state(line).is_some() => {
                l3.access(line);
                l3.mark(line, by_walk);
                HitLevel::L3
            }
            Some(l3) => {
                let victim = l3.fill(line, LineState::Exclusive);
                l3.mark(line, by_walk);
                self.l3_victim(victim);
                HitLevel::Dram
            }
            None => HitLevel::Dram,
        });
        let clean = if !write && self.others(core).iter().any(|&o| self.cores[o].holds(line)) {
            LineState::Shared
        } else {
            LineState::Exclusive
        };
        let at_entry = if write { LineState::Modified } else { clean };
        if let Some(l2) = &mut self.cores[core].l2 {
            let victim = l2.fill(line, if at_l2 { at_entry } else { clean });
            l2.mark(line, by_walk);
            self.l2_victim(core, victim);
        }
        if !at_l2 {
            let victim = self.cores[core].l1.fill(line, at_entry);
            self.l1_victim(core, victim);
        }
        (served, false)
    }

    fn latency(&self, served: HitLevel, bulk: bool) -> u64 {
        let level = |level: Option<&Level>| level.map_or(0, |level| level.latency);
        let levels = [Some(&self.cores[0].l1), self.cores[0].l2.as_ref(), self.l3.as_ref()];
        match served {
            HitLevel::L1 => level(levels[0]),
            HitLevel::L2 => level(levels[1]),
            HitLevel::L3 => level(levels[2]),
            HitLevel::Remote => self.config.cache_to_cache_latency_cycles.into(),
            HitLevel::Dram if bulk => level(levels.into_iter().flatten().last()),
            HitLevel::Dram => self.config.dram_latency_cycles.into(),
        }
    }

    /// Where an access was served, and its cycles.
    pub fn access(&mut self, core: usize, line: u64, write: bool, locked: bool, by_walker: bool) -> (HitLevel, u64) {
        let at_l2 = by_walker && self.config.walker_entry == WalkerEntry::L2;
        let (served, upgrade) = self.request(core, line, write || locked, at_l2, by_walker);
        let upgraded = if upgrade { u64::from(self.config.upgrade_latency_cycles) } else { 0 };
        let lock = if locked { u64::from(self.config.locked_extra_cycles) } else { 0 };
        (served, self.latency(served, false) + upgraded + lock)
    }

    /// Cycles of a bulk write.
    pub fn zero(&mut self, core: usize, first: u64, lines: u64) -> u64 {
        let mut sum = 0;
        for line in first..first + lines {
            let (served, upgrade) = self.request(core, line, true, false, false);
            sum += self.latency(served, true);
            sum += if upgrade { u64::from(self.config.upgrade_latency_cycles) } else { 0 };
        }
        sum.div_ceil(self.config.bulk_parallelism.into())
    }

    /// A device's write of a line.
    pub fn device_write(&mut self, line: u64) {
        let mut held = self.l3.as_mut().is_some_and(|l3| l3.remove(line).is_some());
        for core in &mut self.cores {
            held |= core.remove(line).0;
        }
        self.dma_invalidations += u64::from(held);
    }
}
