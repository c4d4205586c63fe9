use super::*;

fn request(windows: &str) -> StretchRequest {
    StretchRequest { windows: Some(windows.to_owned()), ..StretchRequest::default() }
}

fn refusal(request: &StretchRequest) -> String {
    request.parse().map_or_else(|error| error.to_string(), |stretches| panic!("accepted: {stretches:?}"))
}

/// Runs this many instructions, ten at a time; returns the events with the instruction numbers at which they occur.
fn events(request: &StretchRequest, instructions: u64) -> (Vec<(u64, EventKind)>, StretchTotals) {
    let mut schedule = Schedule::new(&request.parse().unwrap().unwrap());
    let mut events = Vec::new();
    for at in (0..instructions).step_by(10) {
        if schedule.is_due() {
            events.extend(schedule.enter_due_phase().into_iter().map(|event| (at, event)));
        }
        schedule.executed(10, 1);
    }
    (events, schedule.totals())
}

fn resume(instructions: u64) -> EventKind {
    EventKind::Resume { instructions, accesses: instructions / 10 }
}

#[test]
fn impossible_schedules_are_refused_with_possible_ones() {
    for (windows, what) in [
        ("every=1K", "length is missing"),
        ("length=1K", "every is missing"),
        ("every=1K,length=2K", "a window of 2000 instructions is longer than its period of 1000"),
        ("every=1K,length=0", "length=0: must be a count from 1 on"),
        ("every=x,length=1", "every=x: must be a count from 1 on"),
        ("every=1K,length=900,warm=101", "warm=101 and length=900 are longer than the period of 1000"),
        ("every=1K,length=900,offset=101", "offset=101 and length=900 are longer"),
        ("every=1K,length=900,seed=3", "a seed is for offset=random"),
        ("every=1K,length=9,length=8", "length is given twice"),
        ("every=1K,length=9,width=8", "`width` is not known here; known are every, length, warm, offset, seed"),
    ] {
        let error = refusal(&request(windows));
        assert!(error.contains(what) && error.contains("every=1G,length=20M"), "{windows}: {error}");
    }
    assert!(refusal(&StretchRequest { skip: Some(0), ..StretchRequest::default() }).contains("skips nothing"));
    let both = StretchRequest { skip: Some(1), start_at: vec!["main".to_owned()], ..StretchRequest::default() };
    assert!(refusal(&both).contains("not by both"));
    for (function, what) in [
        ("f#0", "the number of a call is 1 or more"),
        ("f#x", "the number of a call is 1 or more"),
        ("", "there is no name"),
        (":f", "there is no name"),
        ("0xfg", "something else than digits"),
    ] {
        let error = refusal(&StretchRequest { stop_at: vec![function.to_owned()], ..StretchRequest::default() });
        assert!(error.contains(what), "{function}: {error}");
    }
    assert!(StretchRequest::default().parse().unwrap().is_none());
}

#[test]
fn a_skip_comes_first_and_once() {
    let (events, totals) = events(&StretchRequest { skip: Some(95), ..StretchRequest::default() }, 1000);
    assert_eq!(events, [(0, EventKind::Skip), (100, resume(100)), (100, EventKind::Measure)]);
    let expected = StretchTotals {
        windows: 1,
        measured_instructions: 900,
        warming_instructions: 0,
        skipped_instructions: 100,
        skipped_accesses: 10,
    };
    assert_eq!(totals, expected);
}

#[test]
fn windows_come_once_in_a_period_behind_their_warm_up() {
    let (found, totals) = events(&request("every=1000,length=100,warm=50"), 2500);
    let expected = [
        (0, EventKind::Measure),
        (100, EventKind::Skip),
        (950, resume(850)),
        (1000, EventKind::Measure),
        (1100, EventKind::Skip),
        (1950, resume(850)),
        (2000, EventKind::Measure),
        (2100, EventKind::Skip),
    ];
    assert_eq!(found, expected);
    assert_eq!((totals.windows, totals.measured_instructions, totals.warming_instructions), (3, 300, 100));
    assert_eq!(totals.skipped_instructions, 2 * 850 + 400);
    let late = StretchRequest { skip: Some(500), ..request("every=1000,length=100,offset=300") };
    let (found, _) = events(&late, 2000);
    let begins = [(800, EventKind::Measure), (1800, EventKind::Measure)];
    assert!(found.iter().filter(|(_, event)| *event == EventKind::Measure).eq(&begins), "{found:?}");
}

#[test]
fn windows_without_a_gap_follow_each_other() {
    let (found, totals) = events(&request("every=100,length=100"), 250);
    let expected = [
        (0, EventKind::Measure),
        (100, EventKind::Skip),
        (100, resume(0)),
        (100, EventKind::Measure),
        (200, EventKind::Skip),
        (200, resume(0)),
        (200, EventKind::Measure),
    ];
    assert_eq!((found, totals.windows, totals.skipped_instructions), (expected.to_vec(), 3, 0));
}

#[test]
fn random_windows_lie_in_their_periods_and_follow_the_seed() {
    let begins = |seed: u64| -> Vec<u64> {
        let (found, _) = events(&request(&format!("every=1000,length=100,offset=random,seed={seed}")), 100_000);
        found.into_iter().filter(|(_, event)| *event == EventKind::Measure).map(|(at, _)| at).collect()
    };
    let first = begins(1);
    assert_eq!(first.len(), 100);
    let offsets: Vec<u64> = first.iter().zip(0..).map(|(at, period)| at - period * 1000).collect();
    assert!(offsets.iter().all(|offset| *offset <= 910), "{offsets:?}");
    assert!(offsets.iter().any(|offset| *offset < 300) && offsets.iter().any(|offset| *offset > 600), "{offsets:?}");
    assert_eq!(first, begins(1));
    assert_ne!(first, begins(2));
}

#[test]
fn random_windows_begin_anywhere_in_their_periods() {
    let mut schedule = Schedule::new(&request("every=13,length=10,offset=random,seed=4").parse().unwrap().unwrap());
    let mut begins = [0; 5];
    for period in 0..4000 {
        schedule.period_begin = period * 13;
        schedule.place_window();
        begins[(schedule.window_begin - schedule.period_begin).min(4) as usize] += 1;
    }
    // Four beginnings are possible; six standard deviations of a binomial distribution are 164.
    assert!(begins[..4].iter().all(|count| (836..1164).contains(count)) && begins[4] == 0, "{begins:?}");
}

#[test]
fn signals_start_and_stop_once_each() {
    let asked = StretchRequest { start_on_signal: true, ..StretchRequest::default() };
    let mut schedule = Schedule::new(&asked.parse().unwrap().unwrap());
    assert_eq!(schedule.enter_due_phase(), [EventKind::Skip]);
    schedule.executed(70, 7);
    assert!(!schedule.is_due());
    schedule.ask(false);
    assert_eq!(schedule.enter_due_phase(), []);
    schedule.ask(true);
    assert_eq!(schedule.enter_due_phase(), [resume(70), EventKind::Measure]);
    schedule.ask(true);
    assert_eq!(schedule.enter_due_phase(), []);
    schedule.executed(30, 0);
    schedule.ask(false);
    assert_eq!(schedule.enter_due_phase(), [EventKind::Skip]);
    let totals = schedule.totals();
    assert_eq!((totals.windows, totals.measured_instructions, totals.skipped_instructions), (1, 30, 70));
}

#[test]
fn a_program_without_a_window_is_reported() {
    let asked = StretchRequest { skip: Some(1000), ..StretchRequest::default() };
    let mut schedule = Schedule::new(&asked.parse().unwrap().unwrap());
    schedule.enter_due_phase();
    schedule.executed(999, 0);
    let [note] = &schedule.notes()[..] else { panic!("{:?}", schedule.notes()) };
    assert!(note.contains("ended after 999 instructions, before the first stretch"), "{note}");
}
