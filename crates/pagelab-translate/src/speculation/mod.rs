//! Speculation on translations: a frame that is guessed before the walk, and judged by it.
//!
//! After a miss of the last TLB, and of the units behind it, a design may guess the frame of a program's data. The walk
//! begins at once. If the guess is there before the walk ends, the access goes on with it, and so does what depends on
//! the access; the walk goes on beside them, with all its references, and occupies its walker. Whatever the design:
//!
//! - If the walk finds the guessed frame, the access is complete when it has its data and the walk has ended.
//! - If it finds another frame, the access is made again after the walk, and a core that has a window drops what is
//!   younger and takes `flush_cycles` to begin again. The line that was fetched from the wrong frame is in the caches:
//!   it has replaced others, and used bandwidth.
//! - If it ends in a page fault, that line was fetched as well. The exception drops what is younger.
//!
//! A design whose accesses do not go on guesses one or more frames, whose lines are fetched into the second-level cache
//! beside the walk. The access waits for its walk, whatever it finds.
//!
//! Every translation comes from the walk, so no stale guess is used. Each core has its own unit, which its hardware
//! threads share. Kernels' accesses, instruction fetches, and stores that only set a dirty bit are not guessed.
//!
//! A design is one file here that implements [`Speculation`], and one line below. From these lines `registry.rs` makes
//! the configuration (`machine.tlb.speculation`), the rows of `pagelab list speculations`, the dispatch and the list of
//! designs that the tests run. [`Speculator`] counts for every design, and `guesses.rs` asks it.
//!
//! Deviations of all designs: a walk's references precede those of the data in the caches, whatever the cycles. A wrong
//! guess makes the one reference to its frame; what else a core would execute before the walk ends leaves no lines. A
//! store fetches a wrong line as a load does. A page of which a guess is under way hits the TLBs from the guess's time
//! on, not from the walk's end. A table of the hypervisor in memory that speaks before the walk is
//! `scheme/speculation.rs`: it is of a layer, costs references, and lets nothing wait for the walk.

mod none;
mod revelator;
mod spec_tlb;
mod speculator;
mod spot;
#[macro_use]
mod registry;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::none::NoSpeculation;
pub use self::revelator::Revelator;
pub use self::spec_tlb::SpecTlb;
pub use self::speculator::{Outcome, Speculator};
pub use self::spot::Spot;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::hash_tiers::{HashDomain, MOST_TIERS};
use pagelab_base::measure::Measure;
use pagelab_base::model_choice;
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

speculations! {
    None(NoSpeculation) = "none", "every access waits for its walk";
    SpecTlb(SpecTlb) = "spec-tlb", "pages of a reserved region are in place within it (SpecTLB)";
    Spot(Spot) = "spot", "accesses of an instruction keep one distance between pages and frames (SpOT)";
    Revelator(Revelator) = "revelator", "fetches lines of the frames that the kernel's hash gives pages (Revelator)";
}

/// A program's access to data whose page the TLBs do not hold.
#[derive(Clone, Copy, Debug)]
pub struct MissedAccess {
    /// Tag of the address space.
    pub asid: Asid,
    /// The virtual address.
    pub va: VirtAddr,
    /// Virtual address of the instruction; 0 if unknown.
    pub pc: u64,
    /// Load or store.
    pub intent: Intent,
    /// What a kernel that places pages by hash hashes besides the page.
    pub domain: HashDomain,
}

impl MissedAccess {
    /// Number of the page of 4 KiB.
    pub fn page(&self) -> u64 {
        self.va.0 >> FRAME_SHIFT
    }
}

/// Frames that are guessed for one access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    frames: [u64; MOST_TIERS as usize],
    count: usize,
}

impl Guess {
    /// Adds a frame, by its number.
    ///
    /// # Panics
    /// If there are [`MOST_TIERS`] already.
    pub fn push(&mut self, frame: u64) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// Their numbers.
    pub fn frames(&self) -> &[u64] {
        &self.frames[..self.count]
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}

impl From<Option<u64>> for Guess {
    fn from(frame: Option<u64>) -> Self {
        let mut guess = Self::default();
        frame.into_iter().for_each(|frame| guess.push(frame));
        guess
    }
}

/// What a walk found.
#[derive(Clone, Copy, Debug)]
pub struct FoundPage {
    /// The translation to the machine; in a guest, that of all layers together.
    pub translation: Translation,
    /// Whether the page is in a run of at least [`Speculation::run_pages`] in every layer.
    pub is_in_run: bool,
}

impl FoundPage {
    /// Number of the frame of 4 KiB of an access.
    pub fn frame(&self, missed: &MissedAccess) -> u64 {
        self.translation.address(missed.va).page_number()
    }
}

/// What a guess costs, whatever the design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuessTiming {
    /// From the miss to the guess; the walk goes on meanwhile.
    pub latency: Cycles,
    /// What a core that has a window takes to begin again after a wrong guess.
    pub flush: Cycles,
}

/// When an access goes on, and what the walk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guessed {
    /// With the right frame, so long after the miss of the first-level TLB: before the walk ends.
    Right(Cycles),
    /// With another frame; the core begins again after the walk, and takes so long for that.
    Wrong(Cycles),
}

/// A design that guesses frames.
///
/// What an implementor must uphold:
///
/// - [`guess`](Self::guess) changes nothing. It follows from what [`learn`](Self::learn),
///   [`invalidate`](Self::invalidate) and [`flush`](Self::flush) were told.
/// - `learn` is called after each walk of an access that `guess` was asked for, unless the walk ends in a page fault.
///   The design knows no page table: only what walks find.
/// - `invalidate` forgets all that the design keeps of pages in the range; a design that keeps no pages may ignore it.
///   `flush` forgets all that it keeps of the space.
/// - After its construction a design allocates no memory. Random choices come from the generator that it is given. A
///   clone is independent of the original.
///
/// The conformance tests check this for every registered design: in a storm of random calls, and in random programs
/// under every page table, in guests and hosts.
pub trait Speculation: Sized + Clone + Debug {
    /// The keys of the configuration beside `model`. The type refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// Whether it guesses by the instruction's address, so that programs without one are refused.
    const NEEDS_PC: bool = false;

    /// Whether it keeps what it learns by page. Otherwise invalidations of pages do not concern it.
    const KEEPS_PAGES: bool = true;

    /// Whether it keeps what it learns by space. Otherwise flushes of spaces do not concern it.
    const KEEPS_SPACES: bool = true;

    /// Whether accesses go on with the guessed frame. Otherwise their lines in the guessed frames are only fetched,
    /// into the second-level cache, and each access waits for its walk.
    const GOES_ON: bool = true;

    /// Whether it guesses what kernels say that place pages by hash ([`HashDomain`]), so that others are refused.
    const BY_HASH: bool = false;

    /// Refuses impossible parameters; `key` is the part of the configuration that contains them.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError> {
        Self::new(parameters, key, &Rng::new(0, key)).map(|_| ())
    }

    /// Parameters for the tests: of one entry, and of more than there are pages, among others.
    fn samples() -> Vec<Self::Parameters>;

    /// A design that knows nothing yet; `key` is as above. Errors: impossible parameters.
    fn new(parameters: &Self::Parameters, key: &str, rng: &Rng) -> Result<Self, EngineError>;

    /// What its guesses cost.
    fn timing(&self) -> GuessTiming;

    /// Pages that a run must have at least for [`FoundPage::is_in_run`]; `None` if it does not ask.
    fn run_pages(&self) -> Option<u64> {
        None
    }

    /// The frames that it guesses: at most one if accesses go on with it ([`Self::GOES_ON`]).
    fn guess(&self, missed: &MissedAccess) -> Guess;

    /// Says what the walk of an access found, whether there was a guess or not.
    fn learn(&mut self, missed: &MissedAccess, found: &FoundPage);

    /// Forgets the pages `start..end` of an address space.
    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr);

    /// Forgets an address space.
    fn flush(&mut self, asid: Asid);

    /// Bits of storage that it takes.
    fn storage_bits(&self) -> u64;

    /// Further statistics, besides guesses and storage.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}
