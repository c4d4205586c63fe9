//! Costs of fault stages by kind of fault, where they differ from those of a first touch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StageCost, StageCosts};
use pagelab_base::error::EngineError;

/// Kinds of faults other than the first touch of anonymous memory by a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A load maps the zero page.
    ZeroPage,
    /// A store replaces the zero page by a new page.
    ZeroPageReplaced,
    /// A store copies a shared page.
    Copy,
    /// A store to a write-protected page that turns out to be writable.
    Reuse,
    /// A load maps a page of the page cache and the pages around it.
    FileAround,
    /// A store to a shared mapping maps a page of the page cache.
    FileShared,
    /// A store to a private mapping copies a page of the page cache that was not mapped there.
    FileCopy,
}

impl FaultKind {
    /// All kinds, in the order of [`FaultKinds`].
    pub const ALL: [Self; 7] = [
        Self::ZeroPage,
        Self::ZeroPageReplaced,
        Self::Copy,
        Self::Reuse,
        Self::FileAround,
        Self::FileShared,
        Self::FileCopy,
    ];

    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroPage => "zero-page",
            Self::ZeroPageReplaced => "zero-page-replaced",
            Self::Copy => "copy",
            Self::Reuse => "reuse",
            Self::FileAround => "file-around",
            Self::FileShared => "file-shared",
            Self::FileCopy => "file-copy",
        }
    }
}

/// Stages that cost faults of these kinds something else than a first touch ([`StageCosts`]). The kind of a fault is
/// known only after its walk, so the stages `entry`, `lookup` and `walk` have the same costs for all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FaultKinds {
    /// A load maps the zero page.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub zero_page: KindCosts,
    /// A store replaces the zero page by a new page.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub zero_page_replaced: KindCosts,
    /// A store copies a shared page.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub copy: KindCosts,
    /// A store to a write-protected page that turns out to be writable.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub reuse: KindCosts,
    /// A load maps a page of the page cache and the pages around it.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub file_around: KindCosts,
    /// A store to a shared mapping maps a page of the page cache.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub file_shared: KindCosts,
    /// A store to a private mapping copies a page of the page cache that was not mapped there.
    #[serde(skip_serializing_if = "KindCosts::is_none")]
    pub file_copy: KindCosts,
}

/// Costs of the stages after the walk. A stage that is omitted costs as much as for a first touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KindCosts {
    /// Frame allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<StageCost>,
    /// Zeroing of the frame or copying of a page, without the bulk accesses, which go through the caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zeroing: Option<StageCost>,
    /// Charge to the memory cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge: Option<StageCost>,
    /// Reverse map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmap: Option<StageCost>,
    /// Queueing for the LRU lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lru: Option<StageCost>,
    /// Page-table lock, PTE and counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<StageCost>,
    /// Unlock and return from the exception.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub exit: Option<StageCost>,
}

impl KindCosts {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Like [`StageCosts::stage`]; `None` if the stage is omitted.
    pub(super) fn stage(&self, stage: usize) -> Option<&StageCost> {
        match stage {
            3 => self.allocation.as_ref(),
            4 => self.zeroing.as_ref(),
            5 => self.charge.as_ref(),
            6 => self.rmap.as_ref(),
            7 => self.lru.as_ref(),
            8 => self.install.as_ref(),
            9 => self.exit.as_ref(),
            _ => None,
        }
    }

    /// In the order of [`StageCosts::all`].
    pub(super) fn all(&self) -> [Option<StageCost>; 10] {
        let Self { allocation, zeroing, charge, rmap, lru, install, exit } = *self;
        [None, None, None, allocation, zeroing, charge, rmap, lru, install, exit]
    }
}

impl FaultKinds {
    /// Whether all kinds cost as much as a first touch.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn kind_costs(&self, kind: FaultKind) -> &KindCosts {
        match kind {
            FaultKind::ZeroPage => &self.zero_page,
            FaultKind::ZeroPageReplaced => &self.zero_page_replaced,
            FaultKind::Copy => &self.copy,
            FaultKind::Reuse => &self.reuse,
            FaultKind::FileAround => &self.file_around,
            FaultKind::FileShared => &self.file_shared,
            FaultKind::FileCopy => &self.file_copy,
        }
    }

    /// Costs of the stages of a kind, given those of a first touch.
    pub(super) fn costs(&self, kind: FaultKind, first_touch: &StageCosts) -> [StageCost; 10] {
        let mut costs = first_touch.all();
        costs.iter_mut().zip(self.kind_costs(kind).all()).for_each(|(cost, given)| *cost = given.unwrap_or(*cost));
        costs
    }

    /// Refuses impossible numbers of lines.
    pub fn validate(&self, first_touch: &StageCosts) -> Result<(), EngineError> {
        FaultKind::ALL.iter().filter(|&&kind| !self.kind_costs(kind).is_none()).try_for_each(|&kind| {
            StageCosts::validate_lines(self.costs(kind, first_touch), &format!("kernel.fault_kinds.{}", kind.name()))
        })
    }
}
