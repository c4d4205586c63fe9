//! Random numbers of the workloads: splitmix64, one stream for each purpose and thread.

/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Its state is a
/// counter, so successive draws do not wait for each other.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    state: u64,
}

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream of thread `thread` for `purpose` under `seed`.
    pub fn new(seed: u64, purpose: &str, thread: u64) -> Self {
        // FNV-1a over the name separates the purposes.
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { state: mix(mix(seed ^ mix(name)).wrapping_add(thread)) }
    }

    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mix(self.state)
    }

    /// The draw that comes `index` after the next one.
    #[inline(always)]
    pub fn peek(&self, index: u64) -> u64 {
        mix(self.state.wrapping_add(INCREMENT.wrapping_mul(index.wrapping_add(1))))
    }

    /// Uniform in `0..bound`, `bound` not 0.
    #[inline(always)]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }
}

/// Maps 64 random bits to `0..bound`, each value equally often up to one part in 2^64 / `bound`.
#[inline(always)]
pub(super) fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixer_is_splitmix64() {
        // First outputs of splitmix64 seeded with 1234567, as published with the reference implementation's tests.
        let mut rng = Rng { state: 1_234_567 };
        assert_eq!([rng.next(), rng.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn streams_repeat_differ_and_can_be_peeked() {
        let draw = |seed, purpose, thread| {
            let mut rng = Rng::new(seed, purpose, thread);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(draw(1, "a", 0), draw(1, "a", 0));
        for other in [draw(2, "a", 0), draw(1, "b", 0), draw(1, "a", 1)] {
            assert_ne!(draw(1, "a", 0), other);
        }
        let rng = Rng::new(1, "a", 0);
        assert_eq!(draw(1, "a", 0), [rng.peek(0), rng.peek(1), rng.peek(2)]);
        let mut below = Rng::new(3, "below", 0);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[below.below(7) as usize] += 1);
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }
}
