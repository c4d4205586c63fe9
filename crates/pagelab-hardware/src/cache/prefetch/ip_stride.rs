//! Stride prefetch by instruction pointer.
//!
//! Models: a set-associative table with an entry per instruction: its last address, the last stride (distance between
//! two addresses), and how many times in a row this stride occurred. Once that number reaches `confidence`, each access
//! fetches the line `distance` strides ahead, and `degree` - 1 strides further. A repeated address (stride 0) changes
//! nothing. A stride shorter than a line counts as a line.
//! Source: Fu, Patel, Janssens, "Stride Directed Prefetching in Scalar Processors", MICRO 1992. The table's size is
//! that of Intel's Core: 256 instructions, distinguished by the low 8 bits of their addresses (Doweck, "Inside Intel
//! Core Microarchitecture and Smart Memory Access", 2006).
//! Parameters: `entries` (256), `ways` (1), `confidence` (2), `degree` (1), `distance` (1), `border` (`4KiB`). The
//! values of `confidence`, `degree` and `distance` are estimates: Intel publishes none. The border is Intel's: "the
//! prefetched data is within the same 4K byte page as the load" (Intel 64 and IA-32 Architectures Optimization
//! Reference Manual, "Data Prefetching", Sandy Bridge).
//! Stats: those of every level (`prefetch.LEVEL.*`).
//! Deviations: entries are tagged with the instruction's whole address. Strides are distances between virtual
//! addresses, so an entry remains valid across the border; its prefetches never cross it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Border, CacheConfigError, CacheLevel, Demand, MAX_DEGREE, Prefetcher, Proposals, between};
use pagelab_base::addr::{LINE_BYTES, LINE_SHIFT};

/// Parameters of the stride prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpStrideConfig {
    /// Instructions that it tracks, 1 to 65536.
    pub entries: u32,
    /// Entries per set; the low bits of the instruction's address choose the set.
    pub ways: u32,
    /// Equal strides in a row before it fetches, 1 to 255.
    pub confidence: u32,
    /// Lines that it fetches per access, 1 to 32.
    pub degree: u32,
    /// Strides from the access to the first fetched line, 1 to 64.
    pub distance: u32,
    /// The boundary that prefetches do not cross.
    pub border: Border,
}

impl Default for IpStrideConfig {
    fn default() -> Self {
        Self { entries: 256, ways: 1, confidence: 2, degree: 1, distance: 1, border: Border::Smallest }
    }
}

/// State of an instruction.
#[derive(Clone, Copy, Debug, Default)]
struct StrideEntry {
    /// The instruction's address; 0 for an empty entry.
    pc: u64,
    last: u64,
    stride: i64,
    /// How many times in a row this stride occurred.
    seen: u32,
}

/// The stride prefetcher. The entries of a set are in recency order.
#[derive(Clone, Debug)]
pub struct IpStride {
    config: IpStrideConfig,
    entries: Vec<StrideEntry>,
}

impl Prefetcher for IpStride {
    type Parameters = IpStrideConfig;

    /// The other levels do not know the instruction's address.
    const LEVELS: &'static [CacheLevel] = &[CacheLevel::L1];

    fn new(parameters: &IpStrideConfig) -> Self {
        Self { config: *parameters, entries: vec![StrideEntry::default(); parameters.entries as usize] }
    }

    fn validate(parameters: &IpStrideConfig) -> Result<(), CacheConfigError> {
        let &IpStrideConfig { entries, ways, confidence, degree, distance, border: _ } = parameters;
        between("entries", entries, 1, 1 << 16)?;
        between("ways", ways, 1, entries)?;
        if !entries.is_multiple_of(ways) {
            let what = format!("{entries} entries are not a whole number of sets of {ways}; allowed are divisors");
            return Err(CacheConfigError::new("ways", what));
        }
        between("confidence", confidence, 1, u8::MAX.into())?;
        between("degree", degree, 1, MAX_DEGREE)?;
        between("distance", distance, 1, 64)
    }

    fn samples() -> Vec<IpStrideConfig> {
        let border = Border::Mapping;
        vec![
            IpStrideConfig::default(),
            IpStrideConfig { entries: 6, ways: 3, confidence: 1, degree: 2, distance: 4, border },
        ]
    }

    fn border(&self) -> Border {
        self.config.border
    }

    fn demand(&mut self, demand: &Demand, proposals: &mut Proposals) {
        if demand.pc == 0 {
            return;
        }
        let ways = self.config.ways as usize;
        let set = (demand.pc % (self.entries.len() / ways) as u64) as usize;
        let set = &mut self.entries[set * ways..][..ways];
        let Some(way) = set.iter().position(|entry| entry.pc == demand.pc) else {
            set.rotate_right(1);
            set[0] = StrideEntry { pc: demand.pc, last: demand.va.0, ..StrideEntry::default() };
            return;
        };
        set[..=way].rotate_right(1);
        let entry = &mut set[0];
        let stride = demand.va.0.wrapping_sub(entry.last) as i64;
        if stride == 0 {
            return;
        }
        entry.seen = if stride == entry.stride { (entry.seen + 1).min(self.config.confidence) } else { 1 };
        (entry.last, entry.stride) = (demand.va.0, stride);
        if entry.seen < self.config.confidence {
            return;
        }
        let step = if stride.unsigned_abs() < LINE_BYTES { stride.signum() * LINE_BYTES as i64 } else { stride };
        let first = i64::from(self.config.distance);
        for strides in first..first + i64::from(self.config.degree) {
            let target = step.checked_mul(strides).and_then(|ahead| demand.address.0.checked_add_signed(ahead));
            if !proposals.push(target.map(|address| address >> LINE_SHIFT)) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::proposed;
    use super::*;
    use pagelab_base::addr::PageSize::{Size2M, Size4K};

    const ANY: [bool; 2] = [false, false];

    fn prefetcher(config: IpStrideConfig) -> IpStride {
        IpStride::validate(&config).unwrap();
        IpStride::new(&config)
    }

    #[test]
    fn it_fetches_once_the_stride_has_been_seen_often_enough() {
        for confidence in 1..5 {
            let mut table = prefetcher(IpStrideConfig { confidence, ..IpStrideConfig::default() });
            let mut at = |offset| proposed(&mut table, Size2M, 7, offset, ANY).0;
            let silent = (0..10).take_while(|n| at(n * 256).is_empty()).count();
            assert_eq!(silent as u32, confidence, "the first access has no stride");
            assert_eq!(at((silent as u64 + 1) * 256), [(silent as i64 + 2) * 4]);
            assert_eq!(at((silent as u64 + 1) * 256), [0; 0], "the same address again");
            assert_eq!(
                at((silent as u64 + 2) * 256 + 64).is_empty(),
                confidence > 1,
                "another stride is seen the first time"
            );
        }
    }

    #[test]
    fn strides_go_down_and_small_ones_are_of_a_line() {
        let mut table = prefetcher(IpStrideConfig { degree: 2, distance: 3, ..IpStrideConfig::default() });
        let mut last = |pc, offsets: &[u64]| {
            let all: Vec<_> = offsets.iter().map(|&offset| proposed(&mut table, Size4K, pc, offset, ANY)).collect();
            all.last().unwrap().clone()
        };
        assert_eq!(last(1, &[3072, 2816, 2560]), (vec![28, 24], 0));
        assert_eq!(last(2, &[0, 8, 16]), (vec![3, 4], 0));
        assert_eq!(last(3, &[640, 632, 624]), (vec![6, 5], 0));
        assert_eq!(last(4, &[512, 256, 0]), (vec![], 1), "below the page");
        assert_eq!(last(5, &[3000, 3100, 3200]), (vec![54, 56], 0));
        assert_eq!(last(6, &[3400, 3500, 3600]), (vec![60, 62], 0));
        assert_eq!(last(7, &[3500, 3600, 3700]), (vec![62], 1), "the second is beyond the page");
        assert_eq!(last(0, &[0, 256, 512]), (vec![], 0), "no instruction is known");
    }

    #[test]
    fn instructions_of_a_set_replace_the_least_recently_used() {
        let mut table = prefetcher(IpStrideConfig { entries: 4, ways: 2, confidence: 1, ..IpStrideConfig::default() });
        let mut goes = |pc, offset| !proposed(&mut table, Size2M, pc, offset, ANY).0.is_empty();
        // Odd instruction addresses share a set.
        assert!(!goes(1, 0) && !goes(3, 0) && goes(1, 64) && goes(3, 64));
        assert!(!goes(5, 0), "instead of 1");
        assert!(!goes(2, 0) && goes(3, 128), "another set is another");
        assert!(!goes(1, 128), "instead of 5");
        assert!(goes(3, 192));
    }
}
