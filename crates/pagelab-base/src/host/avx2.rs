//! [`Vectors`] in AVX2, which x86-64 servers and desktops have had since 2013. The choice is made once, when a
//! simulation is built.
//!
//! Why `unsafe`: see [`super`]. A miss through three levels of data caches executes less than half the instructions of
//! the portable code (example `cache_rates`). The vector functions are inlined into [`Vectors::run`], which is compiled
//! for AVX2 as a whole; if a function between them were not inlined, it would be correct but slow.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_cvtsi32_si128,
    _mm_cvtsi128_si32, _mm_move_ss, _mm_movemask_ps, _mm_permutevar_ps, _mm_set1_epi32, _mm_shuffle_epi32,
    _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256, _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_castsi256_pd,
    _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_cmpeq_epi64, _mm256_cmpgt_epi32,
    _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_movemask_ps, _mm256_permute4x64_epi64, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setzero_si256,
};

use super::{Portable, VectorWork, Vectors, first_bit};

/// The AVX2 instruction set. Use it only where [`is_available`] has returned true.
pub struct Avx2;

/// Whether this processor can run the code of this file.
pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
}

/// Permutations of eight lanes: row w moves lane w to the front and those before it back by one.
const FRONT_OF_EIGHT: [[u32; 8]; 8] = {
    let mut rows = [[0; 8]; 8];
    let mut way = 0;
    while way < 8 {
        rows[way][0] = way as u32;
        let mut lane = 1;
        while lane < 8 {
            rows[way][lane] = if lane <= way { lane - 1 } else { lane } as u32;
            lane += 1;
        }
        way += 1;
    }
    rows
};

/// The same for four lanes.
const FRONT_OF_FOUR: [[u32; 4]; 4] = [[0, 1, 2, 3], [1, 0, 2, 3], [2, 0, 1, 3], [3, 0, 1, 2]];

/// [`FRONT_OF_FOUR`] for words of 64 bits, by their halves.
const FRONT_OF_FOUR_WORDS: [[u32; 8]; 4] = {
    let mut rows = [[0; 8]; 4];
    let mut way = 0;
    while way < 4 {
        let mut lane = 0;
        while lane < 8 {
            rows[way][lane] = 2 * FRONT_OF_FOUR[way][lane / 2] + lane as u32 % 2;
            lane += 1;
        }
        way += 1;
    }
    rows
};

/// Number of vectors of `lanes` words that cover `words` words. Loops over them are `while` loops: the compiler unrolls
/// these, but may leave calls of an iterator's `next` in others, which pass vectors through memory.
const fn vectors(words: usize, lanes: usize) -> usize {
    words.div_ceil(lanes)
}

/// Start of the `n`th vector of `LANES` words among those that cover the words from `first` on. The last may overlap
/// the previous one.
#[inline(always)]
fn start<const N: usize, const LANES: usize>(first: usize, n: usize) -> usize {
    const { assert!(N <= 4 * LANES + 1, "four vectors cover them") };
    (first + n * LANES).min(N - LANES)
}

/// A vector at any address. It is read and written as a field: in a long loop, the compiler may leave calls of the
/// intrinsics for that, which pass vectors through memory.
#[repr(C, packed)]
struct Unaligned<T>(T);

#[inline(always)]
fn load_words<const N: usize>(set: &[u64; N], at: usize) -> __m256i {
    assert!(at + 4 <= N);
    // SAFETY: the four words from `at` on are in the set; any alignment will do.
    unsafe { (*set.as_ptr().add(at).cast::<Unaligned<__m256i>>()).0 }
}

#[inline(always)]
fn store_words<const N: usize>(set: &mut [u64; N], at: usize, words: __m256i) {
    assert!(at + 4 <= N);
    // SAFETY: as in `load_words`.
    unsafe { (*set.as_mut_ptr().add(at).cast::<Unaligned<__m256i>>()).0 = words }
}

#[inline(always)]
fn load<const N: usize>(set: &[u32; N], at: usize) -> __m256i {
    assert!(at + 8 <= N);
    // SAFETY: the eight words from `at` on are in the set; any alignment will do.
    unsafe { (*set.as_ptr().add(at).cast::<Unaligned<__m256i>>()).0 }
}

#[inline(always)]
fn store<const N: usize>(set: &mut [u32; N], at: usize, words: __m256i) {
    assert!(at + 8 <= N);
    // SAFETY: as in `load`.
    unsafe { (*set.as_mut_ptr().add(at).cast::<Unaligned<__m256i>>()).0 = words }
}

#[inline(always)]
fn load4<const N: usize>(set: &[u32; N]) -> __m128i {
    const { assert!(N >= 4) };
    // SAFETY: four words are in the set; any alignment will do.
    unsafe { (*set.as_ptr().cast::<Unaligned<__m128i>>()).0 }
}

#[inline(always)]
fn store4<const N: usize>(set: &mut [u32; N], words: __m128i) {
    const { assert!(N >= 4) };
    // SAFETY: as in `load4`.
    unsafe { (*set.as_mut_ptr().cast::<Unaligned<__m128i>>()).0 = words }
}

impl Vectors for Avx2 {
    #[inline(always)]
    fn run<W: VectorWork>(work: W) -> W::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn run_with_avx2<W: VectorWork>(work: W) -> W::Output {
            work.run::<Avx2>()
        }
        // SAFETY: the processor has the features, or `Avx2` would not have been named.
        unsafe { run_with_avx2(work) }
    }

    #[inline(always)]
    fn position<const N: usize>(words: &[u32; N], wanted: u32, mask: u32) -> Option<usize> {
        // SAFETY: the processor has AVX2, or `Avx2` would not have been named.
        unsafe {
            if N == 4 {
                let masked = _mm_and_si128(load4(words), _mm_set1_epi32(mask as i32));
                let equal = _mm_cmpeq_epi32(masked, _mm_set1_epi32(wanted as i32));
                return first_bit(_mm_movemask_ps(_mm_castsi128_ps(equal)) as u32);
            }
            let (wanted, mask) = (_mm256_set1_epi32(wanted as i32), _mm256_set1_epi32(mask as i32));
            let (mut found, mut n) = (0, 0);
            while n < vectors(N, 8) {
                let at = start::<N, 8>(0, n);
                let equal = _mm256_cmpeq_epi32(_mm256_and_si256(load(words, at), mask), wanted);
                found |= (_mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32) << at;
                n += 1;
            }
            first_bit(found)
        }
    }

    #[inline(always)]
    fn move_to_front<const N: usize>(set: &mut [u32; N], way: usize, word: u32) {
        // SAFETY: as in `position`.
        unsafe {
            if N == 4 {
                let lanes = load4(&FRONT_OF_FOUR[way & 3]);
                let moved = _mm_castps_si128(_mm_permutevar_ps(_mm_castsi128_ps(load4(set)), lanes));
                store4(set, with_first4(moved, word));
            } else if N == 8 {
                let lanes = load(&FRONT_OF_EIGHT[way & 7], 0);
                let moved = _mm256_permutevar8x32_epi32(load(set, 0), lanes);
                store(set, 0, with_first(moved, word));
            } else {
                let last_moved = _mm256_set1_epi32(way as i32);
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                // Load everything into registers before the first store.
                let (mut moved, mut n) = ([_mm256_setzero_si256(); 4], 0);
                while n < vectors(N - 1, 8) {
                    let at = start::<N, 8>(1, n);
                    let stays = _mm256_cmpgt_epi32(_mm256_add_epi32(lanes, _mm256_set1_epi32(at as i32)), last_moved);
                    moved[n] = _mm256_blendv_epi8(load(set, at - 1), load(set, at), stays);
                    n += 1;
                }
                n = 0;
                while n < vectors(N - 1, 8) {
                    store(set, start::<N, 8>(1, n), moved[n]);
                    n += 1;
                }
                set[0] = word;
            }
        }
    }

    #[inline(always)]
    fn push_front<const N: usize>(set: &mut [u32; N], word: u32) -> u32 {
        // SAFETY: as in `position`.
        unsafe {
            if N == 4 {
                // Lanes 3, 0, 1, 2.
                let moved = _mm_shuffle_epi32::<0b10_01_00_11>(load4(set));
                store4(set, with_first4(moved, word));
                _mm_cvtsi128_si32(moved) as u32
            } else if N == 8 {
                let moved = _mm256_permutevar8x32_epi32(load(set, 0), _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6));
                store(set, 0, with_first(moved, word));
                _mm_cvtsi128_si32(_mm256_castsi256_si128(moved)) as u32
            } else {
                let out = set[N - 1];
                let (mut moved, mut n) = ([_mm256_setzero_si256(); 4], 0);
                while n < vectors(N - 1, 8) {
                    moved[n] = load(set, start::<N, 8>(1, n) - 1);
                    n += 1;
                }
                n = 0;
                while n < vectors(N - 1, 8) {
                    store(set, start::<N, 8>(1, n), moved[n]);
                    n += 1;
                }
                set[0] = word;
                out
            }
        }
    }

    #[inline(always)]
    fn position_of_word<const N: usize>(words: &[u64; N], wanted: u64) -> Option<usize> {
        if N < 4 {
            return Portable::position_of_word(words, wanted);
        }
        // SAFETY: as in `position`.
        unsafe {
            let wanted = _mm256_set1_epi64x(wanted as i64);
            let (mut found, mut n) = (0, 0);
            while n < vectors(N, 4) {
                let at = start::<N, 4>(0, n);
                let equal = _mm256_cmpeq_epi64(load_words(words, at), wanted);
                found |= (_mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32) << at;
                n += 1;
            }
            first_bit(found)
        }
    }

    #[inline(always)]
    fn move_word_to_front<const N: usize>(set: &mut [u64; N], way: usize) {
        let word = set[way % N];
        if N < 4 {
            return Portable::move_word_to_front(set, way);
        }
        // SAFETY: as in `position`.
        unsafe {
            if N == 4 {
                let lanes = load(&FRONT_OF_FOUR_WORDS[way & 3], 0);
                let moved = _mm256_permutevar8x32_epi32(load_words(set, 0), lanes);
                return store_words(set, 0, moved);
            }
            let last_moved = _mm256_set1_epi64x(way as i64);
            let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
            // Load everything into registers before the first store.
            let (mut moved, mut n) = ([_mm256_setzero_si256(); 4], 0);
            while n < vectors(N - 1, 4) {
                let at = start::<N, 4>(1, n);
                let stays = _mm256_cmpgt_epi64(_mm256_add_epi64(lanes, _mm256_set1_epi64x(at as i64)), last_moved);
                moved[n] = _mm256_blendv_epi8(load_words(set, at - 1), load_words(set, at), stays);
                n += 1;
            }
            n = 0;
            while n < vectors(N - 1, 4) {
                store_words(set, start::<N, 4>(1, n), moved[n]);
                n += 1;
            }
            set[0] = word;
        }
    }

    #[inline(always)]
    fn push_word_to_front<const N: usize>(set: &mut [u64; N], word: u64) -> u64 {
        let out = set[N - 1];
        if N < 4 {
            return Portable::push_word_to_front(set, word);
        }
        // SAFETY: as in `position`.
        unsafe {
            if N == 4 {
                // Words 3, 0, 1, 2.
                let moved = _mm256_permute4x64_epi64::<0b10_01_00_11>(load_words(set, 0));
                let first = _mm256_set1_epi64x(word as i64);
                store_words(set, 0, _mm256_blend_epi32::<0b11>(moved, first));
                return out;
            }
            let (mut moved, mut n) = ([_mm256_setzero_si256(); 4], 0);
            while n < vectors(N - 1, 4) {
                moved[n] = load_words(set, start::<N, 4>(1, n) - 1);
                n += 1;
            }
            n = 0;
            while n < vectors(N - 1, 4) {
                store_words(set, start::<N, 4>(1, n), moved[n]);
                n += 1;
            }
            set[0] = word;
            out
        }
    }
}

/// `words` with `word` as the first.
#[inline(always)]
fn with_first(words: __m256i, word: u32) -> __m256i {
    // SAFETY: as in `position`.
    unsafe { _mm256_blend_epi32::<1>(words, _mm256_set1_epi32(word as i32)) }
}

#[inline(always)]
fn with_first4(words: __m128i, word: u32) -> __m128i {
    // SAFETY: SSE is part of every x86-64.
    unsafe { _mm_castps_si128(_mm_move_ss(_mm_castsi128_ps(words), _mm_castsi128_ps(_mm_cvtsi32_si128(word as i32)))) }
}
