//! Prefetchers: hardware that fetches lines before they are requested.
//!
//! Every level of the caches can have any of them. A prefetcher observes the programs' requests that reach its level,
//! and proposes lines. The level (`unit.rs`) drops lines beyond the [border](Border), lines that are already present,
//! and lines for which no buffer is free. Page walks and kernel references neither train nor trigger prefetchers, but
//! can use prefetched lines; walks trigger `replay.rs` alone. Deviation: prefetches of nearer levels do not train
//! either, although in real machines they are ordinary requests at the next level.
//!
//! A design is one file here that implements [`Prefetcher`], and one line below. From these lines `registry.rs`
//! generates a level's configuration (`machine.prefetch.LEVEL.NAME`), the rows of `pagelab list prefetchers` and the
//! enum [`AnyPrefetcher`].

#[macro_use]
mod registry;
pub(super) mod unit;

use std::fmt::Debug;
use std::ops::Range;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::unit::PrefetchCounts;
use super::CacheConfigError;
use pagelab_base::addr::{FRAME_SHIFT, LINE_SHIFT, LineAddr, MachineAddr, VirtAddr};
use pagelab_base::translation::Translation;

prefetchers! {
    next_line::NextLine = "the lines after one that missed, or after the first use of a prefetched one";
    ip_stride::IpStride = "the next address of an instruction whose accesses have a constant stride";
    stream::Stream = "runs ahead of requests for line after line, upwards or downwards";
    replay::Replay = "the line of an access whose page-table entry memory has just read (TEMPO)";
}

/// Maximum number of lines that a prefetcher proposes per request.
pub const MAX_DEGREE: u32 = 32;

/// A level of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum CacheLevel {
    /// The first-level data cache of a core.
    L1 = 0,
    /// The second-level cache of a core.
    L2 = 1,
    /// The last-level cache.
    L3 = 2,
}

impl CacheLevel {
    /// All levels, from the core on.
    pub const ALL: [Self; 3] = [Self::L1, Self::L2, Self::L3];

    /// The level's name in configuration and statistics.
    pub fn name(self) -> &'static str {
        ["l1", "l2", "l3"][self as usize]
    }
}

/// The boundary that prefetches do not cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Border {
    /// The page that maps the access, of any size: beyond it, physical addresses are unrelated.
    #[serde(rename = "mapping")]
    Mapping,
    /// The aligned 4 KiB around the access, even in larger pages: the prefetcher does not know the page size.
    #[serde(rename = "4KiB")]
    Smallest,
}

/// A program's access as prefetch hardware observes it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedAccess {
    /// Address of the instruction; 0 if the trace does not contain it.
    pub pc: u64,
    /// Virtual address of the access.
    pub va: VirtAddr,
    /// Translation of its page.
    pub translation: Translation,
}

/// A program's request at a level.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Address of the instruction; 0 if the trace does not contain it.
    pub pc: u64,
    /// Virtual address of the request.
    pub va: VirtAddr,
    /// Its machine address.
    pub address: MachineAddr,
    /// Whether the level does not hold the line.
    pub missed: bool,
    /// Whether the line was prefetched into this level and this is its first use.
    pub is_first_use: bool,
    /// Line numbers of the page that contains the address.
    page: Range<u64>,
}

impl Demand {
    pub(super) fn new(access: &ObservedAccess, missed: bool, is_first_use: bool) -> Self {
        let first = access.translation.page().0 >> LINE_SHIFT;
        let page = first..first + (access.translation.size().bytes() >> LINE_SHIFT);
        let address = access.translation.address(access.va);
        Self { pc: access.pc, va: access.va, address, missed, is_first_use, page }
    }

    /// Number of the line.
    pub fn line(&self) -> u64 {
        self.address.line().0
    }

    /// Line numbers that a prefetcher with this border may fetch.
    fn within(&self, border: Border) -> Range<u64> {
        match border {
            Border::Mapping => self.page.clone(),
            Border::Smallest => {
                let first = self.address.page_number() << (FRAME_SHIFT - LINE_SHIFT);
                first..first + (1 << (FRAME_SHIFT - LINE_SHIFT))
            }
        }
    }
}

/// Lines that prefetchers propose for a request.
#[derive(Clone, Debug, Default)]
pub struct Proposals {
    within: Range<u64>,
    lines: Vec<LineAddr>,
    /// Number of lines dropped at the border.
    beyond: u64,
}

impl Proposals {
    /// The lines within the border.
    pub(super) fn lines(&self) -> &[LineAddr] {
        &self.lines
    }

    /// Proposes a line by its number; false if it lies beyond the border, as all following lines then do. `None` is a
    /// line below 0.
    pub fn push(&mut self, line: Option<u64>) -> bool {
        let line = line.filter(|line| self.within.contains(line));
        self.beyond += u64::from(line.is_none());
        self.lines.extend(line.map(LineAddr));
        line.is_some()
    }
}

/// A prefetcher design, used at one level.
///
/// Requirements on an implementation: its proposals depend only on its parameters and on the requests that it observed.
/// It proposes at most [`MAX_DEGREE`] lines per request, and its state does not grow.
pub trait Prefetcher: Sized + Clone + Debug {
    /// Its parameters. All have defaults; unknown fields are refused.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// The levels whose requests contain what it needs.
    const LEVELS: &'static [CacheLevel] = &CacheLevel::ALL;

    /// Whether it fetches what a walk was made for, instead of what it proposes for requests
    /// ([`Hierarchy::prefetch_after_walk`](super::Hierarchy::prefetch_after_walk)).
    const FOLLOWS_WALKS: bool = false;

    /// A prefetcher at the start of a run, without any training.
    fn new(parameters: &Self::Parameters) -> Self;

    /// Refuses impossible parameters; keys are relative to the design's part of the configuration.
    fn validate(parameters: &Self::Parameters) -> Result<(), CacheConfigError>;

    /// Parameters for tests.
    fn samples() -> Vec<Self::Parameters>;

    /// The boundary that its prefetches do not cross.
    fn border(&self) -> Border;

    /// Learns from a request and proposes lines.
    fn demand(&mut self, demand: &Demand, proposals: &mut Proposals);
}

/// Refuses a value outside a range.
fn between(key: &str, value: u32, least: u32, most: u32) -> Result<(), CacheConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(CacheConfigError::new(key, format!("{value} is out of range; allowed are {least} to {most}")))
}

#[cfg(test)]
mod test_support {
    use super::*;
    use pagelab_base::addr::PageSize;

    /// A page; tests number lines from its start.
    const PAGE: u64 = 1 << 30;

    /// Lines that a prefetcher proposes for a request at byte `offset` of a page, and the number of proposals beyond
    /// the border.
    pub fn proposed<P: Prefetcher>(
        prefetcher: &mut P,
        size: PageSize,
        pc: u64,
        offset: u64,
        [missed, is_first_use]: [bool; 2],
    ) -> (Vec<i64>, u64) {
        let translation = Translation::new(MachineAddr(PAGE), size, true, true);
        let demanded = ObservedAccess { pc, va: VirtAddr(PAGE + offset), translation };
        let demand = Demand::new(&demanded, missed, is_first_use);
        let mut proposals = Proposals { within: demand.within(prefetcher.border()), ..Proposals::default() };
        prefetcher.demand(&demand, &mut proposals);
        let first = (PAGE >> LINE_SHIFT) as i64;
        (proposals.lines.iter().map(|line| line.0 as i64 - first).collect(), proposals.beyond)
    }
}
