//! Fenced readings of the time-stamp counter, for work of a few cycles.
//!
//! Why `unsafe`: the instructions exist only as intrinsics whose caller must ensure that the processor supports them.
//! [`Stamps::new`] checks this, so a `Stamps` value allows reading.
#![allow(unsafe_code)]

use std::{
    arch::x86_64::{__cpuid, __rdtscp, _mm_lfence, _rdtsc},
    io,
    time::{Duration, Instant},
};

use crate::{clock, sys};

/// Interval for measuring the counter's rate; the error of two readings is about a microsecond.
const RATE_INTERVAL: Duration = Duration::from_millis(50);

/// Proof that the processor's counter can be read, with its rate.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// Cycles of the core's clock per tick of the counter.
    pub cycles_per_tick: f64,
}

impl Stamps {
    /// Takes a tenth of a second, in which both clocks are compared.
    ///
    /// # Errors
    /// If the processor has no counter of constant rate or no RDTSCP, or if the core's frequency cannot be measured.
    pub fn new() -> io::Result<Self> {
        // Intel SDM volume 2, CPUID: leaf, bit of EDX, its meaning.
        const NEEDED: [(u32, u32, &str); 3] = [
            (0x0000_0001, 4, "a time-stamp counter"),
            (0x8000_0001, 27, "the instruction RDTSCP"),
            (0x8000_0007, 8, "a time-stamp counter of constant rate"),
        ];
        for (leaf, bit, what) in NEEDED {
            // SAFETY: every x86-64 processor has CPUID, and these leaves once it says that they are there. Newer
            // versions of Rust have the intrinsic as a safe function.
            #[allow(unused_unsafe)]
            let has = unsafe { __cpuid(leaf & 0x8000_0000).eax >= leaf && __cpuid(leaf).edx >> bit & 1 == 1 };
            if !has {
                return Err(io::Error::other(format!("it takes {what}, which this processor does not have")));
            }
        }
        let (from, start) = (sys::time_stamp(), Instant::now());
        std::thread::sleep(RATE_INTERVAL);
        let ticks_per_nanosecond = (sys::time_stamp() - from) as f64 / start.elapsed().as_nanos() as f64;
        Ok(Self { cycles_per_tick: clock::measure()?.cycles_per_nanosecond / ticks_per_nanosecond })
    }

    /// Reads the counter after all earlier instructions have completed and before any later one begins.
    #[inline(always)]
    pub fn begin(self) -> u64 {
        // SAFETY: `new` has seen that the counter is there; every x86-64 processor has LFENCE.
        unsafe {
            _mm_lfence();
            let now = _rdtsc();
            _mm_lfence();
            now
        }
    }

    /// Reads the counter after all earlier instructions have completed, except for stores becoming visible.
    #[inline(always)]
    pub fn end(self) -> u64 {
        let mut cpu = 0;
        // SAFETY: as for `begin`; `new` has seen that RDTSCP is there.
        unsafe {
            let now = __rdtscp(&raw mut cpu);
            _mm_lfence();
            now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_longer_than_none() {
        let stamps = Stamps::new().unwrap();
        let least = |work: &dyn Fn()| {
            let timed = |_| {
                let begin = stamps.begin();
                work();
                stamps.end() - begin
            };
            (0..1000).map(timed).min().unwrap()
        };
        let chain =
            || _ = std::hint::black_box((0..1000_u64).fold(1, |x: u64, n| std::hint::black_box(x.wrapping_mul(3) + n)));
        assert!(least(&chain) > least(&|| ()) + 500);
    }
}
