//! The choice of an item for a request.

use super::{
    permutation::Permutation,
    spec::{Parameter, Preset, Values},
    zipf::{self, Ranks},
};
use crate::rng::Rng;

/// Skew of the popularity of items; without effect on the uniform law.
pub(super) const THETA: Parameter = Parameter {
    default: Preset::Value("0.99"),
    meaning: "zipf, latest: the r-th most popular item is chosen in proportion to 1 / r^theta",
    ..zipf::THETA
};

/// Popularity laws, with YCSB's names.
///
/// Items are numbered in the order of their creation.
pub(super) enum Popularity {
    /// All items are equally likely.
    Uniform,
    /// Zipf's law; popular items are spread at random.
    Zipf { ranks: Ranks, spread: Permutation },
    /// Zipf's law; the newest item is the most popular.
    Latest(Ranks),
}

impl Popularity {
    /// The law `uniform` (or `random`), `zipf` or `latest` over `items`. All threads agree on what is popular.
    ///
    /// # Panics
    /// If there is no such law.
    pub fn new(values: &Values, law: &str, items: u64) -> Self {
        let ranks = || Ranks::new(items, values.real(THETA.name));
        match law {
            "uniform" | "random" => Self::Uniform,
            "zipf" => {
                let spread = Permutation::new(items, Rng::for_thread(values.seed(), "popularity", 0));
                Self::Zipf { ranks: ranks(), spread }
            }
            "latest" => Self::Latest(ranks()),
            other => panic!("no law is called {other}"),
        }
    }

    /// Draws one of `items` items, which are at least as many as initially.
    ///
    /// Zipf's law covers the initial number of items: `zipf` never chooses later ones, and `latest` never chooses older
    /// ones beyond that number.
    #[inline(always)]
    pub fn draw(&self, rng: &mut Rng, items: u64) -> u64 {
        match self {
            Self::Uniform => rng.below(items),
            Self::Zipf { ranks, spread } => spread.apply(ranks.draw(rng)),
            Self::Latest(ranks) => items - 1 - ranks.draw(rng),
        }
    }
}
