//! The address spaces whose translations a CPU holds (`agenda/shootdown.rs` says what is modelled).

use pagelab_base::ids::SpaceId;
use pagelab_tables::mmu_cache::Asid;

pagelab_base::counters! {
    /// Counters of shootdowns and switches between address spaces.
    pub struct ShootdownCounters {
        count: u64 as count("count", "TLB shootdowns, including local ones");
        interrupts: u64 as timed_count("interrupts", "CPUs interrupted by TLB shootdowns");
        spared: u64 as timed_count(
            "spared",
            "Idle CPUs that TLB shootdowns did not interrupt although the space was loaded"
        );
        pcid_flushes: u64 as timed_count(
            "flush.pcid",
            "Flushes because a CPU switched to an address space for which it had no PCID"
        );
        generation_flushes: u64 as timed_count(
            "flush.generation",
            "Flushes because a CPU switched to an address space that shootdowns had changed since it last ran there"
        );
    }
}

/// Number of shootdowns of each space, by tag.
#[derive(Clone, Default)]
pub struct Generations(Vec<u64>);

impl Generations {
    pub(crate) fn generation(&self, asid: Asid) -> u64 {
        self.0.get(usize::from(asid.0)).copied().unwrap_or(0)
    }

    pub(crate) fn advance(&mut self, asid: Asid) -> u64 {
        let index = usize::from(asid.0);
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] += 1;
        self.0[index]
    }
}

/// Whether a CPU uses the space that it has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It runs a program in the space.
    Running,
    /// It is idle, with the space loaded.
    Lazy,
    /// It is idle, with the kernel's own page table loaded: shootdowns skip it.
    Away,
}

/// The address spaces for which a CPU has PCIDs, each with the generation that it last saw. Without PCIDs there is one
/// slot: switching to a space flushes the one before.
#[derive(Clone, Debug)]
pub struct Pcids {
    held: Vec<Option<(SpaceId, u64)>>,
    next: usize,
}

/// What a CPU holds of the space that it switches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PcidState {
    Current,
    /// Translations from before a shootdown.
    Behind,
    /// No PCID; the one that it got belonged to the space `before`.
    Nothing {
        before: Option<SpaceId>,
    },
}

impl Pcids {
    /// No space has a PCID yet. `pcids` is 0 if the hardware has none.
    pub fn new(pcids: u32) -> Self {
        Self { held: vec![None; pcids.max(1) as usize], next: 0 }
    }

    /// Switches to a space whose generation is `generation`.
    pub(crate) fn load(&mut self, space: SpaceId, generation: u64) -> PcidState {
        if let Some((_, seen)) = self.held.iter_mut().flatten().find(|(held, _)| *held == space) {
            let behind = std::mem::replace(seen, generation) < generation;
            return if behind { PcidState::Behind } else { PcidState::Current };
        }
        let before = self.held[self.next].replace((space, generation));
        self.next = (self.next + 1) % self.held.len();
        PcidState::Nothing { before: before.map(|(space, _)| space) }
    }

    /// A shootdown has brought the CPU up to date.
    pub(crate) fn catch_up(&mut self, space: SpaceId, generation: u64) {
        let seen = self.held.iter_mut().flatten().find(|(held, _)| *held == space);
        seen.expect("a space that is loaded has a PCID").1 = generation;
    }

    /// The space has ended.
    pub(crate) fn forget(&mut self, space: SpaceId) {
        for held in &mut self.held {
            held.take_if(|(loaded, _)| *loaded == space);
        }
    }
}
