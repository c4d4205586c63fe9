//! Generates and reads streams, for the tests of the trace format.

use std::path::Path;

use pagelab_trace::{
    Access, AccessKind, Batch, Event, Maker, Segment, Source, ThreadIx, TraceError, TraceReader, TraceWriter,
};

/// A trace as a flat list.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Access(ThreadIx, Access),
    Event(Event),
}

/// Appends items; consecutive accesses of a thread go in one call.
pub fn write(writer: &mut TraceWriter, items: &[Item]) -> Result<(), TraceError> {
    let mut run: Vec<Access> = Vec::new();
    let mut last = ThreadIx(0);
    for item in items {
        match item {
            Item::Access(thread, access) => {
                if *thread != last {
                    writer.append(last, &run)?;
                    run.clear();
                    last = *thread;
                }
                run.push(*access);
            }
            Item::Event(event) => {
                writer.append(last, &run)?;
                run.clear();
                writer.event(event.clone())?;
            }
        }
    }
    writer.append(last, &run)
}

/// All items of a source.
pub fn drain(source: &mut dyn Source) -> Result<Vec<Item>, TraceError> {
    let mut items = Vec::new();
    let mut batch = Batch::default();
    while source.next_batch(&mut batch)? {
        let mut begin = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Run { thread, end } => {
                    assert!(*end > begin, "an empty run");
                    items.extend(batch.accesses[begin..*end].iter().map(|a| Item::Access(*thread, *a)));
                    begin = *end;
                }
                Segment::Event(event) => items.push(Item::Event(event.clone())),
            }
        }
        assert_eq!(begin, batch.accesses.len(), "accesses outside runs");
    }
    assert!(batch.is_empty());
    Ok(items)
}

pub fn read(path: &Path) -> Result<Vec<Item>, TraceError> {
    drain(&mut TraceReader::open(path)?)
}

/// A small random number generator (Marsaglia's xorshift64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Accesses like a program's: a stack, an array, random reads, a few hundred program counters.
pub fn program_like(count: usize, seed: u64) -> Vec<Access> {
    let mut draw = Draw(seed | 1);
    (0..count as u64)
        .map(|i| {
            let (kind, vaddr, size_bytes) = match draw.below(4) {
                0 => (AccessKind::Store, 0x7fff_ffff_e000 + draw.below(64) * 8, 8),
                1 => (AccessKind::Load, 0x5555_0000_0000 + i * 4, 4),
                2 => (AccessKind::Modify, 0x5555_8000_0000 + draw.below(1 << 24), 1),
                _ => (AccessKind::Load, 0x5556_0000_0000 + draw.below(1 << 20) * 16, 16),
            };
            let mut access = Access::new(kind, vaddr, size_bytes);
            access.pc = 0x40_0000 + draw.below(300) * 5;
            access.gap = draw.below(6) as u32;
            access.maker = Maker::kernel_if(draw.below(100) == 0);
            access
        })
        .collect()
}
