//! ChampSim's `input_instr` records.
//!
//! 64 bytes an instruction, little-endian: instruction pointer (8), is-branch and branch-taken (1 each, 0 or 1),
//! 2 destination and 4 source registers (1 each), 2 store addresses and 4 load addresses (8 each), 0 where there is
//! none. Loads come before stores. Registers and branches are dropped. Source: `inc/trace_instruction.h` of ChampSim.
//!
//! The records tell no sizes: data accesses get an assumed one, fetches 1 byte, so that no page is fetched from that
//! the trace does not name.

use std::ops::ControlFlow;

use super::{Progress, input::Input, sink::Sink};
use crate::{AccessKind, TraceError};

const RECORD_BYTES: usize = 64;
const STORES_AT: usize = 16;
const LOADS_AT: usize = 32;
/// Records between two looks at the progress.
const RECORDS_PER_REPORT: u64 = 1 << 14;

/// True if the data begins with records whose flags are flags.
pub(super) fn looks_like(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    // Text has no bytes 0 and 1, in which every record must consist at two places.
    !records.is_empty() && records.iter().all(|record| record[8] <= 1 && record[9] <= 1)
}

/// Feeds the data to `sink`, data accesses with `size_bytes`.
pub(super) fn read(
    input: &mut Input,
    sink: &mut Sink,
    size_bytes: u16,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), TraceError> {
    let mut record = [0; RECORD_BYTES];
    let mut number = 0u64;
    while !sink.is_full() {
        if number.is_multiple_of(RECORDS_PER_REPORT) {
            sink.report(input, progress)?;
        }
        let offset = number * RECORD_BYTES as u64;
        let taken = match input.record(&mut record)? {
            0 => break,
            RECORD_BYTES => take(&record, sink, size_bytes)?,
            left => Err(format!("{left} bytes left, expected a whole record")),
        };
        if let Err(what) = taken {
            let place = format!("offset {offset} (record {number}, of {RECORD_BYTES} bytes each)");
            return Err(input.corrupt(format!("{place}: {what}")));
        }
        number += 1;
    }
    sink.report(input, progress)
}

fn take(record: &[u8; RECORD_BYTES], sink: &mut Sink, size_bytes: u16) -> Result<Result<(), String>, TraceError> {
    for (name, flag) in [("is_branch", record[8]), ("branch_taken", record[9])] {
        if flag > 1 {
            return Ok(Err(format!("{name} is {flag}, expected 0 or 1")));
        }
    }
    let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    if let Err(what) = sink.instruction(word(0), 1)? {
        return Ok(Err(what));
    }
    let loads = (0..4).map(|i| (AccessKind::Load, word(LOADS_AT + 8 * i)));
    let stores = (0..2).map(|i| (AccessKind::Store, word(STORES_AT + 8 * i)));
    for (kind, vaddr) in loads.chain(stores) {
        if vaddr != 0
            && let Err(what) = sink.access(kind, vaddr, u64::from(size_bytes))?
        {
            return Ok(Err(what));
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_recognised_by_their_flags() {
        let mut head = vec![0x40; 3 * RECORD_BYTES + 5];
        assert!(!looks_like(&head));
        for record in 0..3 {
            head[record * RECORD_BYTES + 8] = 1;
            head[record * RECORD_BYTES + 9] = 0;
        }
        assert!(looks_like(&head));
        head[RECORD_BYTES + 9] = 2;
        assert!(!looks_like(&head));
        assert!(!looks_like(&[0; 63]));
    }
}
