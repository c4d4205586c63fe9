//! Next-line prefetch: whoever needs a line will need the next.
//!
//! Models: a request that sets it off fetches the lines behind its own, upwards. Which do is `trigger`: those that
//! miss; those that miss or are the first to use a prefetched line, so that a run of lines misses once (*tagged*); or
//! all.
//! Source: Smith, "Cache Memories", ACM Computing Surveys 14(3), 1982: one block lookahead, prefetched always, on
//! misses, or tagged.
//! Parameters: `trigger` (`tagged`), `degree` (1, as in the source), `border` (`mapping`).
//! Stats: those that every level has (`prefetch.LEVEL.*`).
//! Deviations: the source's next block is the next one of memory, whatever the page; here it ends with the page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Border, CacheConfigError, Demand, MAX_DEGREE, Prefetcher, Proposals, between};

/// Which requests set a next-line prefetcher off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Those that miss.
    Miss,
    /// Those that miss, and the first ones to use a prefetched line.
    #[default]
    Tagged,
    /// All.
    Always,
}

/// What the configuration may say of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextLineConfig {
    /// Which requests set it off.
    pub trigger: Trigger,
    /// Lines that it fetches then, 1 to 32.
    pub degree: u32,
    /// What it never fetches beyond.
    pub border: Border,
}

impl Default for NextLineConfig {
    fn default() -> Self {
        Self { trigger: Trigger::default(), degree: 1, border: Border::Mapping }
    }
}

/// See the module's text.
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
            let mut of = NextLine::new(&NextLineConfig { trigger, ..NextLineConfig::default() });
            [HIT, MISS, FIRST_USE].map(|how| !proposed(&mut of, Size4K, 0, 64, how).0.is_empty())
        };
        assert_eq!(goes(Trigger::Miss), [false, true, false]);
        assert_eq!(goes(Trigger::Tagged), [false, true, true]);
        assert_eq!(goes(Trigger::Always), [true; 3]);
    }

    #[test]
    fn it_ends_with_the_page() {
        let behind = |size: PageSize, line: u64| {
            let mut of = NextLine::new(&NextLineConfig { degree: 3, ..NextLineConfig::default() });
            proposed(&mut of, size, 0, line * 64 + 63, MISS)
        };
        assert_eq!(behind(Size4K, 60), (vec![61, 62, 63], 0));
        assert_eq!(behind(Size4K, 62), (vec![63], 1));
        assert_eq!(behind(Size4K, 63), (vec![], 1));
        assert_eq!(behind(Size2M, 62), (vec![63, 64, 65], 0));
        assert_eq!(behind(Size2M, 32766), (vec![32767], 1));
        let mut of =
            NextLine::new(&NextLineConfig { degree: 3, border: Border::Smallest, ..NextLineConfig::default() });
        assert_eq!(proposed(&mut of, Size2M, 0, 62 * 64, MISS), (vec![63], 1));
        assert_eq!(proposed(&mut of, Size2M, 0, 64 * 64, MISS), (vec![65, 66, 67], 0));
    }
}
