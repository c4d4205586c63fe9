//! Translation units: hardware beside the TLBs that remembers translations.
//!
//! A unit is asked at a [`Place`]: after the last TLB has missed, or within the walk of a guest. It is filled by walks,
//! by entries that the last TLB evicts, or by walks that it asks for itself. Every core has units of its own, which its
//! hardware threads share. The TLBs are no units: an access asks them first, in code that knows their shapes.
//!
//! A design is one file here that implements [`TranslationUnit`], and one line below. `registry.rs` makes of these
//! lines the configuration (`machine.tlb.stages.NAME`, `machine.prefetch.tlb.NAME`), the rows of `pagelab list
//! translation-units`, the enum [`Stage`] and the list of designs that the tests run. [`Counted`] counts look-ups and
//! prefetch walks for every design.
//!
//! Units know neither page tables nor kernels. `stages.rs` asks those after the TLBs and `walker.rs` the others.
//! `flush.rs` has all of them drop what has changed.

mod counted;
mod entry;
#[macro_use]
mod registry;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::counted::{Counted, Counts, PrefetchWalk};
pub use self::entry::{Entry, VA_MASK};
pub use self::nested::NestedTlbConfig;
pub use self::stage::StageStatistics;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::rng::Rng;
use pagelab_base::translation::{Target, Translation};
use pagelab_tables::mmu_cache::Asid;

translation_units! {
    stages {
        /// Stages between the last TLB and the walk, asked in this order after a miss of all TLBs. Each is `off`, or
        /// its parameters, for which `on` stands if none must be given.
        TlbStagesConfig in "machine.tlb.stages" {
            victim::VictimTlb = "entries that the last TLB evicted, in a fully associative array; a hit swaps";
        }
        /// Prefetchers of translations, asked after the stages. Each is `off`, or its parameters, for which `on` stands
        /// if none must be given.
        TlbPrefetchConfig in "machine.prefetch.tlb" {
            next_page::NextPage = "after a miss, a walk for the page behind, into a buffer beside the TLBs";
        }
    }
    walks {
        guest::GuestTlb in "machine.tlb.guest" = "large pages of guests, which spare a nested walk the guest's tables";
        nested::NestedTlb in "machine.tlb.nested" = "guest-physical to machine pages, for each address that a nested walk meets";
    }
}

// Behind the lines, of which its macro is made.
mod stage;

/// Where a unit is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After a miss of all TLBs, before the walk. It translates pages of a space to the machine. All designs of this
    /// place are a [`Stage`].
    AfterTlbs,
    /// Before a walk of a guest's page table. It translates pages of a guest's space to the guest's physical memory.
    GuestPages,
    /// For every guest-physical address that the walk of a guest meets. It translates pages of the space that holds the
    /// guest's memory to the machine.
    HostPages,
}

impl Place {
    /// Whether the loop of the fast path asks units of this place. It refuses a machine that has one elsewhere.
    pub const fn is_on_fast_path(self) -> bool {
        match self {
            Self::AfterTlbs => false,
            Self::GuestPages | Self::HostPages => true,
        }
    }
}

/// What a unit is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    /// Tag of the address space.
    pub asid: Asid,
    /// The address in it.
    pub va: VirtAddr,
    /// What the access is.
    pub intent: Intent,
    /// On whose behalf it is made.
    pub origin: Origin,
    /// The time of the request.
    pub now: Cycles,
}

impl LookUp {
    /// Whether a translation allows the access without a walk: a walk has to set the dirty bit before the first store.
    #[inline(always)]
    pub fn is_allowed_by<A: Target>(&self, translation: &Translation<A>) -> bool {
        self.intent != Intent::Store || translation.stores()
    }
}

/// Where a translation comes from that a unit may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillSource {
    /// A walk found it, for an access that waited for it.
    Walk,
    /// The last TLB that can hold it has evicted it.
    Eviction,
    /// A walk that this unit asked for found it ([`TranslationUnit::next_walk`]).
    Prefetch {
        /// When the walk ends.
        arrives: Cycles,
    },
}

/// A design of a translation unit.
///
/// What an implementor must uphold:
///
/// - [`look_up`](Self::look_up) returns the last translation of the page that [`fill`](Self::fill) was given, or
///   nothing. A unit may forget whenever it likes. It never returns what was invalidated or flushed since, nor what
///   another space had.
/// - What it returns allows the access ([`LookUp::is_allowed_by`]). A part of a larger page may be returned for the
///   page.
/// - It adds to `cycles` what the look-up takes, hit or not, and nothing else.
/// - [`invalidate`](Self::invalidate) drops every page that overlaps the range; a page is a range of its own size.
///   [`flush`](Self::flush) drops all of a space. A unit may drop more than it is told to.
/// - It allocates nothing after it was made, and choices come from the generator that it is given. A copy goes on by
///   itself.
///
/// The conformance tests hold every registered design to this: against a map, and in random programs under every page
/// table, in guests and hosts, with the fast path and without.
pub trait TranslationUnit: Sized + Clone + Debug {
    /// What the configuration may say of it. It refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;
    /// Addresses that its translations lead to: machine addresses, but at [`Place::GuestPages`] guest-physical ones.
    type Target: Target;

    /// Where it is asked.
    const PLACE: Place;
    /// What its statistics begin with.
    const STATISTICS: &'static str;
    /// Whether it asks for walks that nobody waits for ([`next_walk`](Self::next_walk)). Page tables that the walker
    /// does not read by itself refuse it.
    const PREFETCHES: bool = false;

    /// An empty unit; `key` is that of its parameters, for errors. Errors: impossible parameters.
    fn new(parameters: &Self::Parameters, key: &str, rng: &Rng) -> Result<Self, EngineError>;

    /// Parameters to test it with: small enough that entries are replaced.
    fn samples() -> Vec<Self::Parameters>;

    /// The translation of an address, if it holds one that allows the access; adds the cycles of the look-up.
    fn look_up(&mut self, look_up: &LookUp, cycles: &mut Cycles) -> Option<Translation<Self::Target>>;

    /// Whether it holds a translation of an address; no use of it.
    fn holds(&self, asid: Asid, va: VirtAddr) -> bool;

    /// Offers a translation. A unit takes up what comes from the sources that it is meant for.
    fn fill(&mut self, entry: &Entry<Self::Target>, source: FillSource);

    /// An address to walk for, after a miss of the TLBs that ended in `found`. The walk is made unless a data TLB or a
    /// stage holds its page. Nobody waits for it, and it never faults.
    fn next_walk(&mut self, _: &LookUp, _found: Translation) -> Option<VirtAddr> {
        None
    }

    /// Drops the pages that overlap `start..end` of an address space.
    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr);

    /// Drops all pages of an address space.
    fn flush(&mut self, asid: Asid);

    /// What it counts beside look-ups and prefetch walks; names follow [`STATISTICS`](Self::STATISTICS).
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// Something to be done with every registered design, whatever its place.
pub trait Visitor {
    /// Does it with one of them; `key` is that of its parameters.
    fn visit<U: TranslationUnit>(&mut self, key: &str);
}
