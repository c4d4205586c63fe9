//! Segments that were left in the middle: by a fault, or because they have rewritten their own code. Their record
//! is still incomplete, so the tool sends its bytes.

use std::sync::Arc;

use super::super::output::Output;
use super::super::protocol::{ADDRESS_BYTES, SEGMENT_WORD_BYTES};
use super::super::segment::{Segment, Slot};
use super::Process;
use crate::TraceError;

impl Process {
    /// Adds the accesses that a segment made before its instruction at `pc` faulted. If the signal did not come from an
    /// access, the record may be an old one; then it names another segment, or one without `pc`.
    pub(super) fn fault(&mut self, pc: u64, record: &[u8], output: &mut Output<'_>) -> Result<(), TraceError> {
        let Some((segment, addresses)) = self.left_segment(pc, record) else { return Ok(()) };
        let before = segment.accesses.iter().position(|access| access.pc == pc);
        self.first_accesses(&segment, before, addresses, output)
    }

    /// Adds the accesses of a segment up to those of the instruction at `pc`, after which it was left.
    pub(super) fn left(&mut self, pc: u64, record: &[u8], output: &mut Output<'_>) -> Result<(), TraceError> {
        let Some((segment, addresses)) = self.left_segment(pc, record) else { return Ok(()) };
        let done = segment.accesses.iter().rposition(|access| access.pc == pc).map(|last| last + 1);
        self.first_accesses(&segment, done, addresses, output)
    }

    /// The segment of a record, and the record's addresses.
    fn left_segment<'r>(&self, pc: u64, record: &'r [u8]) -> Option<(Arc<Segment>, &'r [u8])> {
        let (head, addresses) = record.split_at_checked(SEGMENT_WORD_BYTES)?;
        let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(Slot { segment: Some(segment), .. }) = self.table.get(number) else { return None };
        segment.holds(pc).then(|| (Arc::clone(segment), addresses))
    }

    fn first_accesses(
        &mut self,
        segment: &Segment,
        accesses: Option<usize>,
        addresses: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), TraceError> {
        match accesses {
            Some(n) if addresses.len() >= n * ADDRESS_BYTES => self.part(segment, 0..n, addresses, output),
            _ => Ok(()),
        }
    }
}
