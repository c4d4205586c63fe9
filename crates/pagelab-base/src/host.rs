//! What the host's processor and kernel offer beyond safe Rust: SIMD comparisons, prefetch, and large pages.
//!
//! Why `unsafe`: in stable Rust, SIMD and prefetch are intrinsics that are unsafe to call from a function compiled for
//! any processor. The compiler's own vectoriser leaves the comparison scalar: a stream of misses through three levels
//! then executes 670 instructions per access instead of 400 (callgrind). The prefetch hides the latency of the
//! simulator's own tables in a uniformly random stream over 8 GiB (example `cache_rates`).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub mod avx2;

/// A piece of work that is compiled for several instruction sets.
pub trait VectorWork {
    /// What [`Self::run`] returns.
    type Output;

    /// Does the work. Mark it and everything that it calls often as inline.
    fn run<V: Vectors>(self) -> Self::Output;
}

/// Operations on a set of `N` words in recency order.
pub trait Vectors: 'static {
    /// Does work that is compiled for this instruction set.
    fn run<W: VectorWork>(work: W) -> W::Output;

    /// The way of `wanted`.
    fn position_of_word<const N: usize>(words: &[u64; N], wanted: u64) -> Option<usize>;
    /// Puts the word at `way` in front; those before it move back by one.
    fn move_word_to_front<const N: usize>(set: &mut [u64; N], way: usize);
    /// Puts `word` in front, moves all others back by one, and returns the one that falls off the end.
    fn push_word_to_front<const N: usize>(set: &mut [u64; N], word: u64) -> u64;

    /// The first of `words` that equals `wanted` in the bits of `mask`.
    fn position<const N: usize>(words: &[u32; N], wanted: u32, mask: u32) -> Option<usize>;
    /// Puts `word` in front; the words before `way` move back by one, onto the one at `way`.
    fn move_to_front<const N: usize>(set: &mut [u32; N], way: usize, word: u32);
    /// Puts `word` in front, moves all others back by one, and returns the one that falls off the end.
    fn push_front<const N: usize>(set: &mut [u32; N], word: u32) -> u32;
}

/// Vectors that every processor of the target architecture supports.
pub struct Portable;

impl Vectors for Portable {
    #[inline(always)]
    fn run<W: VectorWork>(work: W) -> W::Output {
        work.run::<Self>()
    }

    #[inline(always)]
    fn position_of_word<const N: usize>(words: &[u64; N], wanted: u64) -> Option<usize> {
        let mut matches = 0_u32;
        for (way, &word) in words.iter().enumerate() {
            matches |= u32::from(word == wanted) << way;
        }
        (matches != 0).then(|| matches.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn move_word_to_front<const N: usize>(set: &mut [u64; N], way: usize) {
        let old = *set;
        set[0] = old[way];
        for at in 1..N {
            set[at] = if at <= way { old[at - 1] } else { old[at] };
        }
    }

    #[inline(always)]
    fn push_word_to_front<const N: usize>(set: &mut [u64; N], word: u64) -> u64 {
        let out = set[N - 1];
        set.copy_within(..N - 1, 1);
        set[0] = word;
        out
    }

    #[inline(always)]
    fn position<const N: usize>(words: &[u32; N], wanted: u32, mask: u32) -> Option<usize> {
        position(words, wanted, mask)
    }

    #[inline(always)]
    fn move_to_front<const N: usize>(set: &mut [u32; N], way: usize, word: u32) {
        shift_back(set, way, word);
    }

    #[inline(always)]
    fn push_front<const N: usize>(set: &mut [u32; N], word: u32) -> u32 {
        let out = set[N - 1];
        shift_back(set, N - 1, word);
        out
    }
}

/// Asks the host to back a large array that is read at random with large pages. Without them the simulator spends much
/// of its time in the host's page walks: GUPS over 2 GiB under `hashed-compact`, whose table is 1 GiB, replays a third
/// faster with them. A host without large pages leaves the array as it is. Call it before the first write to the array.
pub fn prefer_large_pages<T>(words: &mut [T]) {
    #[cfg(target_os = "linux")]
    advise_of_large_pages(words, libc::MADV_HUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = words;
}

/// Asks the host to back a large array with small pages, since little of it will be written to. Call it before the
/// first write to the array.
pub fn prefer_small_pages<T>(words: &mut [T]) {
    #[cfg(target_os = "linux")]
    advise_of_large_pages(words, libc::MADV_NOHUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = words;
}

#[cfg(target_os = "linux")]
fn advise_of_large_pages<T>(words: &mut [T], advice: libc::c_int) {
    const LARGE: usize = 2 << 20;
    let (start, end) = (words.as_ptr_range().start as usize, words.as_ptr_range().end as usize);
    let (first, last) = (start.next_multiple_of(LARGE), end / LARGE * LARGE);
    if first < last {
        // SAFETY: the range lies inside the array, and this advice changes no contents.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, advice) };
    }
}

/// Asks the host to fetch the line that contains `words[at]`; does nothing if there is no such word. It changes no
/// simulated state.
#[inline(always)]
pub fn prefetch<T>(words: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(word) = words.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the pointer comes from a live reference, and a prefetch neither reads nor writes as far as the
        // program can tell. SSE is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, at);
}

/// The first of `words` that equals `wanted` in the bits of `mask`. `N` is a multiple of 4 up to 32.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn position<const N: usize>(words: &[u32; N], wanted: u32, mask: u32) -> Option<usize> {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_movemask_ps,
        _mm_or_si128, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_setzero_si128,
    };
    const { assert!(N.is_multiple_of(4) && N <= 32) };
    let (quads, _) = words.as_chunks::<4>();
    // SAFETY: SSE2 is part of every x86-64, and each load reads the four words of a live chunk, at any alignment.
    unsafe {
        let (wanted, mask) = (_mm_set1_epi32(wanted as i32), _mm_set1_epi32(mask as i32));
        let mut equal = [_mm_setzero_si128(); 8];
        for (equal, quad) in equal.iter_mut().zip(quads) {
            *equal = _mm_cmpeq_epi32(_mm_and_si128(_mm_loadu_si128(quad.as_ptr().cast::<__m128i>()), mask), wanted);
        }
        if N == 4 {
            return first_bit(_mm_movemask_ps(_mm_castsi128_ps(equal[0])) as u32);
        }
        // Saturating packs keep 0 and −1, so 16 comparisons become 16 bytes and then 16 bits.
        let sixteen = |first: usize| {
            let low = _mm_packs_epi32(equal[first], equal[first + 1]);
            let high = if first + 2 < N / 4 {
                _mm_packs_epi32(equal[first + 2], equal[first + 3])
            } else {
                _mm_setzero_si128()
            };
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        };
        if N <= 16 {
            return first_bit(sixteen(0));
        }
        // A miss only needs to know that nothing matches, which costs less than finding the position.
        let any = equal[1..N / 4].iter().fold(equal[0], |any, &equal| _mm_or_si128(any, equal));
        if _mm_movemask_epi8(any) == 0 { None } else { first_bit(sixteen(0) | sixteen(4) << 16) }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_bit(bits: u32) -> Option<usize> {
    (bits != 0).then(|| bits.trailing_zeros() as usize)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn position<const N: usize>(words: &[u32; N], wanted: u32, mask: u32) -> Option<usize> {
    words.iter().position(|word| word & mask == wanted)
}

/// Puts `word` in front; the words before `way` move back by one, onto the one at `way`. There is no branch on the
/// unpredictable `way`. The stores are as wide as the loads of a later [`position`], so that the host's store buffer
/// can forward them. `N` is a multiple of 4.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn shift_back<const N: usize>(set: &mut [u32; N], way: usize, word: u32) {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_andnot_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpgt_epi32, _mm_loadu_si128,
        _mm_move_ss, _mm_or_si128, _mm_set1_epi32, _mm_setr_epi32, _mm_shuffle_epi32, _mm_storeu_si128,
    };
    const { assert!(N.is_multiple_of(4)) };
    // SAFETY: SSE2 is part of every x86-64, and each load and store is of the four words of a live chunk, at any
    // alignment.
    unsafe {
        let last_moved = _mm_set1_epi32(way as i32);
        let mut before = _mm_set1_epi32(word as i32);
        for (first, quad) in (0..).step_by(4).zip(set.as_chunks_mut::<4>().0) {
            let old = _mm_loadu_si128(quad.as_ptr().cast());
            // The last word of the previous four, and the first three of these four.
            let last_before = _mm_castsi128_ps(_mm_shuffle_epi32::<0b11_11_11_11>(before));
            let three = _mm_castsi128_ps(_mm_shuffle_epi32::<0b10_01_00_00>(old));
            let moved = _mm_castps_si128(_mm_move_ss(three, last_before));
            let stays = _mm_cmpgt_epi32(_mm_setr_epi32(first, first + 1, first + 2, first + 3), last_moved);
            let new = _mm_or_si128(_mm_and_si128(stays, old), _mm_andnot_si128(stays, moved));
            _mm_storeu_si128(quad.as_mut_ptr().cast(), new);
            before = old;
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn shift_back<const N: usize>(set: &mut [u32; N], way: usize, word: u32) {
    let old = *set;
    for i in 1..N {
        set[i] = if i <= way { old[i - 1] } else { old[i] };
    }
    set[0] = word;
}
