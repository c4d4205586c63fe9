//! The rate of the core's clock, in which all cycles of this crate are.
//!
//! A dependent addition takes one cycle on every x86-64 core (A. Fog, "Instruction tables"). So a chain of them, timed, tells the
//! rate at which the core runs now, boosts included. The time-stamp counter has another one, which does not change.
//!
//! Why `unsafe`: the additions are in assembly, so that no compiler folds them.
#![allow(unsafe_code)]

use std::arch::asm;

use crate::sys;

/// Additions of a stretch: a quarter of a millisecond.
const ADDITIONS: usize = 800_000;
/// Stretches, of which the lower quartile counts: interruptions only add to them.
const STRETCHES: usize = 101;

/// Cycles of the core's clock per nanosecond of this thread's CPU time; takes about 30 ms.
pub fn cycles_per_nanosecond() -> f64 {
    let mut times: Vec<_> = (0..STRETCHES).map(|_| stretch(ADDITIONS)).collect();
    times.sort_by(f64::total_cmp);
    ADDITIONS as f64 / times[STRETCHES / 4]
}

/// Nanoseconds of so many additions, each to the result of the one before.
fn stretch(additions: usize) -> f64 {
    let (mut sum, begin) = (0_u64, sys::thread_cpu_time());
    for _ in 0..additions / 8 {
        // SAFETY: it adds to a register and reads no memory.
        unsafe {
            asm!("add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1",
                 "add {0}, 1", inout(reg) sum, options(nomem, nostack));
        }
    }
    std::hint::black_box(sum);
    (sys::thread_cpu_time() - begin).as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_twice_as_long_takes_twice_as_long() {
        let least = |additions| (0..200).map(|_| stretch(additions)).fold(f64::INFINITY, f64::min);
        let ratio = least(2 * ADDITIONS) / least(ADDITIONS);
        assert!((1.6..2.5).contains(&ratio), "{ratio}");
    }

    /// From the slowest core that saves power to the fastest there is.
    #[test]
    fn the_clock_is_one_of_a_core() {
        let rate = cycles_per_nanosecond();
        assert!((0.4..8.0).contains(&rate), "{rate}");
    }
}
