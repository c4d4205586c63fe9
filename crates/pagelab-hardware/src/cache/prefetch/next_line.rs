//! Next-line prefetch: fetches the lines that follow a requested line.
//!
//! Models: a request that triggers a prefetch fetches the following lines in ascending order. `trigger` selects the
//! requests: misses; misses and first uses of prefetched lines, so that a sequence of lines misses once (*tagged*); or
//! all requests.
//! Source: Smith, "Cache Memories", ACM Computing Surveys 14(3), 1982: one block lookahead, prefetched always, on
//! misses, or tagged.
//! Parameters: `trigger` (`tagged`), `degree` (1, as in the source), `border` (`mapping`).
//! Stats: those of every level (`prefetch.LEVEL.*`).
//! Deviations: in the source the next block is the next one in memory, whatever its page; here prefetching ends at the
//! page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Border, CacheConfigError, Demand, MAX_DEGREE, Prefetcher, Proposals, between};

/// Which requests trigger a next-line prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Requests that miss.
    Miss,
    /// Requests that miss, and first uses of prefetched lines.
    #[default]
    Tagged,
    /// All requests.
    Always,
}

/// Parameters of the next-line prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextLineConfig {
    /// Which requests trigger a prefetch.
    pub trigger: Trigger,
    /// Lines per prefetch, 1 to 32.
    pub degree: u32,
    /// The boundary that prefetches do not cross.
    pub border: Border,
}

impl Default for NextLineConfig {
    fn default() -> Self {
        Self { trigger: Trigger::default(), degree: 1, border: Border::Mapping }
    }
}

/// The next-line prefetcher.
#[derive(Clone, Debug)]
pub struct NextLine(NextLineConfig);

impl Prefetcher for NextLine {
    type Parameters = NextLineConfig;

    fn new(parameters: &NextLineConfig) -> Self {
        Self(*parameters)
    }

    fn validate(parameters: &NextLineConfig) -> Result<(), CacheConfigError> {
        between("degree", parameters.degree, 1, MAX_DEGREE)
    }

    fn samples() -> Vec<NextLineConfig> {
        vec![
            NextLineConfig::default(),
            NextLineConfig { trigger: Trigger::Always, degree: 4, border: Border::Smallest },
        ]
    }

    fn border(&self) -> Border {
        self.0.border
    }

    fn demand(&mut self, demand: &Demand, proposals: &mut Proposals) {
        let goes = match self.0.trigger {
            Trigger::Miss => demand.missed,
            Trigger::Tagged => demand.missed || demand.is_first_use,
            Trigger::Always => true,
        };
        let count = if goes { u64::from(self.0.degree) } else { 0 };
        for ahead in 1..=count {
            if !proposals.push(Some(demand.line() + ahead)) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::proposed;
    use super::*;
    use pagelab_base::addr::PageSize::{self, Size2M, Size4K};

    const HIT: [bool; 2] = [false, false];
    const MISS: [bool; 2] = [true, false];
    const FIRST_USE: [bool; 2] = [false, true];

    #[test]
    fn the_trigger_says_which_requests_set_it_off() {
        let goes = |trigger| {
            let mut prefetcher = NextLine::new(&NextLineConfig { trigger, ..NextLineConfig::default() });
            [HIT, MISS, FIRST_USE].map(|how| !proposed(&mut prefetcher, Size4K, 0, 64, how).0.is_empty())
        };
        assert_eq!(goes(Trigger::Miss), [false, true, false]);
        assert_eq!(goes(Trigger::Tagged), [false, true, true]);
        assert_eq!(goes(Trigger::Always), [true; 3]);
    }

    #[test]
    fn it_ends_with_the_page() {
        let behind = |size: PageSize, line: u64| {
            let mut prefetcher = NextLine::new(&NextLineConfig { degree: 3, ..NextLineConfig::default() });
            proposed(&mut prefetcher, size, 0, line * 64 + 63, MISS)
        };
        assert_eq!(behind(Size4K, 60), (vec![61, 62, 63], 0));
        assert_eq!(behind(Size4K, 62), (vec![63], 1));
        assert_eq!(behind(Size4K, 63), (vec![], 1));
        assert_eq!(behind(Size2M, 62), (vec![63, 64, 65], 0));
        assert_eq!(behind(Size2M, 32766), (vec![32767], 1));
        let mut prefetcher =
            NextLine::new(&NextLineConfig { degree: 3, border: Border::Smallest, ..NextLineConfig::default() });
        assert_eq!(proposed(&mut prefetcher, Size2M, 0, 62 * 64, MISS), (vec![63], 1));
        assert_eq!(proposed(&mut prefetcher, Size2M, 0, 64 * 64, MISS), (vec![65, 66, 67], 0));
    }
}
