//! What the host offers and safe Rust has no word for: prefetch, large pages, and code for newer processors than the
//! program was compiled for.
//!
//! Why `unsafe`: a stable compiler offers them only as calls that are. The tables of a program with many lines are
//! larger than the host's caches and TLBs, and each access is a few words of them at random places. `examples/rates.rs`
//! measures it.
#![allow(unsafe_code)]

/// Work to be compiled for what some processors can do.
pub(crate) trait Work {
    type Output;

    /// To be inlined, with all that it calls often.
    fn run(self) -> Self::Output;
}

/// Does the work, with the instructions that this processor has for counting bits and for eight words at once.
#[inline]
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if x86::is_newer() {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::run(work) };
    }
    work.run()
}

/// Asks for the line of an element before it is needed; does nothing beyond the end.
#[inline(always)]
pub(crate) fn prefetch<T>(of: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = of.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
}

/// So many elements of one value, backed by large pages if the host gives any.
pub(crate) fn filled<T: Copy>(count: usize, value: T) -> Vec<T> {
    const LARGE: usize = 2 << 20;
    let mut all = Vec::with_capacity(count);
    let range = all.spare_capacity_mut().as_ptr_range();
    let (first, last) = ((range.start as usize).next_multiple_of(LARGE), range.end as usize / LARGE * LARGE);
    #[cfg(target_os = "linux")]
    if first < last {
        // SAFETY: the range lies inside the memory of the vector, and this advice changes no contents.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
    }
    all.resize(count, value);
    all
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Work;

    #[inline]
    pub fn is_newer() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn run<W: Work>(work: W) -> W::Output {
        work.run()
    }
}
