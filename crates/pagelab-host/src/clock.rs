//! The rate of the core's clock, in which all cycles of this crate are.
//!
//! Models: nothing. It times [`CHAINS`], instructions of which each needs the result of the one before. The latency of
//! each is the same on nearly all x86-64 cores, so the time of a chain gives the rate at which the core runs now, turbo
//! included. The time-stamp counter runs at another rate, which does not change.
//! Source: latencies are those of A. Fog, "Instruction tables", and of uops.info.
//! Parameters: none.
//! Deviations: no single chain can be trusted. Cores from Golden Cove on (Intel, 2021) carry out additions of small
//! immediates and `inc` while they rename registers, up to six per cycle, so such a chain tells a rate of 12 to 20 GHz.
//! Bulldozer and some Atoms take 4 or 5 cycles for a multiplication. So a rate counts only if most chains agree on it
//! ([`agree`]).
//!
//! Why `unsafe`: the instructions are in assembly, so that no compiler folds them.
#![allow(unsafe_code)]

use std::{arch::asm, fmt, fs, io, ops::RangeInclusive};

use serde::Serialize;

use crate::sys;

/// Rates of the cores that there are, in cycles per nanosecond: from one that saves power to above the fastest that is
/// sold.
pub const PLAUSIBLE: RangeInclusive<f64> = 0.4..=8.0;
/// Chains agree if their rates differ by no more than this factor.
const AGREEMENT: f64 = 1.1;
/// Cycles of one chain in a round: a tenth of a millisecond or so.
const CYCLES: usize = 400_000;
/// Rounds, in each of which every chain is timed. The lower quartile of each chain counts, as interruptions only add
/// time.
const ROUNDS: usize = 41;
/// The clock may change its rate while the chains are timed. Then they are timed again.
const ATTEMPTS: usize = 3;

/// The rate of the clock, as several chains tell it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// The rate, in cycles per nanosecond of this thread's CPU time.
    pub cycles_per_nanosecond: f64,
    /// How far it may be off: half of what the chains that agree differ by, as a share of the rate.
    pub uncertainty: f64,
}

/// A rate that the processor or the kernel states. Virtual machines often state none, or one that is not the host's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatedRate {
    /// Where it is from, and what it is.
    pub source: &'static str,
    /// The rate, in cycles per nanosecond.
    pub cycles_per_nanosecond: f64,
}

/// One kind of instruction, each of which needs the result of the one before.
struct Chain {
    name: &'static str,
    /// Cycles of one instruction.
    latency: usize,
    /// Runs at least so many instructions, and says how many.
    run: fn(usize) -> usize,
}

/// Repeats eight instructions, which change `{0}` and read `{1}`, an odd number.
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

/// Instructions that no core carries out while it renames registers. Loads are not among them: their latency is 3 to 5
/// cycles.
const CHAINS: [Chain; 4] = [
    chain!("additions of registers", 1, "add {0}, {1}"),
    chain!("exclusive or", 1, "xor {0}, {1}"),
    chain!("rotations", 1, "rol {0}, 7 // {1}"),
    chain!("multiplications", 3, "imul {0:e}, {1:e}"),
];

/// The rate of this core's clock; takes about 20 ms.
///
/// # Errors
/// If the chains do not agree on a rate, or on one that no processor has. Each error says what each chain told.
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

/// The rate on which most chains agree: the median of the largest group whose rates differ by less than 10 %.
///
/// Takes each chain's name and the rate that it tells, in cycles per nanosecond.
///
/// # Errors
/// If no group has more than half of the chains, or its rate is not plausible.
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

/// Why the rate of the clock is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum ClockError {
    /// Fewer than half of the chains agree; these are their rates in cycles per nanosecond.
    Disagreement(Vec<(String, f64)>),
    /// They agree on a rate that no processor has.
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
        let told: Vec<_> = chains.iter().map(|(name, rate)| format!("{name} {rate:.2} GHz")).collect();
        write!(f, "{}", told.join(", "))
    }
}

impl std::error::Error for ClockError {}

/// What the processor and the kernel state about the clock, as far as they state anything.
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

/// CPUID's leaf 16H (Intel SDM volume 2): base and highest frequency in MHz, 0 where nothing is stated.
fn frequencies_of_cpuid() -> Option<[(&'static str, f64); 2]> {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x16;
    // SAFETY: every x86-64 processor has CPUID; the leaf is asked for only if it is there. Newer versions of Rust have
    // the intrinsic as a safe function.
    #[allow(unused_unsafe)]
    let leaf = unsafe { (__cpuid(0).eax >= LEAF).then(|| __cpuid(LEAF)) }?;
    let gigahertz = |megahertz: u32| f64::from(megahertz & 0xffff) / 1e3;
    Some([("cpuid, the highest frequency", gigahertz(leaf.ebx)), ("cpuid, the base frequency", gigahertz(leaf.eax))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rates: &[(&str, f64)]) -> Result<Clock, ClockError> {
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

    /// Sapphire Rapids: `add` of an immediate is carried out at rename, and so is `inc`.
    #[test]
    fn chains_that_a_core_does_not_carry_out_are_outvoted() {
        let chains =
            [("immediates", 20.09), ("registers", 3.9), ("xor", 3.75), ("multiplications", 3.85), ("inc", 19.0)];
        let clock = told(&chains).unwrap();
        assert_eq!(clock.cycles_per_nanosecond, 3.85);
        assert!((clock.uncertainty - 0.15 / 2.0 / 3.85).abs() < 1e-9);
    }

    /// A core that takes four cycles to multiply makes that chain look slow.
    #[test]
    fn a_chain_of_another_latency_is_outvoted() {
        let clock = told(&[("a", 3.0), ("b", 3.06), ("c", 2.98), ("multiplications", 2.25)]).unwrap();
        assert_eq!(clock.cycles_per_nanosecond, 3.0);
    }

    #[test]
    fn half_of_the_chains_are_no_majority() {
        let error = told(&[("a", 3.0), ("b", 3.0), ("c", 12.0), ("d", 12.1)]).unwrap_err();
        assert!(matches!(error, ClockError::Disagreement(_)));
        assert!(error.to_string().contains("a 3.00 GHz, b 3.00 GHz, c 12.00 GHz, d 12.10 GHz"), "{error}");
        assert!(told(&[("a", 1.0), ("b", 2.0), ("c", 4.0)]).is_err());
        assert!(told(&[]).is_err());
        assert!(told(&[("a", f64::NAN), ("b", f64::INFINITY)]).is_err());
    }

    #[test]
    fn a_rate_that_no_core_has_is_refused() {
        for rate in [0.3, 11.959, 20.09] {
            let error = told(&[("a", rate), ("b", rate), ("c", rate)]).unwrap_err();
            assert!(matches!(error, ClockError::Implausible(..)), "{error}");
            assert!(error.to_string().contains("cores run at 0.4 to 8 GHz"), "{error}");
        }
    }

    #[test]
    fn what_is_stated_is_a_rate() {
        assert!(stated().iter().all(|rate| rate.cycles_per_nanosecond > 0.0));
    }
}
