//! Groups the accesses of a thread into instructions.
//!
//! A trace counts instructions by gaps and has addresses only for those that access memory. An access with a gap begins
//! an instruction; the following accesses without a gap belong to it. The other instructions of a gap get the address
//! of the previous instruction. So their number is correct, and no additional page is executed.

use super::Lost;
use crate::{Access, AccessKind};

/// An instruction with its accesses.
#[derive(Clone, Debug, Default)]
pub(super) struct Instruction {
    /// 0 if unknown.
    pub pc: u64,
    /// 1 if unknown.
    pub size_bytes: u16,
    /// Kind, address and size of each.
    pub accesses: Vec<(AccessKind, u64, u16)>,
}

/// The state of a thread between two accesses.
#[derive(Default)]
pub(super) struct Thread {
    /// The current instruction, which may get more accesses.
    current: Option<Instruction>,
    instructions: u64,
    accesses: u64,
}

impl Thread {
    /// Takes the next access; passes complete instructions to `write`.
    pub(super) fn access(&mut self, access: &Access, lost: &mut Lost, mut write: impl FnMut(&Instruction, &mut Lost)) {
        lost.by_kernel += u64::from(access.maker.is_kernel());
        let fetches = access.kind == AccessKind::Fetch;
        if access.gap > 0 || fetches || self.current.is_none() {
            if access.gap == 0 {
                lost.instructions_added += 1;
            }
            self.begin(access, &mut |instruction| write(instruction, lost));
        }
        if let Some(current) = self.current.as_mut().filter(|_| !fetches) {
            current.accesses.push((access.kind, access.vaddr, access.size_bytes));
            self.accesses += 1;
        }
    }

    fn begin(&mut self, access: &Access, write: &mut dyn FnMut(&Instruction)) {
        let (pc, size_bytes) = match access.kind {
            AccessKind::Fetch => (access.vaddr, access.size_bytes),
            AccessKind::Load | AccessKind::Store | AccessKind::Modify => (access.pc, 1),
        };
        // Reuses the memory of the previous instruction.
        let mut next = self.current.take().unwrap_or(Instruction { pc, size_bytes, accesses: Vec::new() });
        if self.instructions > 0 {
            write(&next);
        }
        next.accesses.clear();
        for _ in 1..access.gap {
            write(&next);
        }
        self.instructions += u64::from(access.gap.max(1));
        (next.pc, next.size_bytes) = (pc, size_bytes);
        self.current = Some(next);
    }

    /// Ends the last instruction.
    pub(super) fn end(&mut self, lost: &mut Lost, mut write: impl FnMut(&Instruction, &mut Lost)) {
        if let Some(last) = self.current.take() {
            write(&last, lost);
        }
    }

    /// Number of instructions and of data accesses.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.instructions, self.accesses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Maker;

    #[test]
    fn gaps_become_instructions() {
        let access = |kind, vaddr, pc, gap| Access { pc, gap, ..Access::new(kind, vaddr, 8) };
        let (mut thread, mut lost, mut written) = (Thread::default(), Lost::default(), Vec::new());
        for access in [
            access(AccessKind::Fetch, 0x400, 0x400, 1),
            access(AccessKind::Load, 0x10, 0x400, 0),
            access(AccessKind::Store, 0x18, 0x408, 3),
            access(AccessKind::Fetch, 0x800, 0x800, 2),
        ] {
            thread.access(&access, &mut lost, |i, _| written.push((i.pc, i.size_bytes, i.accesses.len())));
        }
        thread.end(&mut lost, |i, _| written.push((i.pc, i.size_bytes, i.accesses.len())));
        let expected = [(0x400, 8, 1), (0x400, 8, 0), (0x400, 8, 0), (0x408, 1, 1), (0x408, 1, 0), (0x800, 8, 0)];
        assert_eq!(written, expected);
        assert_eq!((thread.counts(), lost), ((6, 2), Lost::default()));
    }

    #[test]
    fn an_access_without_an_instruction_gets_one() {
        let (mut thread, mut lost, mut written) = (Thread::default(), Lost::default(), Vec::new());
        let first = Access { gap: 0, maker: Maker::KERNEL, ..Access::new(AccessKind::Load, 0x10, 8) };
        thread.access(&first, &mut lost, |i, _| written.push(i.pc));
        thread.end(&mut lost, |i, _| written.push(i.pc));
        assert_eq!((written, thread.counts()), (vec![0], (1, 1)));
        assert_eq!(lost, Lost { instructions_added: 1, by_kernel: 1, ..Lost::default() });
    }
}
