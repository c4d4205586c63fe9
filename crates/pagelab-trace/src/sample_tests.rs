use super::*;

const PAGE: u64 = 4096;

struct BatchSource(SourceInfo, std::vec::IntoIter<Batch>);

impl Source for BatchSource {
    fn info(&self) -> &SourceInfo {
        &self.0
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        *batch = self.1.next().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

fn given(batches: Vec<Batch>) -> Box<dyn Source> {
    let accesses = Some(batches.iter().map(|batch| batch.accesses.len() as u64).sum());
    let info = SourceInfo {
        name: "given".to_owned(),
        accesses,
        threads: 2,
        mappings_inferred: false,
        sampled: false,
        sampling: None,
        dependencies: true,
        branches: true,
        content_hash: None,
    };
    Box::new(BatchSource(info, batches.into_iter()))
}

fn event(thread: u32, kind: EventKind) -> Event {
    Event { position: 0, process: ProcessIx(0), thread: ThreadIx(thread), kind }
}

/// Two threads alternate, 30 instructions each. All accesses go to one page; each access, and the branches before it,
/// depends on the access 5 before.
fn turns(count: u64) -> Vec<Batch> {
    let mut batches = vec![Batch::default()];
    batches[0].push_event(event(0, EventKind::ProcessStart { parent: None }));
    for number in 0..count {
        let batch = batches.last_mut().unwrap();
        let access = Access { pc: number, ..Access::new(AccessKind::Load, number % 7 * 8, 8) };
        batch.accesses.push(access.after(5));
        let mut before = Branches::NONE;
        before.push(true);
        before.wait_for(5);
        batch.branches.push(before);
        if number % 30 == 29 {
            batch.close_run(ThreadIx((number / 30 % 2) as u32));
        }
        if number % 240 == 239 {
            batches.push(Batch::default());
        }
    }
    batches
}

/// All accesses and events of a source, in one batch.
fn all_of(source: &mut dyn Source) -> Batch {
    let (mut batch, mut all) = (Batch::default(), Batch::default());
    while source.next_batch(&mut batch).unwrap() {
        assert_eq!(batch.accesses.len(), batch.branches.len());
        let mut at = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Run { thread, end } => {
                    all.accesses.extend_from_slice(&batch.accesses[at..*end]);
                    all.branches.extend_from_slice(&batch.branches[at..*end]);
                    all.close_run(*thread);
                    at = *end;
                }
                Segment::Event(event) => {
                    assert_eq!(event.position, all.accesses.len() as u64);
                    all.push_event(event.clone());
                }
            }
        }
    }
    all
}

fn sampled(batches: Vec<Batch>, sample: &str) -> Batch {
    all_of(&mut Sampled::new(given(batches), &sample.parse().unwrap(), 1, None))
}

/// The access numbers between events of stretches, and the event that ended each.
fn stretches(batch: &Batch) -> Vec<(Vec<u64>, Option<EventKind>)> {
    let (mut all, mut at) = (vec![(Vec::new(), None)], 0);
    for segment in &batch.segments {
        match segment {
            Segment::Run { end, .. } => {
                all.last_mut().unwrap().0.extend(batch.accesses[at..*end].iter().map(|access| access.pc));
                at = *end;
            }
            Segment::Event(event) => match event.kind {
                EventKind::Skip | EventKind::Resume { .. } | EventKind::Measure => {
                    all.last_mut().unwrap().1 = Some(event.kind.clone());
                    all.push((Vec::new(), None));
                }
                _ => {}
            },
        }
    }
    all
}

#[test]
fn windows_and_their_warm_ups_are_passed_on_whole_and_first_touches_of_the_rest() {
    let found = stretches(&sampled(turns(900), "every=300,length=50,warm=20,offset=100"));
    let mut expected = vec![(Vec::new(), Some(EventKind::Skip))];
    for period in 0..3 {
        let (from, window) = (if period == 0 { 0 } else { period * 300 - 150 }, period * 300 + 100);
        let skipped = window - 20 - from;
        expected.extend([
            // Of one page, all but the first read are dropped; at the end each thread touches its line.
            (vec![from, 0, 0], Some(EventKind::Resume { instructions: skipped, accesses: skipped - 1 })),
            ((window - 20..window).collect(), Some(EventKind::Measure)),
            ((window..window + 50).collect(), Some(EventKind::Skip)),
        ]);
    }
    expected.push((vec![750], None));
    assert_eq!(found, expected);
}

#[test]
fn one_window_in_eight_is_warmed_up_for_longer() {
    let found = stretches(&sampled(turns(30 * 10 * 17), "every=300,length=50,warm=20,offset=100"));
    let warmed: Vec<usize> =
        found.iter().filter(|(_, end)| *end == Some(EventKind::Measure)).map(|(accesses, _)| accesses.len()).collect();
    assert_eq!(warmed.len(), 17);
    for (window, &warmed) in warmed.iter().enumerate() {
        assert_eq!(warmed, if window % 8 == 4 { 80 } else { 20 }, "{window}");
    }
    // The warm-up is longer than the gap, so it begins directly after the previous window.
    let found = stretches(&sampled(turns(300 * 6), "every=300,length=200,warm=90,offset=0"));
    let fifth = found.iter().filter(|(_, end)| *end == Some(EventKind::Measure)).nth(4).unwrap();
    assert_eq!(fifth.0, (300 * 3 + 200..300 * 4).collect::<Vec<_>>());
}

#[test]
fn nothing_depends_on_omitted_accesses() {
    let whole = turns(9000);
    let batch = sampled(whole, "every=300,length=50,warm=20,offset=100");
    let mut of_thread: BTreeMap<ThreadIx, Vec<u64>> = BTreeMap::new();
    let (mut at, mut skipped, mut kept) = (0, false, 0);
    for segment in &batch.segments {
        match segment {
            Segment::Event(event) => match event.kind {
                EventKind::Skip => (of_thread, skipped) = (BTreeMap::new(), true),
                EventKind::Resume { .. } => (of_thread, skipped) = (BTreeMap::new(), false),
                _ => {}
            },
            Segment::Run { thread, end } => {
                for (access, before) in batch.accesses[at..*end].iter().zip(&batch.branches[at..*end]) {
                    let known = of_thread.entry(*thread).or_default();
                    let in_reach = !skipped && known.len() >= 5;
                    assert_eq!(access.maker.producer(), in_reach.then_some(5), "{}", access.pc);
                    assert_eq!(before.producer(), in_reach.then_some(5));
                    assert_eq!(before.count(), u32::from(!skipped));
                    assert_eq!(access.gap, u32::from(!skipped));
                    kept += u64::from(in_reach);
                    known.push(access.pc);
                }
                at = *end;
            }
        }
    }
    assert!(kept > 1000, "{kept}");
}

#[test]
fn pages_are_new_again_after_what_may_make_them_so() {
    let change = |kind: EventKind| {
        let mut batch = Batch::default();
        batch.push_event(event(0, EventKind::ProcessStart { parent: None }));
        for round in 0..2 {
            for (number, kind) in [AccessKind::Fetch, AccessKind::Load, AccessKind::Store].into_iter().enumerate() {
                batch.accesses.push(Access { pc: 10 * round + number as u64, ..Access::new(kind, 3 * PAGE, 8) });
                batch.branches.push(Branches::NONE);
            }
            batch.close_run(ThreadIx(0));
            if round == 0 {
                batch.push_event(event(0, kind.clone()));
            }
        }
        let batch = sampled(vec![batch], "every=1000,length=10,offset=900");
        batch.accesses.iter().map(|access| access.pc).filter(|pc| *pc >= 10).map(|pc| pc - 10).collect::<Vec<_>>()
    };
    let (addr, len) = (2 * PAGE, 2 * PAGE);
    let all = vec![0, 1, 2];
    assert_eq!(change(EventKind::Munmap { addr, len: PAGE }), Vec::<u64>::new(), "another page");
    assert_eq!(change(EventKind::Munmap { addr, len }), all);
    assert_eq!(change(EventKind::Madvise { addr, len, advice: 4 }), all);
    assert_eq!(change(EventKind::Mprotect { addr, len, prot: crate::Protection::READ_WRITE }), all);
    assert_eq!(change(EventKind::Exec { path: "/bin/true".into() }), all);
    assert_eq!(change(EventKind::Fork { child: ProcessIx(1) }), vec![2], "the next write makes a copy");
    assert_eq!(change(EventKind::Fault { addr: 3 * PAGE + 8, write: false }), all);
    assert_eq!(change(EventKind::Truncate { file: "f".into(), old_len: 9, new_len: 1 }), all);
    assert_eq!(change(EventKind::Mremap { old_addr: 9 << 20, old_len: len, new_addr: addr, new_len: len }), all);
    assert_eq!(change(EventKind::Wake { edge: 1 }), Vec::<u64>::new());
}

#[test]
fn a_stretch_ends_with_touches_that_its_events_have_left() {
    let touches_of = |kind: Option<EventKind>| {
        let mut batch = Batch::default();
        batch.push_event(event(0, EventKind::ProcessStart { parent: None }));
        let accesses = [(AccessKind::Store, 3 * PAGE), (AccessKind::Load, 5 * PAGE), (AccessKind::Load, 3 * PAGE + 64)];
        let push = |batch: &mut Batch, accesses: &[(AccessKind, u64)]| {
            batch.accesses.extend(accesses.iter().map(|&(kind, vaddr)| Access::new(kind, vaddr, 8)));
            batch.branches.resize(batch.accesses.len(), Branches::NONE);
            batch.close_run(ThreadIx(0));
        };
        push(&mut batch, &accesses);
        kind.into_iter().for_each(|kind| batch.push_event(event(0, kind)));
        push(&mut batch, &[(AccessKind::Load, 6 * PAGE), (AccessKind::Load, 9 * PAGE)]);
        let batch = sampled(vec![batch], "every=1000,length=10,offset=4");
        let resumed = batch.segments.iter().find_map(|segment| match segment {
            Segment::Event(Event { kind: EventKind::Resume { .. }, position, .. }) => Some(*position as usize),
            _ => None,
        });
        let end = resumed.unwrap();
        assert_eq!((batch.accesses.len(), batch.accesses[end].vaddr), (end + 1, 9 * PAGE));
        // First touches have sizes of their own.
        let touches = batch.accesses[..end].iter().filter(|access| access.size_bytes == 1);
        touches.map(|access| (access.kind, access.vaddr)).collect::<Vec<_>>()
    };
    let (load, store) = (AccessKind::Load, AccessKind::Store);
    let all = [(store, 3 * PAGE), (load, 5 * PAGE), (load, 3 * PAGE + 64), (load, 6 * PAGE)];
    assert_eq!(touches_of(None), all);
    assert_eq!(touches_of(Some(EventKind::Munmap { addr: 5 * PAGE, len: PAGE })), [all[0], all[2], all[3]]);
    let forked = touches_of(Some(EventKind::Fork { child: ProcessIx(1) }));
    assert_eq!(forked, [(load, 3 * PAGE), all[1], all[2], all[3]], "a write would make a copy");
    for gone in [EventKind::Exec { path: "/bin/true".into() }, EventKind::Exit { code: 0 }] {
        assert_eq!(touches_of(Some(gone)), [all[3]]);
    }
    assert_eq!(touches_of(Some(EventKind::ThreadExit)), [all[3]]);
    assert_eq!(touches_of(Some(EventKind::Truncate { file: "f".into(), old_len: 9, new_len: 1 })), [all[3]]);
    assert_eq!(touches_of(Some(EventKind::Fault { addr: 3 * PAGE, write: false })), [all[1], all[3]]);
}

#[test]
fn a_limit_is_one_of_the_source() {
    let sampling: Sampling = "every=300,length=50,offset=100".parse().unwrap();
    let mut source = Sampled::new(given(turns(3000)), &sampling, 1, Some(430));
    assert_eq!(source.info().accesses, Some(430 * 50 / 300));
    let found = stretches(&all_of(&mut source));
    assert_eq!(found.last().unwrap(), &((400..430).collect(), None));
}

#[test]
fn sources_of_skipped_stretches_and_short_ones_are_refused() {
    let once = sampled(turns(3000), "every=300,length=50,offset=100");
    let sampling: Sampling = "every=300,length=50".parse().unwrap();
    let mut twice = Sampled::new(given(vec![once]), &sampling, 1, None);
    let refusal = twice.next_batch(&mut Batch::default()).unwrap_err().to_string();
    assert!(refusal.contains("given: stretches of it were skipped when it was recorded"), "{refusal}");
    assert!(Sampling::scaled(None).unwrap_err().to_string().contains("is unknown"));
    let least = WINDOWS_NEEDED * SHORTEST;
    assert!(Sampling::scaled(Some(least - 1)).unwrap_err().to_string().contains("too few for 30 windows"));
    for accesses in [least, 10_000_000, 1_000_000_000] {
        let Sampling { every, length, warm, .. } = Sampling::scaled(Some(accesses)).unwrap();
        assert!(accesses / every >= WINDOWS_NEEDED && length + warm < every / 4, "{accesses}");
    }
}

#[test]
fn windows_are_written_as_they_are_read() {
    for text in ["every=300,length=50", "every=300,length=50,warm=10", "every=300,length=50,warm=10,offset=0"] {
        assert_eq!(text.parse::<Sampling>().unwrap().to_string(), text);
    }
    let starts: std::collections::BTreeSet<u64> =
        (0..200).map(|seed| "every=300,length=50".parse::<Sampling>().unwrap().start(seed)).collect();
    assert!(starts.len() > 100 && starts.iter().all(|start| *start <= 250), "{starts:?}");
}
