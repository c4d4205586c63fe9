//! The frequency of the core's clock; all cycles in this crate are cycles of that clock.
//!
//! Models: nothing. It times [`CHAINS`]: sequences of instructions that each need the result of the previous one. The
//! latency of each instruction is the same on nearly all x86-64 cores, so the time of a chain gives the core's current
//! frequency, including turbo. The time-stamp counter runs at another, constant frequency.
//! Source: latencies are those of A. Fog, "Instruction tables", and of uops.info.
//! Parameters: none.
//! Deviations: no single chain can be trusted. Cores from Golden Cove on (Intel, 2021) execute additions of small
//! immediates and `inc` during register renaming, up to six per cycle, so such a chain would yield 12 to 20 GHz. On
//! Bulldozer and some Atoms a multiplication takes 4 or 5 cycles. So a frequency counts only if most chains agree on it
//! ([`agree`]).
//!
//! Why `unsafe`: the instructions are in assembly, so that no compiler optimises them away.
#![allow(unsafe_code)]

use std::{arch::asm, fmt, fs, io, ops::RangeInclusive};

use serde::Serialize;

use crate::sys;

/// Plausible frequencies of cores, in cycles per nanosecond: from power-saving ones to above the fastest on the market.
pub const PLAUSIBLE: RangeInclusive<f64> = 0.4..=8.0;
/// Chains agree if their rates differ by no more than this factor.
const AGREEMENT: f64 = 1.1;
/// Cycles of one chain in a round: a tenth of a millisecond or so.
const CYCLES: usize = 400_000;
/// Rounds, in each of which every chain is timed. The lower quartile of each chain counts, since interruptions only add
/// time.
const ROUNDS: usize = 41;
/// If the clock changes its frequency meanwhile, all chains are timed again.
const ATTEMPTS: usize = 3;

/// The clock's frequency, as several chains measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// The rate, in cycles per nanosecond of this thread's CPU time.
    pub cycles_per_nanosecond: f64,
    /// Relative uncertainty: half of the range of the agreeing chains' frequencies, divided by the frequency.
    pub uncertainty: f64,
}

/// A frequency that the processor or the kernel reports. Virtual machines often report none, or one that is not the
/// host's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatedRate {
    /// Where it was reported, and its meaning.
    pub source: &'static str,
    /// The rate, in cycles per nanosecond.
    pub cycles_per_nanosecond: f64,
}

/// One kind of instruction, repeated so that each needs the result of the previous one.
struct Chain {
    name: &'static str,
    /// Cycles of one instruction.
    latency: usize,
    /// Executes at least this many instructions; returns how many.
    run: fn(usize) -> usize,
}

/// Repeats eight instructions that change `{0}` and read `{1}`, an odd number.
macro_rules! chain {
    ($name:literal, $latency:literal, $instruction:literal) => {
        Chain {
            name: $name,
            latency: $latency,
            run: |instructions| {
                let (mut value, other, turns) = (std::hint::black_box(3_u64), std::hint::black_box(5_u64), instructions / 8);
                for _ in 0..turns {
                    // SAFETY: the instructions change a register and read no memory.
                    unsafe {
                        asm!($instruction, $instruction, $instruction, $instruction, $instruction, $instruction, $instruction,
                             $instruction, inout(reg) value, in(reg) other, options(nomem, nostack));
                    }
                }
                std::hint::black_box(value);
                8 * turns
            },
        }
    };
}

/// Instructions that no core executes during register renaming. Loads are excluded: their latency is 3 to 5 cycles.
const CHAINS: [Chain; 4] = [
    chain!("additions of registers", 1, "add {0}, {1}"),
    chain!("exclusive or", 1, "xor {0}, {1}"),
    chain!("rotations", 1, "rol {0}, 7 // {1}"),
    chain!("multiplications", 3, "imul {0:e}, {1:e}"),
];

/// Measures the frequency of this core's clock; takes about 20 ms.
///
/// # Errors
/// If the chains disagree, or agree on an implausible frequency. Each error contains every chain's frequency.
pub fn measure() -> io::Result<Clock> {
    let mut result = attempt();
    for _ in 1..ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = attempt();
    }
    result.map_err(io::Error::other)
}

fn attempt() -> Result<Clock, ClockError> {
    let mut times: [Vec<f64>; CHAINS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (chain, times) in CHAINS.iter().zip(&mut times) {
            times.push(nanoseconds_per_cycle(chain, CYCLES));
        }
    }
    let rates = CHAINS.iter().zip(&mut times).map(|(chain, times)| {
        times.sort_by(f64::total_cmp);
        (chain.name.to_owned(), 1.0 / times[ROUNDS / 4])
    });
    agree(&rates.collect::<Vec<_>>())
}

fn nanoseconds_per_cycle(chain: &Chain, cycles: usize) -> f64 {
    let begin = sys::thread_cpu_time();
    let instructions = (chain.run)(cycles / chain.latency);
    (sys::thread_cpu_time() - begin).as_nanos() as f64 / (instructions * chain.latency) as f64
}

/// The frequency on which most chains agree: the median of the largest group whose frequencies differ by less than 10
/// %.
///
/// Takes each chain's name and its frequency in cycles per nanosecond.
///
/// # Errors
/// If no group has more than half of the chains, or its frequency is implausible.
pub fn agree(chains: &[(String, f64)]) -> Result<Clock, ClockError> {
    let mut rates: Vec<_> = chains.iter().map(|(_, rate)| *rate).filter(|rate| rate.is_finite()).collect();
    rates.sort_by(f64::total_cmp);
    let group_from = |first: usize| {
        let end = rates.partition_point(|&rate| rate <= rates[first] * AGREEMENT);
        &rates[first..end.max(first)]
    };
    let group = (0..rates.len()).map(group_from).max_by_key(|group| group.len()).unwrap_or_default();
    if group.len() * 2 <= chains.len() {
        return Err(ClockError::Disagreement(chains.to_vec()));
    }
    let rate = f64::midpoint(group[(group.len() - 1) / 2], group[group.len() / 2]);
    if !PLAUSIBLE.contains(&rate) {
        return Err(ClockError::Implausible(rate, chains.to_vec()));
    }
    let uncertainty = (group[group.len() - 1] - group[0]) / 2.0 / rate;
    Ok(Clock { cycles_per_nanosecond: rate, uncertainty })
}

/// Why the clock's frequency is unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum ClockError {
    /// Fewer than half of the chains agree; these are their rates in cycles per nanosecond.
    Disagreement(Vec<(String, f64)>),
    /// They agree on an implausible frequency.
    Implausible(f64, Vec<(String, f64)>),
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chains = match self {
            Self::Disagreement(chains) => {
                write!(f, "the rate of the core's clock is not known, since chains of instructions disagree on it: ")?;
                chains
            }
            Self::Implausible(rate, chains) => {
                let (least, most) = (PLAUSIBLE.start(), PLAUSIBLE.end());
                write!(f, "the core's clock seems to run at {rate:.3} GHz, and cores run at {least} to {most} GHz: ")?;
                chains
            }
        };
        let rates: Vec<_> = chains.iter().map(|(name, rate)| format!("{name} {rate:.2} GHz")).collect();
        write!(f, "{}", rates.join(", "))
    }
}

impl std::error::Error for ClockError {}

/// Frequencies that the processor and the kernel report, if any.
pub fn stated() -> Vec<StatedRate> {
    const CPUFREQ: [(&str, &str); 2] = [
        ("sysfs, the highest frequency", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
        ("sysfs, the base frequency", "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency"),
    ];
    let kilohertz = |path| fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
    let from_kernel = CPUFREQ.into_iter().filter_map(|(source, path)| Some((source, kilohertz(path)? / 1e6)));
    let from_processor = frequencies_of_cpuid().into_iter().flatten();
    from_processor
        .chain(from_kernel)
        .filter(|&(_, rate)| rate > 0.0)
        .map(|(source, cycles_per_nanosecond)| StatedRate { source, cycles_per_nanosecond })
        .collect()
}

/// CPUID's leaf 16H (Intel SDM volume 2): base and highest frequency in MHz, 0 if not reported.
fn frequencies_of_cpuid() -> Option<[(&'static str, f64); 2]> {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x16;
    // SAFETY: every x86-64 processor has CPUID; the leaf is read only if it exists. Newer versions of Rust have the
    // intrinsic as a safe function.
    #[allow(unused_unsafe)]
    let leaf = unsafe { (__cpuid(0).eax >= LEAF).then(|| __cpuid(LEAF)) }?;
    let gigahertz = |megahertz: u32| f64::from(megahertz & 0xffff) / 1e3;
    Some([("cpuid, the highest frequency", gigahertz(leaf.ebx)), ("cpuid, the base frequency", gigahertz(leaf.eax))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_from(rates: &[(&str, f64)]) -> Result<Clock, ClockError> {
        agree(&rates.iter().map(|&(name, rate)| (name.to_owned(), rate)).collect::<Vec<_>>())
    }

    #[test]
    fn a_chain_twice_as_long_takes_twice_as_long() {
        for chain in &CHAINS {
            let least = |cycles: usize| {
                let times = (0..100).map(|_| nanoseconds_per_cycle(chain, cycles) * cycles as f64);
                times.fold(f64::INFINITY, f64::min)
            };
            let ratio = least(2 * CYCLES) / least(CYCLES);
            assert!((1.6..2.5).contains(&ratio), "{}: {ratio}", chain.name);
        }
    }

    #[test]
    fn the_clock_is_one_of_a_core() {
        let clock = measure().unwrap();
        assert!(PLAUSIBLE.contains(&clock.cycles_per_nanosecond), "{clock:?}");
        assert!((0.0..AGREEMENT - 1.0).contains(&clock.uncertainty), "{clock:?}");
    }

    /// Sapphire Rapids executes `add` of an immediate, and `inc`, at rename.
    #[test]
    fn chains_that_a_core_does_not_carry_out_are_outvoted() {
        let chains =
            [("immediates", 20.09), ("registers", 3.9), ("xor", 3.75), ("multiplications", 3.85), ("inc", 19.0)];
        let clock = clock_from(&chains).unwrap();
        assert_eq!(clock.cycles_per_nanosecond, 3.85);
        assert!((clock.uncertainty - 0.15 / 2.0 / 3.85).abs() < 1e-9);
    }

    /// A core whose multiplication takes four cycles makes that chain look slow.
    #[test]
    fn a_chain_of_another_latency_is_outvoted() {
        let clock = clock_from(&[("a", 3.0), ("b", 3.06), ("c", 2.98), ("multiplications", 2.25)]).unwrap();
        assert_eq!(clock.cycles_per_nanosecond, 3.0);
    }

    #[test]
    fn half_of_the_chains_are_no_majority() {
        let error = clock_from(&[("a", 3.0), ("b", 3.0), ("c", 12.0), ("d", 12.1)]).unwrap_err();
        assert!(matches!(error, ClockError::Disagreement(_)));
        assert!(error.to_string().contains("a 3.00 GHz, b 3.00 GHz, c 12.00 GHz, d 12.10 GHz"), "{error}");
        assert!(clock_from(&[("a", 1.0), ("b", 2.0), ("c", 4.0)]).is_err());
        assert!(clock_from(&[]).is_err());
        assert!(clock_from(&[("a", f64::NAN), ("b", f64::INFINITY)]).is_err());
    }

    #[test]
    fn a_rate_that_no_core_has_is_refused() {
        for rate in [0.3, 11.959, 20.09] {
            let error = clock_from(&[("a", rate), ("b", rate), ("c", rate)]).unwrap_err();
            assert!(matches!(error, ClockError::Implausible(..)), "{error}");
            assert!(error.to_string().contains("cores run at 0.4 to 8 GHz"), "{error}");
        }
    }

    #[test]
    fn what_is_stated_is_a_rate() {
        assert!(stated().iter().all(|rate| rate.cycles_per_nanosecond > 0.0));
    }
}
