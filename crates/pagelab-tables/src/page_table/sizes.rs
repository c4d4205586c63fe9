//! Several page sizes in hashed page tables.
//!
//! The hash of a page's number needs the page's size, and a walker learns the size from the entry that it looks for. So
//! it probes for each size that the table may hold: in a table of its own, or in the same one with the size in the tag.
//! Source: Yaniv and Tsafrir, SIGMETRICS 2016, 5.4 and 7 (names the problem); a table per page size: Skarlatos et al.,
//! ASPLOS 2020; one table for all sizes: Intel Itanium Architecture Software Developer's Manual, vol. 2, 4.1.6, 4.1.7
//! (hash and tag of an entry depend on the region's preferred page size).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Context, PageSizes};
use pagelab_base::addr::{FRAME_BYTES, PageSize};
use pagelab_base::error::EngineError;

/// Where the entries of different page sizes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SizeTables {
    /// In a table per page size.
    #[default]
    Separate,
    /// In one table: hash and tag contain the size.
    Shared,
}

/// How a walker probes for several page sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SizeProbes {
    /// All sizes at once, a reference of each search per step. The step in which a search hits is the last one for the
    /// others. All references are counted; a step takes as long as its slowest reference.
    Parallel,
    /// One size after another, until a search hits.
    Serial,
}

/// Page sizes of a hashed table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SizesConfig {
    /// Page sizes that the table can hold, in the order of serial probes: `4K` with `2M`, or with `2M` and `1G`.
    pub order: Vec<PageSize>,
    /// Whether each size has a table of its own.
    pub tables: SizeTables,
    /// Default: `parallel` for separate tables, `serial` for a shared one, as on Itanium.
    pub probes: Option<SizeProbes>,
    /// Share of the memory for the table of each size, in the same order; only for separate tables of fixed size.
    /// Default: in proportion to the pages of each size that the layer's memory has, but at least 4 KiB.
    pub shares: Vec<f64>,
}

impl Default for SizesConfig {
    fn default() -> Self {
        Self { order: vec![PageSize::Size4K], tables: SizeTables::Separate, probes: None, shares: Vec::new() }
    }
}

impl SizesConfig {
    /// The page sizes, given valid parameters.
    pub fn page_sizes(&self) -> PageSizes {
        PageSizes {
            sizes: &PageSize::ALL[..self.order.len().clamp(1, PageSize::ALL.len())],
            why: "it holds the sizes of page_table.sizes.order, to which others can be added",
        }
    }

    /// Whether a walker probes for one size after another.
    pub fn are_probed_serially(&self) -> bool {
        let default = match self.tables {
            SizeTables::Separate => SizeProbes::Parallel,
            SizeTables::Shared => SizeProbes::Serial,
        };
        self.probes.unwrap_or(default) == SizeProbes::Serial
    }

    /// Each size with the index of its table, in the order of probes.
    pub fn with_tables(&self) -> impl Iterator<Item = (PageSize, usize)> {
        let separate = self.tables == SizeTables::Separate;
        self.order.iter().enumerate().map(move |(n, &size)| (size, if separate { n } else { 0 }))
    }

    /// The share of the memory that each table gets, in the order of the tables.
    pub fn table_shares(&self) -> Vec<f64> {
        if self.tables == SizeTables::Shared || self.order.len() == 1 {
            return vec![1.0];
        }
        if !self.shares.is_empty() {
            return self.shares.clone();
        }
        let pages = |size: &PageSize| FRAME_BYTES as f64 / size.bytes() as f64;
        let all: f64 = self.order.iter().map(pages).sum();
        self.order.iter().map(|size| pages(size) / all).collect()
    }

    /// Checks the parameters. `grows` is set for tables that take memory as they need it.
    pub(super) fn validate(&self, grows: bool, context: &Context) -> Result<(), EngineError> {
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted != PageSize::ALL[..sorted.len().min(PageSize::ALL.len())] || sorted.is_empty() {
            let names = self.order.iter().map(|size| size.name()).collect::<Vec<_>>().join(", ");
            let what = format!(
                "{} cannot hold exactly {}; allowed in any order are 4K alone, 4K and 2M, or 4K, 2M and 1G: a page is split into \
                 pages of the next smaller size",
                context.design,
                if names.is_empty() { "no size" } else { &names },
            );
            return context.refuse("page_table.sizes.order", what);
        }
        if self.shares.is_empty() {
            return Ok(());
        }
        let refuse = |what: String| context.refuse("page_table.sizes.shares", what);
        if grows || self.tables == SizeTables::Shared {
            return refuse(format!("{} has no memory to divide between page sizes; remove the key", context.design));
        }
        let (tables, sum) = (self.order.len(), self.shares.iter().sum::<f64>());
        if self.shares.len() != tables
            || self.shares.iter().any(|&share| share.is_nan() || share <= 0.0)
            || (sum - 1.0).abs() > 1e-6
        {
            let found = self.shares.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            return refuse(format!("{found} is not possible; allowed are {tables} numbers above 0 whose sum is 1"));
        }
        Ok(())
    }
}
