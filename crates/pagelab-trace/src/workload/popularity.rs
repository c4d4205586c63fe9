//! Which of many items a request is for.

use super::{
    permutation::Permutation,
    spec::{Parameter, Preset, Values},
    zipf::{self, Ranks},
};
use crate::rng::Rng;

/// How skewed the popularity of items is; without effect where each is equally likely.
pub(super) const THETA: Parameter = Parameter {
    default: Preset::Value("0.99"),
    meaning: "zipf, latest: the r-th most popular item is chosen in proportion to 1 / r^theta",
    ..zipf::THETA
};

/// How often items are chosen, by YCSB's names.
///
/// Items are numbered in the order in which they came to be.
pub(super) enum Popularity {
    /// All equally often.
    Uniform,
    /// As Zipf's law has it, whichever item that is: popular ones are spread at random.
    Zipf { ranks: Ranks, spread: Permutation },
    /// As Zipf's law has it, the newest item first.
    Latest(Ranks),
}

impl Popularity {
    /// A law `uniform` (or `random`), `zipf` or `latest` over `items`. All threads agree on what is popular.
    ///
    /// # Panics
    /// If the law is none of these.
    pub fn new(values: &Values, law: &str, items: u64) -> Self {
        let ranks = || Ranks::new(items, values.real(THETA.name));
        match law {
            "uniform" | "random" => Self::Uniform,
            "zipf" => {
                let spread = Permutation::new(items, Rng::of_thread(values.seed(), "popularity", 0));
                Self::Zipf { ranks: ranks(), spread }
            }
            "latest" => Self::Latest(ranks()),
            other => panic!("no law is called {other}"),
        }
    }

    /// One of `items` items, which are as many as at first or more.
    ///
    /// Zipf's law goes by the number of items that there were at first: later ones are out of its reach, and those that
    /// they push out at the far end are out of that of `latest`.
    #[inline(always)]
    pub fn draw(&self, rng: &mut Rng, items: u64) -> u64 {
        match self {
            Self::Uniform => rng.below(items),
            Self::Zipf { ranks, spread } => spread.apply(ranks.draw(rng)),
            Self::Latest(ranks) => items - 1 - ranks.draw(rng),
        }
    }
}
