//! Placement policies: which frames the pages of programs get.
//!
//! A fault that needs a frame first asks its layer's policy ([`Policy::begin`]) and takes the policy's steps, which are
//! planned, charged and committed like all steps of a fault. Pages that the policy does not serve are allocated in the
//! ordinary way. The kernel notifies the policy of what happens to pages and spaces.
//!
//! A policy is one file here and one line in `policies!` below. The line gives it its `kind` in configurations
//! (`system.layers.NAME.placement`), its row in `pagelab list placements`, and its place in error messages and
//! conformance tests.

use pagelab_base::ids::{CpuId, SpaceId, SpaceIx};
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frames::frame_alloc::ZoneBatch;
use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView, object_line};
use crate::reclaim::Pressure;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::error::LayerConfigError;
use pagelab_base::measure::Measure;
use pagelab_base::step::{BlockKey, Step};

/// The page for which a fault needs a frame, of private anonymous memory.
#[derive(Clone, Debug)]
pub struct WantedPage {
    /// The space of the faulting program.
    pub space: SpaceId,
    /// The address that faulted.
    pub va: VirtAddr,
    /// First address of the page to map.
    pub page: VirtAddr,
    /// Order of the page.
    pub order: u32,
    /// The mapping that contains it.
    pub mapping: VaRange,
    /// Whether the page is new; otherwise it comes from the swap area.
    pub fresh: bool,
    /// The CPU that handles the fault.
    pub cpu: CpuId,
    /// The kernel preset's cost of an allocation, beyond its references.
    pub allocation: CodeCost,
    /// Line of the CPU's lists of free pages.
    pub free_lists: PhysAddr,
    /// Line of the allocator's lock, which all CPUs share.
    pub zone: PhysAddr,
    /// Line of the counters of the space.
    pub counters: PhysAddr,
    /// The frame of the other objects of the space.
    pub objects: Pfn,
}

impl WantedPage {
    /// Address of a smaller object of the space, chosen by `key`.
    pub fn object_line(&self, key: u64) -> PhysAddr {
        object_line(self.objects, key)
    }
}

/// What follows a committed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementProgress<S> {
    /// Continue with this step.
    Go(S),
    /// Wait until the key is released, then plan this step again.
    Wait(BlockKey, S),
    /// The page has a frame. If the allocator's lists were refilled, the fault must still pay for reading the metadata
    /// of those pages under the zone's lock.
    Taken {
        /// The first frame of the page.
        frame: Pfn,
        /// What was done under the zone's lock; `None` if it was not taken.
        refilled: Option<ZoneBatch>,
    },
    /// The policy does not serve the page: allocate in the ordinary way.
    Ordinary,
    /// Ask the policy again from the start.
    Again,
    /// Reclaim memory first.
    Reclaim(Pressure),
}

/// The environment of a policy, for checks of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct PolicyContext<'a> {
    /// The largest pages of the layer.
    pub page_size: PageSize,
    /// A layer hosted by this one, if any.
    pub guest: Option<&'a str>,
    /// Whether the kernel maps folios.
    pub folios: bool,
}

/// A placement policy of a layer.
///
/// What an implementor must uphold:
/// - [`Self::begin`] and [`Self::plan`] change nothing; a plan lists everything that its commit reads and writes in the
///   kernel's memory.
/// - A commit checks again what it relies on, since others may have run since the plan. It releases a lock
///   ([`BlockKey::Placement`]) before it returns anything except [`PlacementProgress::Go`].
/// - A frame that it hands out is charged ([`Memory::charge`]) and handed out once. Frames that it keeps are not
///   charged, and it counts them in [`Self::held_frames`]. When [`Self::space_ended`] was called for all spaces it
///   keeps none.
/// - Results depend on the calls alone, not on a clock or the order of a hash map.
pub trait Policy: Sized {
    /// Its parameters in the configuration.
    type Config: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema;
    /// A step of a fault on its way to a frame; [`std::convert::Infallible`] if there are none.
    type Step: Clone + Debug + PartialEq + Eq;

    /// One-line description.
    const ABOUT: &'static str;
    /// Whether faults ask it for frames.
    const CHOOSES: bool = true;
    /// Whether faults take locks of its data ([`BlockKey::Placement`]).
    const LOCKS: bool = false;
    /// Whether the kernel may also map folios.
    const BESIDE_FOLIOS: bool = false;
    /// Whether a page gets one of the frames that [`HashDomain`](pagelab_base::hash_tiers::HashDomain) says.
    const BY_HASH: bool = false;

    /// A policy with these parameters and no frames.
    fn new(config: &Self::Config) -> Self;

    /// Refuses impossible parameters, and environments that the policy does not support.
    fn check(config: &Self::Config, around: &PolicyContext) -> Result<(), LayerConfigError>;

    /// Parameters for the conformance tests, the defaults first.
    fn samples() -> Vec<Self::Config>;

    /// The first step towards a frame for the page, if the policy serves it.
    fn begin(&self, _page: &WantedPage, _memory: &MemoryView) -> Option<Self::Step> {
        None
    }

    /// Plans a step: fills `_step` with its references and cycles. `_page` is `None` if a fault that needs no frame of
    /// the policy gives memory back.
    fn plan(&self, _page: Option<&WantedPage>, _of: &Self::Step, _memory: &MemoryView, _step: &mut Step) {}

    /// Carries out a step.
    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        action: Self::Step,
        memory: &mut Memory,
        locks: &mut TaskLocks,
    ) -> PlacementProgress<Self::Step>;

    /// Whether the kernel makes room for the page, if memory is short, before a step of the policy is carried out.
    fn wants_room_first(&self) -> bool {
        false
    }

    /// Whether so much memory is in use that the policy should give back what it keeps.
    fn is_crowded(&self, _memory: &MemoryView) -> bool {
        false
    }

    /// A step that gives memory back, if the policy keeps any.
    fn give_back(&self) -> Option<Self::Step> {
        None
    }

    /// A page has been removed from the page table, for any reason.
    fn unmapped(&mut self, _space: SpaceIx, _va: VirtAddr, _memory: &mut Memory) {}

    /// All pages of a range are about to be unmapped.
    fn unmapping(&mut self, _space: SpaceIx, _range: VaRange, _memory: &mut Memory) {}

    /// A mapping, or a part of one, was removed.
    fn mapping_gone(&mut self, _space: SpaceIx, _range: VaRange) {}

    /// A mapping, or a part of one, was moved.
    fn mapping_moved(&mut self, _space: SpaceIx, _from: VaRange, _to: VirtAddr) {}

    /// A space has ended, and its number may be reused.
    fn space_ended(&mut self, _space: SpaceIx, _memory: &mut Memory) {}

    /// Plans the references of [`Self::copied`].
    fn plan_copied(&self, _space: SpaceIx, _va: VirtAddr, _memory: &MemoryView, _step: &mut Step) {}

    /// A page was copied and replaced by its copy.
    fn copied(&mut self, _space: SpaceIx, _va: VirtAddr, _memory: &mut Memory) {}

    /// The largest block of pages that it maps ahead of any access; `None` if it maps none ahead.
    fn block_order(_config: &Self::Config) -> Option<u32> {
        None
    }

    /// Whether the pages of a new mapping should be mapped at once.
    fn maps_ahead(&self, _vma: &Vma) -> bool {
        false
    }

    /// Whether there is enough memory for that, in pages up to an order.
    fn may_map_ahead(&self, _page_order: u32, _memory: &MemoryView) -> bool {
        false
    }

    /// Frames of its own tables.
    fn table_frames(&self) -> u64 {
        0
    }

    /// Frames that it keeps for future pages.
    fn held_frames(&self) -> u64 {
        0
    }

    /// Its statistics, with names after `layer.NAME.`.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// Error for folios together with a policy that does not support them.
const NO_FOLIOS: &str = "the kernel itself chooses the blocks of folios, so no other placement is possible; allowed here is [] \
                         or the placement order0";

/// Registers policies: a line has the module and its policy; the first is the default. `$d` is a dollar sign.
macro_rules! policies {
    ($d:tt $first:ident::$default:ident, $($module:ident::$policy:ident),* $(,)?) => {
        policies!(@all $d $first::$default, $first::$default, $($module::$policy),*);
    };
    (@all $d:tt $first:ident::$default:ident, $($module:ident::$policy:ident),*) => {
        $(pub mod $module;)*

        /// How the kernel of a layer chooses the frames of anonymous pages. `folios` and `page_size` configure folios
        /// and large pages.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        #[expect(missing_docs, reason = "the parameters' own texts describe them, and one here would replace those in the schema")]
        pub enum PlacementConfig {
            $($policy(<$module::$policy as Policy>::Config),)*
        }

        impl Default for PlacementConfig {
            fn default() -> Self {
                Self::$default(Default::default())
            }
        }

        impl PlacementConfig {
            /// Parameters of every policy for the conformance tests.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend($module::$policy::samples().into_iter().map(Self::$policy));)*
                all
            }

            /// Description of every policy, with its default parameters.
            fn described() -> Vec<(Self, &'static str)> {
                vec![$((Self::$policy(Default::default()), $module::$policy::ABOUT)),*]
            }

            /// Refuses impossible parameters, and environments that the policy does not support.
            pub fn check(&self, around: &PolicyContext) -> Result<(), LayerConfigError> {
                let beside_folios = match self {
                    $(Self::$policy(config) => {
                        $module::$policy::check(config, around)?;
                        $module::$policy::BESIDE_FOLIOS
                    })*
                };
                if around.folios && !beside_folios { Err(LayerConfigError::new("folios", NO_FOLIOS)) } else { Ok(()) }
            }

            /// See [`Policy::BY_HASH`].
            pub fn is_by_hash(&self) -> bool {
                match self {
                    $(Self::$policy(_) => $module::$policy::BY_HASH,)*
                }
            }

            /// Order of the largest block of pages that are mapped ahead of any access.
            pub fn block_order(&self) -> Option<u32> {
                match self {
                    $(Self::$policy(config) => $module::$policy::block_order(config),)*
                }
            }
        }

        /// A step of any policy.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum PlacementStep {
            $(#[doc = concat!("A step of `", stringify!($policy), "`.")] $policy(<$module::$policy as Policy>::Step),)*
        }

        /// Any policy.
        #[derive(Clone, Debug)]
        pub enum Placement {
            $(#[doc = concat!("The state of `", stringify!($policy), "` in a layer.")] $policy($module::$policy),)*
        }

        impl Placement {
            /// The policy of this configuration, with no frames.
            pub fn new(config: &PlacementConfig) -> Self {
                match config {
                    $(PlacementConfig::$policy(config) => Self::$policy($module::$policy::new(config)),)*
                }
            }

            /// See [`Policy::CHOOSES`].
            pub fn chooses(&self) -> bool {
                match self {
                    $(Self::$policy(_) => $module::$policy::CHOOSES,)*
                }
            }

            /// See [`Policy::LOCKS`].
            pub fn locks(&self) -> bool {
                match self {
                    $(Self::$policy(_) => $module::$policy::LOCKS,)*
                }
            }

            /// See [`Policy::begin`].
            pub fn begin(&self, page: &WantedPage, memory: &MemoryView) -> Option<PlacementStep> {
                match self {
                    $(Self::$policy(policy) => policy.begin(page, memory).map(PlacementStep::$policy),)*
                }
            }

            /// See [`Policy::give_back`].
            pub fn give_back(&self) -> Option<PlacementStep> {
                match self {
                    $(Self::$policy(policy) => policy.give_back().map(PlacementStep::$policy),)*
                }
            }

            /// See [`Policy::plan`].
            pub fn plan(&self, page: Option<&WantedPage>, action: &PlacementStep, memory: &MemoryView, step: &mut Step) {
                match action {
                    $(PlacementStep::$policy(action) => {
                        let Self::$policy(policy) = self else { unreachable!("{ANOTHERS_STEP}") };
                        policy.plan(page, action, memory, step);
                    })*
                }
            }

            /// See [`Policy::commit`].
            pub fn commit(
                &mut self,
                page: Option<&WantedPage>,
                action: PlacementStep,
                memory: &mut Memory,
                locks: &mut TaskLocks,
            ) -> PlacementProgress<PlacementStep> {
                match action {
                    $(PlacementStep::$policy(action) => {
                        let Self::$policy(policy) = self else { unreachable!("{ANOTHERS_STEP}") };
                        policy.commit(page, action, memory, locks).map(PlacementStep::$policy)
                    })*
                }
            }
        }

        /// Evaluates an expression for any policy.
        macro_rules! each {
            ($d value:expr, $d bound:ident => $d done:expr) => {
                match $d value {
                    $(Placement::$policy($d bound) => $d done,)*
                }
            };
        }
    };
}

policies! { $
    order0::Order0,
    ptemagnet::Ptemagnet,
    eager::Eager,
    ca_paging::CaPaging,
    coloring::Coloring,
    hash_tiers::HashTiers,
}

/// Message for a broken invariant.
const ANOTHERS_STEP: &str = "a step belongs to the layer's policy";

impl PlacementConfig {
    /// Name and description of every policy.
    pub fn designs() -> Vec<(String, &'static str)> {
        let name = |config: &Self| serde_json::to_value(config).ok()?.get("kind")?.as_str().map(str::to_owned);
        let described = Self::described().into_iter();
        described.map(|(config, about)| (name(&config).expect("a policy has a kind"), about)).collect()
    }
}

impl<S> PlacementProgress<S> {
    fn map<T>(self, step: impl FnOnce(S) -> T) -> PlacementProgress<T> {
        match self {
            Self::Go(action) => PlacementProgress::Go(step(action)),
            Self::Wait(key, action) => PlacementProgress::Wait(key, step(action)),
            Self::Taken { frame, refilled } => PlacementProgress::Taken { frame, refilled },
            Self::Ordinary => PlacementProgress::Ordinary,
            Self::Again => PlacementProgress::Again,
            Self::Reclaim(pressure) => PlacementProgress::Reclaim(pressure),
        }
    }
}

/// Each method calls that of [`Policy`].
impl Placement {
    /// See [`Policy::wants_room_first`].
    pub fn wants_room_first(&self) -> bool {
        each!(self, policy => policy.wants_room_first())
    }

    /// See [`Policy::is_crowded`].
    pub fn is_crowded(&self, memory: &MemoryView) -> bool {
        each!(self, policy => policy.is_crowded(memory))
    }

    /// See [`Policy::unmapped`].
    pub fn unmapped(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) {
        each!(self, policy => policy.unmapped(space, va, memory));
    }

    /// See [`Policy::unmapping`].
    pub fn unmapping(&mut self, space: SpaceIx, range: VaRange, memory: &mut Memory) {
        each!(self, policy => policy.unmapping(space, range, memory));
    }

    /// See [`Policy::mapping_gone`].
    pub fn mapping_gone(&mut self, space: SpaceIx, range: VaRange) {
        each!(self, policy => policy.mapping_gone(space, range));
    }

    /// See [`Policy::mapping_moved`].
    pub fn mapping_moved(&mut self, space: SpaceIx, from: VaRange, to: VirtAddr) {
        each!(self, policy => policy.mapping_moved(space, from, to));
    }

    /// See [`Policy::space_ended`].
    pub fn space_ended(&mut self, space: SpaceIx, memory: &mut Memory) {
        each!(self, policy => policy.space_ended(space, memory));
    }

    /// See [`Policy::plan_copied`].
    pub fn plan_copied(&self, space: SpaceIx, va: VirtAddr, memory: &MemoryView, step: &mut Step) {
        each!(self, policy => policy.plan_copied(space, va, memory, step));
    }

    /// See [`Policy::copied`].
    pub fn copied(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) {
        each!(self, policy => policy.copied(space, va, memory));
    }

    /// See [`Policy::maps_ahead`].
    pub fn maps_ahead(&self, vma: &Vma) -> bool {
        each!(self, policy => policy.maps_ahead(vma))
    }

    /// See [`Policy::may_map_ahead`].
    pub fn may_map_ahead(&self, page_order: u32, memory: &MemoryView) -> bool {
        each!(self, policy => policy.may_map_ahead(page_order, memory))
    }

    /// See [`Policy::table_frames`].
    pub fn table_frames(&self) -> u64 {
        each!(self, policy => policy.table_frames())
    }

    /// See [`Policy::held_frames`].
    pub fn held_frames(&self) -> u64 {
        each!(self, policy => policy.held_frames())
    }

    /// See [`Policy::measures`].
    pub fn measures(&self) -> Vec<Measure> {
        each!(self, policy => policy.measures())
    }
}
