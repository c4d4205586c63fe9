//! Which frames the pages of programs get: policies in front of the frame allocator.
//!
//! A fault that needs a frame asks its layer's policy first ([`Policy::begin`]) and takes the policy's steps, which are
//! planned, charged and committed as all steps of a fault are. What the policy does not serve goes the ordinary way.
//! The kernel tells it what happens to pages and spaces.
//!
//! A policy is one file here and one line in `policies!` below: that gives it its `kind` in configurations
//! (`system.layers.NAME.placement`), its row in `pagelab list placements`, its place in error texts and in the
//! conformance tests.

use pagelab_base::ids::{CpuId, SpaceId};
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView, object_line};
use crate::reclaim::Pressure;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::error::LayerConfigError;
use pagelab_base::measure::Measure;
use pagelab_base::step::{BlockKey, Step};

/// The page that a fault wants a frame for: of private anonymous memory.
#[derive(Clone, Debug)]
pub struct WantedPage {
    /// The space of the faulting program.
    pub space: SpaceId,
    /// The address that faulted.
    pub va: VirtAddr,
    /// Where the page begins that is to be mapped.
    pub page: VirtAddr,
    /// Frames of it as a power of two.
    pub order: u32,
    /// The mapping that it lies in.
    pub mapping: VaRange,
    /// Nothing was ever there; else it comes back from the swap area.
    pub fresh: bool,
    /// The CPU that the fault is handled on.
    pub cpu: CpuId,
    /// What the kernel preset gives for an allocation, beyond its references.
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
    /// Address of one of the smaller objects of the space, chosen by `key`.
    pub fn object_line(&self, key: u64) -> PhysAddr {
        object_line(self.objects, key)
    }
}

/// What comes after a committed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<S> {
    /// This step is next.
    Go(S),
    /// Wait until the key is released, then plan the same step again.
    Wait(BlockKey, S),
    /// The frame is the page's. If the allocator's lists were refilled for it, the fault still has to pay for reading
    /// the metadata of these pages under the zone's lock.
    Taken {
        /// The first frame of the page.
        frame: Pfn,
        /// Frames whose metadata was read for a refill; none without a refill.
        refilled: Option<Vec<Pfn>>,
    },
    /// The policy does not serve the page: the ordinary way.
    Ordinary,
    /// Ask the policy anew.
    Again,
    /// Make room first.
    Reclaim(Pressure),
}

/// What a policy finds itself in.
#[derive(Clone, Copy, Debug)]
pub struct PolicyContext<'a> {
    /// The largest pages of the layer.
    pub page_size: PageSize,
    /// A layer whose memory this one hosts.
    pub guest: Option<&'a str>,
    /// Whether the kernel maps folios of its own choice.
    pub folios: bool,
}

/// A placement policy of a layer.
///
/// What an implementor must uphold:
/// - [`Self::begin`] and [`Self::plan`] change nothing; a plan lists all that its commit reads and writes of the
///   kernel's memory.
/// - A commit looks again at what it relies on: others may have run since the plan. What it holds by a lock
///   ([`BlockKey::Placement`]) it releases before it ends with anything but [`Progress::Go`].
/// - A frame that it hands out is charged ([`Memory::charge`]) and handed out once; frames that it keeps are not, and
///   it counts them in [`Self::held_frames`]. After [`Self::space_ended`] of all spaces it holds none.
/// - Results follow from calls alone: no clock, no order of a hash map.
pub trait Policy: Sized {
    /// Parameters as a configuration has them.
    type Config: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema;
    /// A step of a fault on its way to a frame; [`std::convert::Infallible`] if it has none.
    type Step: Clone + Debug + PartialEq + Eq;

    /// What it is, in a line.
    const ABOUT: &'static str;
    /// Whether faults ask it for frames.
    const CHOOSES: bool = true;
    /// Whether the kernel may map folios of its own choice beside it.
    const BESIDE_FOLIOS: bool = false;

    /// The policy of a layer with these parameters, with nothing kept yet.
    fn new(config: &Self::Config) -> Self;

    /// Refuses what is impossible of the parameters, or where they stand.
    fn check(config: &Self::Config, around: &PolicyContext) -> Result<(), LayerConfigError>;

    /// Parameters that the conformance tests run it with, the defaults first.
    fn samples() -> Vec<Self::Config>;

    /// The first step towards a frame for the page, if the policy serves it.
    fn begin(&self, _page: &WantedPage, _memory: &MemoryView) -> Option<Self::Step> {
        None
    }

    /// Fills `step` with the references and cycles of one of its own. There is no page where memory is given back by a
    /// fault that wants none of the policy's frames.
    fn plan(&self, _page: Option<&WantedPage>, _of: &Self::Step, _memory: &MemoryView, _step: &mut Step) {}

    /// Carries a step out.
    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        of: Self::Step,
        memory: &mut Memory,
        locks: &mut TaskLocks,
    ) -> Progress<Self::Step>;

    /// Whether the kernel makes room for the page, where memory is short, before a step of the policy is carried out.
    fn wants_room_first(&self) -> bool {
        false
    }

    /// Whether so much memory is in use that what the policy keeps is to be given back.
    fn is_crowded(&self, _memory: &MemoryView) -> bool {
        false
    }

    /// A step that gives memory back, if the policy keeps some.
    fn give_back(&self) -> Option<Self::Step> {
        None
    }

    /// A page has been taken out of the page table, by whatever it was.
    fn unmapped(&mut self, _space: u32, _va: VirtAddr, _memory: &mut Memory) {}

    /// All pages of a range are about to be unmapped.
    fn unmapping(&mut self, _space: u32, _range: VaRange, _memory: &mut Memory) {}

    /// A mapping, or a part of one, is gone.
    fn mapping_gone(&mut self, _space: u32, _range: VaRange) {}

    /// A mapping, or a part of one, has moved.
    fn mapping_moved(&mut self, _space: u32, _from: VaRange, _to: VirtAddr) {}

    /// All mappings of a space are gone; its number may be used again.
    fn space_ended(&mut self, _space: u32, _memory: &mut Memory) {}

    /// References of what [`Self::copied`] does.
    fn plan_copied(&self, _space: u32, _va: VirtAddr, _memory: &MemoryView, _step: &mut Step) {}

    /// A page has been copied, and its copy takes its place.
    fn copied(&mut self, _space: u32, _va: VirtAddr, _memory: &mut Memory) {}

    /// Whether it has pages mapped ahead of any access, in blocks up to this order.
    fn block_order(_config: &Self::Config) -> Option<u32> {
        None
    }

    /// Whether the pages of a new mapping are to be mapped at once.
    fn maps_ahead(&self, _vma: &Vma) -> bool {
        false
    }

    /// Whether there is memory enough for that, in pages up to an order.
    fn may_map_ahead(&self, _page_order: u32, _memory: &MemoryView) -> bool {
        false
    }

    /// Frames of its own tables.
    fn table_frames(&self) -> u64 {
        0
    }

    /// Frames that it keeps for pages to come.
    fn held_frames(&self) -> u64 {
        0
    }

    /// What it counts, behind `layer.NAME.`.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// What a policy that needs the page whole says of folios.
const NO_FOLIOS: &str = "folios are blocks of the kernel's own choice, and another placement cannot be had beside them; allowed here is [] \
                         or the placement order0";

/// Registers policies, each a module with the policy in it; the first is the default. `$d` is a dollar sign.
macro_rules! policies {
    ($d:tt $first:ident::$default:ident, $($module:ident::$policy:ident),* $(,)?) => {
        policies!(@all $d $first::$default, $first::$default, $($module::$policy),*);
    };
    (@all $d:tt $first:ident::$default:ident, $($module:ident::$policy:ident),*) => {
        $(pub mod $module;)*

        /// How the kernel of a layer chooses the frames of anonymous pages. Folios and large pages are set by `folios`
        /// and `page_size`.
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
            /// Parameters of every policy that the conformance tests run it with.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend($module::$policy::samples().into_iter().map(Self::$policy));)*
                all
            }

            /// Description of every policy, with its default parameters.
            fn described() -> Vec<(Self, &'static str)> {
                vec![$((Self::$policy(Default::default()), $module::$policy::ABOUT)),*]
            }

            /// Refuses what is impossible of the parameters, or where they stand.
            pub fn check(&self, around: &PolicyContext) -> Result<(), LayerConfigError> {
                let beside_folios = match self {
                    $(Self::$policy(config) => {
                        $module::$policy::check(config, around)?;
                        $module::$policy::BESIDE_FOLIOS
                    })*
                };
                if around.folios && !beside_folios { Err(LayerConfigError::new("folios", NO_FOLIOS)) } else { Ok(()) }
            }

            /// Largest block of pages that are mapped ahead of any access, as a power of two of frames.
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
            /// The policy that `config` names, with nothing kept yet.
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
            pub fn plan(&self, page: Option<&WantedPage>, of: &PlacementStep, memory: &MemoryView, step: &mut Step) {
                match of {
                    $(PlacementStep::$policy(of) => {
                        let Self::$policy(policy) = self else { unreachable!("{ANOTHERS_STEP}") };
                        policy.plan(page, of, memory, step);
                    })*
                }
            }

            /// See [`Policy::commit`].
            pub fn commit(
                &mut self,
                page: Option<&WantedPage>,
                of: PlacementStep,
                memory: &mut Memory,
                locks: &mut TaskLocks,
            ) -> Progress<PlacementStep> {
                match of {
                    $(PlacementStep::$policy(of) => {
                        let Self::$policy(policy) = self else { unreachable!("{ANOTHERS_STEP}") };
                        policy.commit(page, of, memory, locks).map(PlacementStep::$policy)
                    })*
                }
            }
        }

        /// Does the same with whichever policy it is.
        macro_rules! each {
            ($d of:expr, $d bound:ident => $d done:expr) => {
                match $d of {
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
}

/// What must not happen.
const ANOTHERS_STEP: &str = "a step is carried out by the policy that it is of";

impl PlacementConfig {
    /// Name and description of every policy.
    pub fn designs() -> Vec<(String, &'static str)> {
        let name = |config: &Self| serde_json::to_value(config).ok()?.get("kind")?.as_str().map(str::to_owned);
        let described = Self::described().into_iter();
        described.map(|(config, about)| (name(&config).expect("a policy has a kind"), about)).collect()
    }
}

impl<S> Progress<S> {
    fn map<T>(self, step: impl FnOnce(S) -> T) -> Progress<T> {
        match self {
            Self::Go(of) => Progress::Go(step(of)),
            Self::Wait(key, of) => Progress::Wait(key, step(of)),
            Self::Taken { frame, refilled } => Progress::Taken { frame, refilled },
            Self::Ordinary => Progress::Ordinary,
            Self::Again => Progress::Again,
            Self::Reclaim(pressure) => Progress::Reclaim(pressure),
        }
    }
}

/// Each does what [`Policy`] says of it.
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
    pub fn unmapped(&mut self, space: u32, va: VirtAddr, memory: &mut Memory) {
        each!(self, policy => policy.unmapped(space, va, memory));
    }

    /// See [`Policy::unmapping`].
    pub fn unmapping(&mut self, space: u32, range: VaRange, memory: &mut Memory) {
        each!(self, policy => policy.unmapping(space, range, memory));
    }

    /// See [`Policy::mapping_gone`].
    pub fn mapping_gone(&mut self, space: u32, range: VaRange) {
        each!(self, policy => policy.mapping_gone(space, range));
    }

    /// See [`Policy::mapping_moved`].
    pub fn mapping_moved(&mut self, space: u32, from: VaRange, to: VirtAddr) {
        each!(self, policy => policy.mapping_moved(space, from, to));
    }

    /// See [`Policy::space_ended`].
    pub fn space_ended(&mut self, space: u32, memory: &mut Memory) {
        each!(self, policy => policy.space_ended(space, memory));
    }

    /// See [`Policy::plan_copied`].
    pub fn plan_copied(&self, space: u32, va: VirtAddr, memory: &MemoryView, step: &mut Step) {
        each!(self, policy => policy.plan_copied(space, va, memory, step));
    }

    /// See [`Policy::copied`].
    pub fn copied(&mut self, space: u32, va: VirtAddr, memory: &mut Memory) {
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
