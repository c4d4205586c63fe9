//! Compares every point of a curve with a list in order of use, for random programs.

use pagelab_mrc::{Analysis, Curve, Options, Sampling, Stream, analyse};
use pagelab_trace::{
    Access, AccessKind, Batch, Event, EventKind, Maker, ProcessIx, Source, SourceInfo, ThreadIx, TraceError, cases,
};
use proptest::prelude::*;

/// One step of a program.
#[derive(Clone, Debug)]
enum Step {
    Access {
        process: u32,
        access: Access,
    },
    /// Unmaps `pages` pages of 4 KiB.
    Unmap {
        process: u32,
        page: u64,
        pages: u64,
    },
    Exit {
        process: u32,
    },
}

struct Steps {
    info: SourceInfo,
    batches: std::vec::IntoIter<Batch>,
}

impl Source for Steps {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        *batch = self.batches.next().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

fn source(steps: &[Step]) -> Steps {
    let event =
        |process: u32, kind| Event { position: 0, process: ProcessIx(process), thread: ThreadIx(process), kind };
    let mut batches = Vec::new();
    for steps in steps.chunks(700) {
        let mut batch = Batch::default();
        for process in 0..3 {
            batch.push_event(event(process, EventKind::ThreadStart { os_tid: process }));
        }
        for step in steps {
            match *step {
                Step::Access { process, access } => {
                    batch.accesses.push(access);
                    batch.close_run(ThreadIx(process));
                }
                Step::Unmap { process, page, pages } => {
                    batch.push_event(event(process, EventKind::Munmap { addr: page << 12, len: pages << 12 }));
                }
                Step::Exit { process } => batch.push_event(event(process, EventKind::Exit { code: 0 })),
            }
        }
        batches.push(batch);
    }
    let info = SourceInfo {
        name: "steps".to_owned(),
        accesses: None,
        threads: 1,
        mappings_inferred: false,
        sampled: false,
        sampling: None,
        dependencies: false,
        branches: false,
        content_hash: None,
    };
    Steps { info, batches: batches.into_iter() }
}

fn curves(steps: &[Step], sampling: Sampling) -> Analysis {
    let options = Options {
        page_bytes: vec![2 << 20, 4096, 65536],
        line_bytes: Some(64),
        sampling,
        seed: 1,
        max_accesses: None,
        sizes: (1..=400).collect(),
        ways: None,
    };
    analyse(&mut source(steps), &options, &mut |_| true).unwrap()
}

/// The look-ups of a stream for an access, as byte ranges in order.
fn looked_up(stream: Stream, access: &Access) -> Vec<(u64, u64)> {
    let (data, fetch) = (stream != Stream::CodeTlb, access.kind == AccessKind::Fetch);
    let mut all = Vec::new();
    if data && !fetch {
        all.push((access.vaddr, access.vaddr + u64::from(access.size_bytes) - 1));
    } else if !data {
        all.extend((access.pc != 0 && !access.maker.is_kernel()).then_some((access.pc, access.pc)));
        all.extend(fetch.then_some((access.vaddr, access.vaddr)));
    }
    all
}

/// Misses of a cache with `size` entries; invalidated entries are free.
fn naive(steps: &[Step], curve: &Curve, size: usize) -> u64 {
    let (mut held, mut misses) = (Vec::<(u32, u32, u64)>::new(), 0);
    let mut lives = [0_u32; 3];
    let granule = curve.granule_bytes;
    for step in steps {
        match step {
            Step::Access { process, access } => {
                for (first, last) in looked_up(curve.stream, access) {
                    for page in first / granule..=last / granule {
                        let page = (*process, lives[*process as usize], page);
                        match held.iter().position(|other| *other == page) {
                            Some(at) => _ = held.remove(at),
                            None => misses += 1,
                        }
                        held.insert(0, page);
                        held.truncate(size);
                    }
                }
            }
            Step::Unmap { process, page, pages } => {
                // Both the first and the last byte of a page are invalidated.
                let gone = |byte: u64| (page << 12..(page + pages) << 12).contains(&byte);
                held.retain(|(owner, _, held)| {
                    owner != process || !gone(held * granule) || !gone((held + 1) * granule - 1)
                });
            }
            Step::Exit { process } => {
                held.retain(|(owner, _, _)| owner != process);
                lives[*process as usize] += 1;
            }
        }
    }
    misses
}

fn access() -> impl Strategy<Value = Access> {
    let place = prop_oneof![
        // A few lines, lines that cross into the next page, pages, and large pages.
        4 => (0..40_u64).prop_map(|at| at * 24),
        2 => (1..30_u64, 0..64_u64).prop_map(|(page, at)| page * 4096 - 32 + at),
        3 => (0..200_u64, 0..4_u64).prop_map(|(page, at)| page * 4096 + at * 64),
        2 => (0..40_u64, 0..3_u64).prop_map(|(page, at)| (page << 21) + (at << 12)),
    ];
    let kind = prop_oneof![
        5 => Just(AccessKind::Load), 3 => Just(AccessKind::Store), 1 => Just(AccessKind::Modify), 1 => Just(AccessKind::Fetch)
    ];
    let size = prop_oneof![6 => Just(8_u16), 1 => 1..=4096_u16];
    (place, kind, size, 0..20_u64, 0..4_u32, 0..10_u8).prop_map(|(vaddr, kind, size_bytes, code, gap, by)| Access {
        vaddr,
        pc: code * 0x3000,
        gap,
        size_bytes,
        kind,
        maker: Maker::kernel_if(by == 0),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (prop_oneof![8 => Just(0_u32), 1 => Just(1), 1 => Just(2)], access())
            .prop_map(|(process, access)| Step::Access { process, access }),
        2 => (0..3_u32, 0..200_u64, prop_oneof![3 => 1..8_u64, 2 => 500..1500_u64, 1 => Just(1 << 40)])
            .prop_map(|(process, page, pages)| Step::Unmap { process, page, pages }),
        1 => (0..3_u32).prop_map(|process| Step::Exit { process }),
    ]
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let found = curves(steps, Sampling::All);
    prop_assert_eq!(found.curves.len(), 7);
    for curve in &found.curves {
        for (at, &size) in curve.sizes.iter().enumerate() {
            let misses = naive(steps, curve, size as usize);
            let place = (curve.stream, curve.granule_bytes, size);
            prop_assert_eq!((place, curve.misses[at]), (place, misses));
            prop_assert_eq!((curve.least_misses[at], curve.most_misses[at]), (misses, misses));
            // Larger caches have no fewer misses.
            if size > curve.first_references {
                break;
            }
        }
        prop_assert_eq!(curve.first_references, naive(steps, curve, usize::MAX));
    }
    // A sample of all pages is exact.
    for sampling in [Sampling::Rate(1.0), Sampling::Pages(1 << 20)] {
        for (curve, sampled) in found.curves.iter().zip(curves(steps, sampling).curves) {
            prop_assert_eq!(&curve.misses, &sampled.misses);
            prop_assert_eq!(&curve.most_misses, &sampled.most_misses);
            prop_assert_eq!(&curve.least_misses, &sampled.least_misses);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn curves_are_those_of_a_list(steps in prop::collection::vec(step(), 1..1200)) {
        check(&steps)?;
    }

    /// Without events there are no holes, which takes a separate path in the code.
    #[test]
    fn curves_without_events_are_those_of_a_list(accesses in prop::collection::vec(access(), 1..1200)) {
        check(&accesses.into_iter().map(|access| Step::Access { process: 0, access }).collect::<Vec<_>>())?;
    }
}

/// Long enough that stamps are renumbered many times, with holes in between.
#[test]
fn long_programs_are_those_of_a_list() {
    let mut rng = pagelab_trace::rng::Rng::new(7, "long programs");
    let mut steps = Vec::new();
    for at in 0..60_000 {
        let page = if rng.below(4) == 0 { rng.below(300) } else { rng.below(40) };
        let process = u32::from(rng.below(50) == 0);
        steps.push(Step::Access { process, access: Access::new(AccessKind::Load, page << 12 | (page & 7) << 6, 8) });
        if at % 900 == 0 {
            steps.push(Step::Unmap { process, page: rng.below(200), pages: 1 + rng.below(60) });
        }
    }
    let found = curves(&steps, Sampling::All);
    for curve in found.curves.iter().filter(|curve| curve.stream != Stream::CodeTlb && curve.granule_bytes <= 4096) {
        for size in [1, 2, 7, 39, 40, 41, 100, 250, 301] {
            let at = curve.sizes.iter().position(|&other| other == size).unwrap();
            assert_eq!(curve.misses[at], naive(&steps, curve, size as usize), "{size} of {}", curve.granule_bytes);
        }
    }
}

#[test]
fn impossible_options_are_refused() {
    let good = Options {
        page_bytes: vec![4096],
        line_bytes: None,
        sampling: Sampling::All,
        seed: 1,
        max_accesses: None,
        sizes: vec![],
        ways: None,
    };
    let says =
        |options: Options| analyse(&mut source(&[]), &options, &mut |_| true).expect_err("it cannot be").to_string();
    assert!(says(Options { page_bytes: vec![5000], ..good.clone() }).contains("5000 bytes is not possible"));
    assert!(says(Options { page_bytes: vec![], ..good.clone() }).contains("nothing to do"));
    for rate in [0.0, -1.0, 1.5, f64::NAN] {
        assert!(says(Options { sampling: Sampling::Rate(rate), ..good.clone() }).contains("at most 1"));
    }
    assert!(says(Options { sampling: Sampling::Pages(255), ..good.clone() }).contains("256"));
    assert!(says(Options { sizes: vec![0], ..good.clone() }).contains("an entry at least"));
    assert!(says(Options { ways: Some(0), ..good }).contains("a way"));
}
