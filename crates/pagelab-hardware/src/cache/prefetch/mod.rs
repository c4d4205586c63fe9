//! Prefetchers: hardware that fetches lines before they are asked for.
//!
//! Every level of the caches may have any of them. A prefetcher sees the programs' requests that reach its level, and
//! proposes lines; the level (`unit.rs`) drops what lies beyond the [border](Border), what is there already and what
//! finds no buffer. Walks and the kernel's references train nothing and set nothing off, but may use what has been
//! fetched. Neither do nearer levels' prefetches, which in real machines are requests at the next level like others:
//! that is a deviation.
//!
//! A design is one file here that implements [`Prefetcher`], and one line below. `registry.rs` makes the configuration
//! of a level of these lines (`machine.prefetch.LEVEL.NAME`), the rows of `pagelab list prefetchers` and the enum
//! [`AnyPrefetcher`].

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
    next_line::NextLine = "the lines behind one that missed, or that is used for the first time since it was prefetched";
    ip_stride::IpStride = "what an instruction will access next if its accesses lie equally far apart";
    stream::Stream = "runs ahead of requests for line after line, upwards or downwards";
}

/// Lines that a prefetcher may propose for a request at most.
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

    /// As configuration and statistics call it.
    pub fn name(self) -> &'static str {
        ["l1", "l2", "l3"][self as usize]
    }
}

/// What a prefetcher never fetches beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Border {
    /// The page that maps the access, whatever its size: behind it physical addresses go on anywhere.
    #[serde(rename = "mapping")]
    Mapping,
    /// The 4 KiB around the access, also in larger pages: the unit is not told how large the page is.
    #[serde(rename = "4KiB")]
    Smallest,
}

/// An access of a program, as hardware that looks ahead sees it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedAccess {
    /// Of the instruction; 0 if the trace does not know it.
    pub pc: u64,
    /// Virtual address of the access.
    pub va: VirtAddr,
    /// Of the page that it lies in.
    pub translation: Translation,
}

/// A program's request at a level.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Of the instruction; 0 if the trace does not know it.
    pub pc: u64,
    /// Virtual address that is asked for.
    pub va: VirtAddr,
    /// Where it lies in memory.
    pub address: MachineAddr,
    /// The level does not hold the line.
    pub missed: bool,
    /// The line has been prefetched into this level, and nobody has asked for it before.
    pub is_first_use: bool,
    /// Numbers of the lines of the page that maps it.
    page: Range<u64>,
}

impl Demand {
    pub(super) fn new(of: &ObservedAccess, missed: bool, is_first_use: bool) -> Self {
        let first = of.translation.page().0 >> LINE_SHIFT;
        let page = first..first + (of.translation.size().bytes() >> LINE_SHIFT);
        let address = of.translation.address(of.va);
        Self { pc: of.pc, va: of.va, address, missed, is_first_use, page }
    }

    /// Number of the line.
    pub fn line(&self) -> u64 {
        self.address.line().0
    }

    /// Numbers of the lines that a prefetcher with this border may fetch.
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

/// What prefetchers propose for a request.
#[derive(Clone, Debug, Default)]
pub struct Proposals {
    within: Range<u64>,
    lines: Vec<LineAddr>,
    /// Those that the border cut off.
    beyond: u64,
}

impl Proposals {
    /// The lines within the border.
    pub(super) fn lines(&self) -> &[LineAddr] {
        &self.lines
    }

    /// Proposes a line by its number; false if it lies beyond the border, as all behind it do. Below line 0 there is
    /// nothing.
    pub fn push(&mut self, line: Option<u64>) -> bool {
        let line = line.filter(|line| self.within.contains(line));
        self.beyond += u64::from(line.is_none());
        self.lines.extend(line.map(LineAddr));
        line.is_some()
    }
}

/// A design of a prefetcher, of one level.
///
/// What an implementor must uphold: what it proposes follows from its parameters and the requests that it was told of.
/// It proposes [`MAX_DEGREE`] lines for a request at most, and nothing within it grows.
pub trait Prefetcher: Sized + Clone + Debug {
    /// What the configuration may say of it. All have defaults. It refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// The levels whose requests tell it enough.
    const LEVELS: &'static [CacheLevel] = &CacheLevel::ALL;

    /// At the start of a run, with nothing learnt.
    fn new(parameters: &Self::Parameters) -> Self;

    /// Refuses impossible parameters; keys are relative to its own.
    fn validate(parameters: &Self::Parameters) -> Result<(), CacheConfigError>;

    /// Parameters that tests run it with.
    fn samples() -> Vec<Self::Parameters>;

    /// What it never fetches beyond.
    fn border(&self) -> Border;

    /// Learns from a request, and says what to fetch.
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

    /// A page that the numbers of lines are counted from.
    const PAGE: u64 = 1 << 30;

    /// Lines that a prefetcher proposes for a request for the byte at `offset` of a page, and how often the border cut
    /// it off.
    pub fn proposed<P: Prefetcher>(
        of: &mut P,
        size: PageSize,
        pc: u64,
        offset: u64,
        [missed, is_first_use]: [bool; 2],
    ) -> (Vec<i64>, u64) {
        let translation = Translation::new(MachineAddr(PAGE), size, true, true);
        let demanded = ObservedAccess { pc, va: VirtAddr(PAGE + offset), translation };
        let demand = Demand::new(&demanded, missed, is_first_use);
        let mut proposals = Proposals { within: demand.within(of.border()), ..Proposals::default() };
        of.demand(&demand, &mut proposals);
        let first = (PAGE >> LINE_SHIFT) as i64;
        (proposals.lines.iter().map(|line| line.0 as i64 - first).collect(), proposals.beyond)
    }
}
