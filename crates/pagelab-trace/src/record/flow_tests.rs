//! Compares a [`Flow`] on random segments with a simple model of each register's origin.

use super::super::protocol::{AccessRecord, BranchRecord, Piece};
use super::*;
use crate::rng::Rng;

fn any_origin(draw: &mut Rng, accesses: u64) -> OriginRecord {
    let registers = (0..draw.below(3)).fold(0, |mask, _| mask | 1 << draw.below(REGISTERS as u64));
    if draw.below(2) == 0 {
        // Some are loads of earlier segments.
        let (back, at_once) = (1 + draw.below(accesses + 2) as u16, draw.below(2) == 0);
        return OriginRecord { back, at_once, registers: if at_once { registers } else { 0 } };
    }
    OriginRecord { back: 0, at_once: false, registers }
}

fn any_segment(draw: &mut Rng, number: u32) -> SegmentRecord {
    let start = 0x1000 + u64::from(number) * 64;
    let count = draw.below(6);
    let conditional = draw.below(3) == 0;
    let accesses = (0..count).map(|n| AccessRecord {
        pc: start,
        gap: 1,
        size_bytes: 8,
        kind: 0,
        conditional: conditional && draw.below(2) == 0,
        origin: any_origin(draw, n),
    });
    let accesses = accesses.collect();
    let mut changed: Vec<u8> = (0..draw.below(6)).map(|_| draw.below(REGISTERS as u64) as u8).collect();
    changed.sort_unstable();
    changed.dedup();
    let of_branch = any_origin(draw, count);
    // Flags mostly have the same origin as the branch.
    let mut any = || if draw.below(3) == 0 { of_branch } else { any_origin(draw, count) };
    let registers = changed.into_iter().map(|register| (register, any())).collect();
    let branch = (draw.below(2) == 0).then(|| BranchRecord {
        // For half of them, the fall-through is the next segment.
        fall_through: start + 64 * (1 + draw.below(2)),
        origin: of_branch,
    });
    SegmentRecord {
        number,
        tail: 0,
        pieces: vec![Piece { start, len: 60 }],
        accesses,
        registers,
        branch,
        transfer: None,
    }
}

/// A load: its index among all accesses, and whether its address is known late.
#[derive(Clone, Copy)]
struct Load {
    place: usize,
    is_late: bool,
}

/// The later of two loads; late ones count as younger by 64 accesses.
fn later(one: Option<Load>, other: Option<Load>) -> Option<Load> {
    let age = |load: Load| (load.place + if load.is_late { 64 } else { 0 }, load.is_late);
    match (one, other) {
        (Some(one), Some(other)) => Some(if age(one) > age(other) { one } else { other }),
        _ => one.or(other),
    }
}

/// A simple model of the records: each value comes from at most one load.
struct Plain {
    accesses: usize,
    from: [Option<Load>; REGISTERS],
    outcomes: Vec<bool>,
    branches_from: Option<Load>,
    fall_through: Option<u64>,
}

impl Default for Plain {
    fn default() -> Self {
        let (from, outcomes) = ([None; REGISTERS], Vec::new());
        Self { accesses: 0, from, outcomes, branches_from: None, fall_through: None }
    }
}

impl Plain {
    /// For each access that happens: the distances to its producer and its branches' producer, and the branch outcomes
    /// before it.
    fn execute(&mut self, record: &SegmentRecord, happens: &[bool]) -> Vec<(u64, u64, Vec<bool>)> {
        if let Some(fall_through) = self.fall_through.take() {
            self.outcomes.push(fall_through != record.pieces[0].start);
        }
        let begin = self.accesses;
        let mut places = Vec::new();
        let entry = self.from;
        let origin_load = |origin: OriginRecord, number: usize, places: &[usize], end: usize| {
            let place = match usize::from(origin.back) {
                0 => None,
                back if back <= number => Some(places.get(number - back).copied().unwrap_or(end)),
                back => begin.checked_sub(back - number),
            };
            let load = place.map(|place| Load { place, is_late: !origin.at_once });
            bits(origin.registers).map(|register| entry[usize::from(register)]).fold(load, later)
        };
        let mut all = Vec::new();
        for (number, (access, &happens)) in record.accesses.iter().zip(happens).enumerate() {
            places.push(self.accesses);
            if !happens {
                continue;
            }
            let distance = |load: Option<Load>| match load.map_or(u64::MAX, |load| (self.accesses - load.place) as u64)
            {
                distance if distance <= Maker::REACH => distance,
                _ => 0,
            };
            let producer = distance(origin_load(access.origin, number, &places, 0));
            let branches = distance(self.branches_from.take());
            all.push((producer, branches, std::mem::take(&mut self.outcomes)));
            self.accesses += 1;
        }
        let end = self.accesses;
        for &(register, origin) in &record.registers {
            self.from[usize::from(register)] = origin_load(origin, places.len(), &places, end);
        }
        if let Some(branch) = record.branch {
            self.branches_from = later(self.branches_from, origin_load(branch.origin, places.len(), &places, end));
            self.fall_through = Some(branch.fall_through);
        }
        all
    }
}

fn facts(producer: u64, branches: Branches) -> (u64, u64, Vec<bool>) {
    (producer, branches.producer().unwrap_or(0), branches.outcomes().collect())
}

#[test]
fn tracked_dependencies_match_the_records() {
    for seed in 0..40 {
        let mut draw = Rng::new(seed, "flow");
        let records: Vec<SegmentRecord> = (0..12).map(|number| any_segment(&mut draw, number)).collect();
        let all: Vec<Waits> = records.iter().map(Waits::new).collect();
        let (mut flow, mut plain, mut steps) = (Flow::default(), Plain::default(), Steps::default());
        // Origins reach back across a gap of other accesses.
        flow.skip(1000);
        plain.accesses += 1000;
        for execution in 0..3000 {
            let number = if draw.below(3) > 0 { execution % records.len() } else { draw.below(12) as usize };
            let (record, waits) = (&records[number], &all[number]);
            let happens: Vec<bool> =
                record.accesses.iter().map(|access| !access.conditional || draw.below(2) == 0).collect();
            let mut expected = plain.execute(record, &happens);
            for (_, _, outcomes) in &mut expected {
                outcomes.drain(..outcomes.len().saturating_sub(Branches::MOST as usize));
            }
            let found: Vec<_> = if record.accesses.iter().any(|access| access.conditional) || draw.below(4) == 0 {
                steps.begin(&mut flow, waits);
                let found =
                    happens.iter().filter_map(|&happens| steps.access(&mut flow, waits, happens)).collect::<Vec<_>>();
                steps.finish(&mut flow, waits);
                found.into_iter().map(|(producer, branches)| facts(producer.into(), branches)).collect()
            } else {
                let mut words: Vec<u32> = waits.words().collect();
                flow.execute(waits, &mut words);
                let parts = words.into_iter().map(u32::to_le_bytes);
                parts
                    .map(|[producer, branch_producer, outcomes, _]| {
                        facts(producer.into(), Branches::from_bytes(outcomes, branch_producer))
                    })
                    .collect()
            };
            assert_eq!(found, expected, "seed {seed}, execution {execution}");
        }
    }
}

#[test]
fn an_exchange_is_one() {
    let from = |register: u8| OriginRecord { back: 0, at_once: false, registers: 1 << register };
    let loads = |back| OriginRecord { back, at_once: false, registers: 0 };
    let nothing = OriginRecord::default();
    let access = |origin| AccessRecord { pc: 1, gap: 1, size_bytes: 8, kind: 0, conditional: false, origin };
    let segment = |accesses, registers| {
        Waits::new(&SegmentRecord {
            number: 0,
            tail: 0,
            pieces: Vec::new(),
            accesses,
            registers,
            branch: None,
            transfer: None,
        })
    };
    let mut flow = Flow::default();
    let two = segment(vec![access(nothing), access(nothing)], vec![(3, loads(2)), (5, loads(1)), (7, loads(1))]);
    flow.execute(&two, &mut [0; 2]);
    // 3 and 5 swap values, 7 gets the old value of 3.
    flow.execute(&segment(Vec::new(), vec![(3, from(5)), (5, from(3)), (7, from(3))]), &mut []);
    let mut words = [0; 3];
    flow.execute(&segment([3, 5, 7].map(|register| access(from(register))).into(), Vec::new()), &mut words);
    assert_eq!(words, [1, 3, 4]);
    flow.forget();
    let mut words = [0; 1];
    flow.execute(&segment(vec![access(from(3))], Vec::new()), &mut words);
    assert_eq!(words, [0]);
}

#[test]
fn nothing_depends_on_skipped_accesses_of_its_segment() {
    let loads = |back| OriginRecord { back, at_once: false, registers: 0 };
    let segment = |origins: &[u16]| {
        let access =
            |&back| AccessRecord { pc: 1, gap: 1, size_bytes: 8, kind: 0, conditional: false, origin: loads(back) };
        let accesses = origins.iter().map(access).collect();
        Waits::new(&SegmentRecord {
            number: 0,
            tail: 0,
            pieces: Vec::new(),
            accesses,
            registers: Vec::new(),
            branch: None,
            transfer: None,
        })
    };
    let (mut flow, mut steps) = (Flow::default(), Steps::default());
    flow.skip(1000);
    // A longer segment before, with other places.
    let before = segment(&[0; 9]);
    steps.begin(&mut flow, &before);
    (0..9).for_each(|_| _ = steps.access(&mut flow, &before, true));
    steps.finish(&mut flow, &before);
    let waits = segment(&[0, 1, 1, 1, 3, 9]);
    steps.skip(0..2);
    let found: Vec<u8> = (0..4).map(|_| steps.access(&mut flow, &waits, true).unwrap().0).collect();
    assert_eq!(found, [0, 1, 0, 0], "of the second, the one before, the second, and one before the segment");
}
