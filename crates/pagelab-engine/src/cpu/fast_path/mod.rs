//! The fast path: accesses that meet nothing unusual, in code that is compiled for the machine.
//!
//! Most accesses hit the TLBs, or miss them and are walked down a way that the page table remembers to a page that is mapped, allows
//! the access and has been marked before. [`core`] makes those, one after the other, in one loop, and stops before the first
//! access that is anything else, with nothing of it changed; the general code ([`super::replay`]) makes that one. The general code does
//! for every system and is the reference: results are the same with the fast path and without (`tests/simulation/fast_path.rs`).
//!
//! [`eligibility`] lists what it can simulate. [`code`] says for which machines the loop is compiled; the choice is made once, when a simulation is made. A [`walker`] is that
//! of one layer on the bare machine whose table remembers ways ([`native`]) or not ([`listed`]), or of a guest on its host ([`nested`]).

mod code;
mod core;
mod eligibility;
mod listed;
mod machine;
mod native;
mod nested;
mod walker;

pub(crate) use code::choose;

#[cfg(test)]
thread_local! {
    /// Accesses of this thread that took the fast path.
    pub(super) static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Results are the same either way (`tests/simulation/fast_path.rs`), so they do not tell whether any access takes this code.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Request, run};

    /// Share of a run's accesses that take the fast path.
    fn taken(source: &str, system: &str, set: &[&str]) -> f64 {
        let request = Request {
            sources: vec![source.to_owned()],
            systems: vec![system.to_owned()],
            machine: Some("kabylake-7700hq".to_owned()),
            set: set.iter().map(|&set| set.to_owned()).collect(),
            threads: Some(1),
            ..Request::default()
        };
        TAKEN.set(0);
        let results = run(&request, &|_| true).unwrap();
        TAKEN.get() as f64 / results.results[0].stats["accesses"] as f64
    }

    #[test]
    fn what_meets_nothing_unusual_takes_it() {
        for system in [
            "radix",
            "radix-eager",
            "radix-5level",
            "radix-ptemagnet",
            "radix-2m",
            "radix-thp",
            "radix-page-walk-cache",
            "radix-coalesced-mmu-cache",
            "radix-unified-translation-cache",
            "flattened",
            "hashed-open",
            "hashed-compact",
            "elastic-cuckoo",
            "nested-radix",
            "nested-radix-thp",
            "nested-radix-unified-translation-cache",
        ] {
            // Of 4096 pages each is touched for the first time once.
            let share = taken("random:size=16MiB,accesses=100K", system, &[]);
            assert!((0.95..1.0).contains(&share), "{system}: {share}");
        }
        for source in ["gups:size=4MiB,updates=40K,threads=2@0-1", "gups:size=4MiB,updates=40K,threads=2@0,4"] {
            assert!(taken(source, "radix", &[]) > 0.9, "{source}");
        }
        assert!(taken("random:size=16MiB,accesses=100K", "radix", &["machine.tlb.l1d.0.ways=2"]) > 0.95, "any machine");
        let window = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;
        assert!(taken("random:size=16MiB,accesses=100K", "radix", &[window]) > 0.95, "a core that overlaps");
    }

    #[test]
    fn other_systems_do_not() {
        let off: &[&str] = &["engine.fast_path=off"];
        for (system, set) in [("radix", off), ("nested-radix-shadow", &[]), ("nested-hashed-compact", &[])] {
            assert_eq!(taken("random:size=16MiB,accesses=40K", system, set), 0.0, "{system} {set:?}");
        }
    }
}
