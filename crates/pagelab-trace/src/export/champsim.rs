//! ChampSim's records, as `import::champsim` describes them.
//!
//! A trace contains neither registers nor branches: they are 0, so ChampSim sees no dependencies between instructions
//! and no branches. Sizes are lost. An access that reads and writes becomes a load and a store. Loads come before
//! stores. What does not fit a record goes into a further one, which counts as an instruction.

use super::{Instruction, Lost, Writer};
use crate::AccessKind;

/// Offsets of the addresses in a record of this many bytes.
pub(super) struct Records<const BYTES: usize> {
    stores_at: usize,
    stores: usize,
    loads_at: usize,
    loads: usize,
}

pub(super) const INPUT: Records<64> = Records { stores_at: 16, stores: 2, loads_at: 32, loads: 4 };
pub(super) const CLOUDSUITE: Records<96> = Records { stores_at: 24, stores: 4, loads_at: 56, loads: 4 };

impl<const BYTES: usize> Writer for Records<BYTES> {
    fn write(&mut self, instruction: &Instruction, bytes: &mut Vec<u8>, lost: &mut Lost) {
        let mut record = [0; BYTES];
        let (mut loads, mut stores) = (0, 0);
        record[..8].copy_from_slice(&instruction.pc.to_le_bytes());
        for &(kind, vaddr, _) in &instruction.accesses {
            if vaddr == 0 {
                lost.accesses_dropped += 1;
                continue;
            }
            let (reads, writes) = match kind {
                AccessKind::Load | AccessKind::Fetch => (true, false),
                AccessKind::Store => (false, true),
                AccessKind::Modify => (true, true),
            };
            if reads && loads == self.loads || writes && stores == self.stores {
                bytes.extend_from_slice(&record);
                lost.instructions_added += 1;
                record[8..].fill(0);
                (loads, stores) = (0, 0);
            }
            for (is, begin, count) in [(reads, self.loads_at, &mut loads), (writes, self.stores_at, &mut stores)] {
                if is {
                    record[begin + 8 * *count..][..8].copy_from_slice(&vaddr.to_le_bytes());
                    *count += 1;
                }
            }
        }
        bytes.extend_from_slice(&record);
    }
}
