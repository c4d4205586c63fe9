//! Translation units: hardware that remembers translations, besides the TLBs.
//!
//! A unit is looked up at a [`LookUpPlace`]: after the last TLB has missed, or within the walk of a guest. It is filled
//! by walks, by entries that the last TLB evicts, by hits of later stages, or by prefetch walks that it asks for. Every
//! core has its own units, which its hardware threads share, except for those that all cores share. The TLBs themselves
//! are not units: an access looks them up first, in code that knows their shapes.
//!
//! A design is one file here that implements [`TranslationUnit`], or [`TlbPrefetcher`] for what every prefetcher does
//! alike, and one line below. From these lines `registry.rs`
//! makes the configuration (`machine.tlb.stages.NAME`, `machine.prefetch.tlb.NAME`), the rows of `pagelab list
//! translation-units`, the enum [`Stage`] and the list of designs that the tests run. [`Counted`] counts look-ups and
//! prefetch walks for every design.
//!
//! Units know neither page tables nor kernels. `stages.rs` looks up the units after the TLBs, and `walker.rs` the
//! others. `flush.rs` drops translations that have changed from all of them.

mod counted;
mod entry;
mod free_ptes;
mod instruction_table;
mod lines;
mod prefetcher;
#[macro_use]
mod registry;

use std::fmt::Debug;

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::counted::{Counted, PrefetchWalk, UnitCounts};
pub use self::entry::{ENTRY_BITS, Entry, VA_MASK};
pub use self::free_ptes::{FreeConfig, FreeDistance, GROUP};
pub use self::lines::{Blocks, CoreLines, LeafRead, LineCounts, LineRead, LineServed, Lines, NoLines};
pub use self::nested::NestedTlbConfig;
pub use self::prefetcher::{BufferConfig, DataMiss, MOST_PROPOSALS, Prefetching, Proposals, TlbPrefetcher};
pub use self::stage::StageStatistics;
use pagelab_base::addr::{LineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::rng::Rng;
use pagelab_base::translation::{Target, Translation};
use pagelab_tables::mmu_cache::Asid;

translation_units! {
    stages {
        /// Units between the last TLB and the walk, looked up in this order after a miss of all TLBs. Each is `off`,
        /// its parameters, or `on` if no parameter is required.
        TlbStagesConfig in "machine.tlb.stages" {
            large::LargeTlb = "a large TLB, also without a limit of entries, at a fixed latency: a yardstick";
            victim::VictimTlb = "entries that the last TLB evicted, in a fully associative array; a hit swaps";
            victima::Victima = "blocks of eight translations in ways of the second-level cache (Victima)";
            pom::PomTlb = "a set-associative table in memory that all cores share, a line per look-up (POM-TLB)";
        }
        /// Prefetchers of translations, looked up after the stages. Each is `off`, its parameters, or `on` if no
        /// parameter is required.
        TlbPrefetchConfig in "machine.prefetch.tlb" {
            next_page::NextPage = "after a miss, a walk for the next page, into a buffer beside the TLBs (SP)";
            stp::Stp = "after a miss, walks for the two pages before and the two after it (STP)";
            distance::Distance = "a table of the distances between misses: walks for what followed this one before (DP)";
            asp::Asp = "after a miss, a walk one stride of its instruction ahead, once the stride is confirmed (ASP)";
            masp::Masp = "after a miss, walks one old and one new stride of its instruction ahead (MASP)";
            sbfp::Sbfp = "no walks: the translations beside those that demand walks read (SBFP)";
            atp::Atp = "after a miss, the walks of H2P, MASP, STP or none, whichever would have helped before (ATP)";
            h2p::H2p = "after a miss, walks at the last two distances between misses (H2P)";
            morrigan::Morrigan = "after a miss of a fetch, walks for the pages of code that followed it before (Morrigan)";
            recency::Recency = "after a miss, walks for the pages that left the TLB after it and before it (recency)";
        }
    }
    walks {
        guest::GuestTlb in "machine.tlb.guest" = "large pages of guests; a hit lets a nested walk skip the guest's tables";
        nested::NestedTlb in "machine.tlb.nested" = "guest-physical to machine pages, for each guest-physical address of a nested walk";
    }
}

// Must follow the lines above, whose macro it uses.
mod stage;

/// Where a unit is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUpPlace {
    /// After a miss of all TLBs, before the walk. Translates pages of a space to the machine. The designs at this place
    /// are the variants of [`Stage`].
    AfterTlbs,
    /// Before a walk of a guest's page table. Translates pages of a guest's space to the guest's physical memory.
    GuestPages,
    /// For every guest-physical address in the walk of a guest. Translates pages of the space that holds the guest's
    /// memory to the machine.
    HostPages,
}

impl LookUpPlace {
    /// Whether the fast path looks up units at this place. It refuses a machine that has one elsewhere, or one that
    /// prefetches.
    pub const fn is_on_fast_path(self) -> bool {
        match self {
            Self::AfterTlbs | Self::GuestPages | Self::HostPages => true,
        }
    }
}

/// A look-up in a unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitLookUp {
    /// Tag of the address space.
    pub asid: Asid,
    /// The virtual address.
    pub va: VirtAddr,
    /// Virtual address of the instruction; 0 if unknown. Look-ups within walks do not have it.
    pub pc: u64,
    /// Load, store or fetch.
    pub intent: Intent,
    /// Whether a program or a kernel makes the access.
    pub origin: Origin,
    /// The time of the look-up.
    pub now: Cycles,
}

impl UnitLookUp {
    /// Whether a translation allows the access without a walk: before the first store, a walk must set the dirty bit.
    #[inline(always)]
    pub fn is_allowed_by<A: Target>(&self, translation: &Translation<A>) -> bool {
        self.intent != Intent::Store || translation.stores()
    }
}

/// Where a translation that is offered to a unit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillSource {
    /// A walk that an access waited for, or a later stage whose hit spared that walk.
    Walk,
    /// An eviction from the last TLB that can hold the page.
    Eviction,
    /// A prefetch walk that this unit asked for ([`TranslationUnit::next_walks`]).
    Prefetch {
        /// When the walk ends.
        arrives: Cycles,
    },
    /// The line that a walk has read last: it holds the translation of a neighbour of the walked page, too
    /// ([`TranslationUnit::takes_free`]).
    Free {
        /// Pages from the walked page to this one.
        distance: FreeDistance,
        /// When the walk ends.
        arrives: Cycles,
    },
}

/// A design of a translation unit.
///
/// What an implementor must uphold:
///
/// - [`look_up`](Self::look_up) returns the last translation of the page that was passed to [`fill`](Self::fill), or
///   nothing. A unit may forget a translation at any time. It never returns one that was invalidated or flushed since,
///   nor one of another space.
/// - A returned translation allows the access ([`UnitLookUp::is_allowed_by`]). It may cover only a part of a larger
///   page.
/// - `look_up` adds the cycles of the look-up to `cycles`, hit or miss, and nothing else.
/// - A unit that keeps its entries in memory makes each reference through `lines`, from its own addresses
///   ([`put_at`](Self::put_at)). Others ignore `lines`.
/// - A unit that all cores share takes no evictions: a TLB may hold translations that its core drops before it uses
///   them again.
/// - [`invalidate`](Self::invalidate) drops every page that overlaps the range; a page is a range of its own size.
///   [`flush`](Self::flush) drops all pages of a space. A unit may drop more than that.
/// - After its construction a unit allocates no memory, unless it is of unlimited size, or keeps bits of page-table
///   entries. Random choices come from the generator that it is given. A clone is independent of the original.
///
/// The conformance tests check this for every registered design: against a map, and in random programs under every page
/// table, in guests and hosts, with the fast path and without.
pub trait TranslationUnit: Sized + Clone + Debug {
    /// Parameters in the configuration. Unknown fields are an error.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;
    /// The addresses that it translates to: machine addresses, or guest-physical ones at [`LookUpPlace::GuestPages`].
    type Target: Target;

    /// Where it is looked up.
    const PLACE: LookUpPlace;
    /// Prefix of its statistics.
    const STATISTICS: &'static str;
    /// Whether it asks for prefetch walks ([`next_walks`](Self::next_walks)). Page tables that the walker does not read
    /// by itself refuse such a unit.
    const PREFETCHES: bool = false;
    /// Whether it prefetches for fetches, and so takes free translations of code. Others take those of data.
    const IS_FOR_CODE: bool = false;
    /// Whether it also asks for walks for pages that a data TLB or a stage holds.
    const WALKS_FOR_HELD: bool = false;
    /// Whether its statistics have look-ups and misses. Those of prefetchers say what became of each prefetch.
    const COUNTS_LOOK_UPS: bool = !Self::PREFETCHES;
    /// Whether it is in the second-level cache of its core, so that machines without one are refused.
    const NEEDS_SECOND_LEVEL_CACHE: bool = false;
    /// Whether it predicts by the instruction's address, so that programs without one are refused.
    const NEEDS_PC: bool = false;
    /// Whether all cores share one unit, which is looked up after those of the core. Otherwise each core has its own.
    const IS_SHARED: bool = false;
    /// Whether its entries are in memory, so that look-ups and fills make references.
    const IS_IN_MEMORY: bool = false;

    /// An empty unit; `key` is the configuration key of its parameters, for errors. Errors: impossible parameters.
    fn new(parameters: &Self::Parameters, key: &str, rng: &Rng) -> Result<Self, EngineError>;

    /// Parameters for the tests: small enough that entries are replaced.
    fn samples() -> Vec<Self::Parameters>;

    /// The translation of an address, if there is one that allows the access; adds the cycles of the look-up.
    fn look_up(
        &mut self,
        look_up: &UnitLookUp,
        lines: &mut impl Lines,
        cycles: &mut Cycles,
    ) -> Option<Translation<Self::Target>>;

    /// Whether it holds a translation of an address; does not change its state.
    fn holds(&self, asid: Asid, va: VirtAddr) -> bool;

    /// Offers a translation. A unit takes translations from the sources that it is designed for, and ignores others.
    fn fill(&mut self, entry: &Entry<Self::Target>, source: FillSource, lines: &mut impl Lines);

    /// Whether it takes free translations: neighbours of the pages that walks for data, or for
    /// [code](Self::IS_FOR_CODE), or its own prefetch walks find. One is offered if neither a TLB nor a stage holds it.
    fn takes_free(&self) -> bool {
        false
    }

    /// Addresses for prefetch walks, after a TLB miss whose translation is `found`. A walk is skipped if a data TLB or
    /// a stage holds the page, but for [`WALKS_FOR_HELD`](Self::WALKS_FOR_HELD). No access waits for it, and it never
    /// faults.
    fn next_walks(
        &mut self,
        _: &UnitLookUp,
        _found: Translation,
        _: &mut impl Lines,
    ) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        ArrayVec::new()
    }

    /// Drops the pages that overlap `start..end` of an address space.
    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut impl Lines);

    /// Drops all pages of an address space.
    fn flush(&mut self, asid: Asid);

    /// Bytes of memory that it takes, beyond the memory of kernels; whole lines.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Says where this memory begins, before it is used.
    fn put_at(&mut self, _first: LineAddr) {}

    /// Bits of storage that its hardware takes, without memory; [`ENTRY_BITS`] for an entry that may be of any page.
    fn storage_bits(&self) -> u64;

    /// Further statistics, besides look-ups, storage and prefetch walks; their names follow
    /// [`STATISTICS`](Self::STATISTICS).
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// An operation on every registered design, whatever its place.
pub trait Visitor {
    /// Visits one design; `key` is the configuration key of its parameters.
    fn visit<U: TranslationUnit>(&mut self, key: &str);
}
