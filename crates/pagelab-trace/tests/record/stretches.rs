//! Programs with skipped stretches.

use pagelab_trace::format::StretchTotals;

use super::*;

const PAGE: u64 = 4096;
const PAGES: u64 = 64;

struct Parts {
    array: u64,
    recorded: Recorded,
    totals: StretchTotals,
}

/// Records a program that writes an array, calls `work` on it twice and unmaps it, with the stretches of `request`.
fn record_parts(request: &str) -> Parts {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let program = compiled("stretches");
    let output = recorder(&trace, &[program.to_str().unwrap()]).env("RECORD_STRETCHES", request).output().unwrap();
    assert!(trace.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let array = hexadecimal(&program_output(&output));
    let totals = TraceReader::open(&trace).unwrap().meta().stretches.expect("it was recorded in stretches");
    Parts { array, recorded: Recorded::read(&trace), totals }
}

impl Parts {
    /// The program's own accesses to the array at positions of the trace, as page and kind.
    fn pages(&self, positions: std::ops::Range<u64>) -> Vec<(u64, AccessKind)> {
        let range = positions.start as usize..positions.end as usize;
        let some = Recorded { accesses: self.recorded.accesses[range].to_vec(), ..Recorded::default() };
        let data = some.data(self.array..self.array + PAGES * PAGE);
        data.into_iter().map(|(vaddr, kind)| ((vaddr - self.array) / PAGE, kind)).collect()
    }

    /// The measured stretches.
    fn windows(&self) -> Vec<std::ops::Range<u64>> {
        let positions = |kind: EventKind| -> Vec<u64> {
            self.recorded.events.iter().filter(|event| event.kind == kind).map(|event| event.position).collect()
        };
        let end = self.recorded.accesses.len() as u64;
        let begins = positions(EventKind::Measure);
        let ends = positions(EventKind::Skip).into_iter().filter(|end| begins.first().is_some_and(|begin| end > begin));
        begins.iter().copied().zip(ends.chain([end])).map(|(begin, end)| begin..end).collect()
    }
}

#[test]
fn exactly_the_accesses_between_two_functions_are_recorded() {
    let parts = record_parts(r#"{"start_at": ["work"], "stop_at": ["tear_down"]}"#);
    let windows = parts.windows();
    assert_eq!((windows.len(), parts.totals.windows), (2, 2), "{:?}", parts.recorded.notes);
    for (window, page) in windows.into_iter().zip([10, 20]) {
        let of_array: Vec<_> = parts.pages(window.clone());
        assert_eq!(of_array, vec![(page, AccessKind::Store); 100]);
        let instructions: u64 = parts.recorded.accesses[window.start as usize..window.end as usize]
            .iter()
            .map(|(_, a)| u64::from(a.gap))
            .sum();
        // About four per iteration of 100, plus entry and exit.
        assert!((300..800).contains(&instructions), "{instructions}");
    }
    // Only the second call, with its file named.
    let second = record_parts(r#"{"start_at": ["stretches:work#2"]}"#);
    let [window] = &second.windows()[..] else { panic!("{:?}", second.recorded.events) };
    let of_array = second.pages(window.clone());
    assert_eq!(of_array[..100], [(20, AccessKind::Store); 100]);
    assert_eq!(of_array.len(), 100 + 3 * PAGES as usize);
}

#[test]
fn skipped_stretches_hold_first_touches_as_page_faults_need_them() {
    let parts = record_parts(r#"{"start_at": ["work"], "stop_at": ["tear_down"]}"#);
    let first = parts.windows()[0].clone();
    let pages = parts.pages(0..first.start);
    // Each page is read once and written once, whatever the number of iterations; and again after it was emptied, and
    // in child and parent after a fork.
    let (load, store) = (AccessKind::Load, AccessKind::Store);
    let mut expected: Vec<_> = (0..PAGES).flat_map(|page| [(page, load), (page, store)]).collect();
    expected.extend([(8, store), (9, store), (9, store)]);
    assert_eq!(pages, expected);
    let gaps = parts.recorded.accesses[..first.start as usize].iter().map(|(_, access)| access.gap);
    assert!(gaps.eq(std::iter::repeat_n(0, first.start as usize)), "skipped instructions are those of the event");
    // Between the windows: every page is read once.
    let second = parts.windows()[1].clone();
    assert_eq!(parts.pages(first.end..second.start), (0..PAGES).map(|page| (page, load)).collect::<Vec<_>>());
}

#[test]
fn instructions_and_events_are_those_of_the_whole_program() {
    let (_, whole) = record(&[compiled("stretches").to_str().unwrap()]);
    let all: u64 = whole.accesses.iter().map(|(_, access)| u64::from(access.gap)).sum();
    for request in [
        r#"{"windows": "every=10K,length=1K,warm=500"}"#,
        r#"{"windows": "every=7K,length=2K,offset=random"}"#,
        r#"{"skip": 50000}"#,
    ] {
        let Parts { recorded, totals, .. } = record_parts(request);
        let gaps: u64 = recorded.accesses.iter().map(|(_, access)| u64::from(access.gap)).sum();
        let StretchTotals { measured_instructions, warming_instructions, skipped_instructions, .. } = totals;
        let in_windows = measured_instructions + warming_instructions;
        let sum = in_windows + skipped_instructions;
        // The loader reads different environment variables.
        assert!(sum.abs_diff(all) < all / 100, "{request}: {sum} instead of {all}");
        assert!(in_windows.abs_diff(gaps) < 200, "{request}: {in_windows} in windows, gaps of {gaps}");
        let length = totals.measured_instructions / totals.windows;
        // The program may end within the last window.
        match request {
            _ if request.contains("skip") => assert!(skipped_instructions.abs_diff(50_000) < 100, "{totals:?}"),
            _ if request.contains("1K,") => assert!((900..1100).contains(&length), "{totals:?}"),
            _ => assert!((1800..2100).contains(&length), "{totals:?}"),
        }
        let kinds = |recording: &Recorded| -> Vec<_> {
            let of_stretches =
                |kind: &EventKind| matches!(kind, EventKind::Skip | EventKind::Resume { .. } | EventKind::Measure);
            let kinds = recording.events.iter().map(|event| &event.kind).filter(|kind| !of_stretches(kind));
            kinds.map(std::mem::discriminant).collect()
        };
        assert_eq!(kinds(&recorded), kinds(&whole), "{request}");
        let resumed: u64 = recorded
            .events
            .iter()
            .map(|event| if let EventKind::Resume { instructions, .. } = event.kind { instructions } else { 0 })
            .sum();
        assert!(resumed <= skipped_instructions && resumed > 0);
    }
}

#[test]
fn unknown_functions_are_reported_with_similar_names() {
    let parts = record_parts(r#"{"start_at": ["tear_dwon"]}"#);
    assert_eq!(parts.totals.windows, 0);
    let notes = parts.recorded.notes.join("\n");
    assert!(
        notes.contains("`tear_dwon`: no program or library") && notes.contains("did you mean tear_down?"),
        "{notes}"
    );
    assert!(notes.contains("all of the program was skipped"), "{notes}");
}

#[test]
fn signals_start_and_stop_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let mut command = recorder(&trace, &[compiled("endless").to_str().unwrap()]);
    let mut child = command.env("RECORD_STRETCHES", r#"{"start_on_signal": true}"#).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    // The program runs until it is stopped.
    let long_enough = Duration::from_millis(1500);
    for signal in [rustix::process::Signal::USR1, rustix::process::Signal::USR2, rustix::process::Signal::INT] {
        std::thread::sleep(long_enough);
        rustix::process::kill_process(pid, signal).unwrap();
    }
    wait_at_most(&mut child, Duration::from_secs(20));
    let recorded = Recorded::read(&trace);
    let kinds: Vec<_> = recorded.events.iter().map(|event| &event.kind).collect();
    let stretches: Vec<_> = kinds
        .iter()
        .filter(|kind| matches!(kind, EventKind::Skip | EventKind::Resume { .. } | EventKind::Measure))
        .collect();
    let [EventKind::Skip, EventKind::Resume { instructions, .. }, EventKind::Measure, EventKind::Skip] = stretches[..]
    else {
        panic!("{stretches:?}")
    };
    assert!(*instructions > 100_000, "{instructions}");
}
