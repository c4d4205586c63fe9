//! Random numbers (splitmix64): one stream per purpose, so that the draws for one purpose never depend on those for
//! another.

/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Its state is a
/// counter, so successive draws do not wait for each other.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream for `purpose` under `seed`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the name separates the purposes; the mixer does the rest.
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { state: mix(seed ^ mix(name)) }
    }

    /// The stream of thread `thread` for `purpose` under `seed`.
    pub fn for_thread(seed: u64, purpose: &str, thread: u64) -> Self {
        Self { state: mix(Self::new(seed, purpose).state.wrapping_add(thread)) }
    }

    /// The next draw, uniform over all 2^64 numbers.
    #[inline(always)]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mix(self.state)
    }

    /// The draw that comes `index` after the next one.
    #[inline(always)]
    pub fn peek(&self, index: u64) -> u64 {
        mix(self.state.wrapping_add(INCREMENT.wrapping_mul(index.wrapping_add(1))))
    }

    /// Uniform in `0..bound` up to a bias below 2^-32 for bounds that fit 32 bits; `bound` must not be 0.
    #[inline(always)]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next_u64(), bound)
    }
}

/// Maps 64 random bits to `0..bound`; each value is equally likely up to one part in 2^64 / `bound`.
#[inline(always)]
pub fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The mixer alone: every bit of the result depends on every bit of `z`.
#[inline(always)]
pub fn mix(mut z: u64) -> u64 {
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
        assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn streams_repeat_differ_and_can_be_peeked() {
        let draw = |seed, purpose, thread| {
            let mut rng = Rng::for_thread(seed, purpose, thread);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(1, "a", 0), draw(1, "a", 0));
        for other in [draw(2, "a", 0), draw(1, "b", 0), draw(1, "a", 1)] {
            assert_ne!(draw(1, "a", 0), other);
        }
        let rng = Rng::for_thread(1, "a", 0);
        assert_eq!(draw(1, "a", 0), [rng.peek(0), rng.peek(1), rng.peek(2)]);
        let mut below = Rng::for_thread(3, "below", 0);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[below.below(7) as usize] += 1);
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }

    /// Results depend on the drawn numbers, so they must not change.
    #[test]
    fn streams_are_those_of_older_versions() {
        let mut component = Rng::new(7, "cache.l3");
        let mut thread = Rng::for_thread(7, "random", 1);
        assert_eq!(
            [component.next_u64(), component.next_u64()],
            [17_667_324_226_215_948_178, 5_270_014_465_304_335_517]
        );
        assert_eq!([thread.next_u64(), thread.next_u64()], [8_789_671_504_776_437_485, 13_302_351_165_155_225_587]);
    }
}
