//! What the host offers beyond safe Rust: prefetch, large pages, and code for newer processors than the build target.
//!
//! Why `unsafe`: in stable Rust these are unsafe calls. The tables of a program with many lines are larger than the
//! host's caches and TLBs, and each access reads a few of their words at random. `examples/rates.rs` measures it.
#![allow(unsafe_code)]

/// A piece of work that is compiled for several instruction sets.
pub(crate) trait Work {
    type Output;

    /// Does the work. Mark it and everything that it calls often as inline.
    fn run(self) -> Self::Output;
}

/// Does the work, with the processor's instructions for bit counts and for vectors of eight words if it has them.
#[inline]
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if x86::is_newer() {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::run(work) };
    }
    work.run()
}

/// Prefetches the line of an element; does nothing beyond the end.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
}

/// A vector of equal elements, backed by large pages if the host has any.
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
