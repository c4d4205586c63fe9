//! Accesses that the kernel makes for system calls: to the process itself, or for another one (`process_vm_readv`,
//! `process_vm_writev`).

use super::super::output::Output;
use super::super::stretches::Mode;
use super::{DecodeError, PAGE_BYTES, Process};
use crate::{Access, AccessKind, Maker};

/// An access to a process for another one.
#[derive(Clone, Copy, Debug)]
pub(in crate::record) struct RemoteAccess {
    pub(super) writes: bool,
    pub(super) addr: u64,
    pub(super) len: u64,
}

impl Process {
    /// Adds an access for another process. It counts as one of this process's current thread.
    pub(in crate::record) fn remote_access(
        &mut self,
        access: RemoteAccess,
        output: &mut Output<'_>,
    ) -> Result<(), DecodeError> {
        if self.threads.is_empty() {
            self.early_accesses.push(access);
            return Ok(());
        }
        output.set_thread(self.ix, self.current.ix);
        self.kernel_access(access.writes, access.addr, access.len, output)
    }

    /// Adds an access of the kernel for the current thread, split at page boundaries.
    pub(super) fn kernel_access(
        &mut self,
        writes: bool,
        addr: u64,
        len: u64,
        output: &mut Output<'_>,
    ) -> Result<(), DecodeError> {
        let kind = if writes { AccessKind::Store } else { AccessKind::Load };
        let end = addr.saturating_add(len);
        let mut vaddr = addr;
        while vaddr < end && !output.is_full() {
            let piece_end = ((vaddr | (PAGE_BYTES - 1)).saturating_add(1)).min(end);
            let size_bytes = (piece_end - vaddr) as u16;
            if self.is_recorded(vaddr, size_bytes, writes, output) {
                output.append(&[Access { vaddr, pc: 0, gap: 0, size_bytes, kind, maker: Maker::KERNEL }], &[])?;
                self.current.flow.skip(1);
            }
            vaddr = piece_end;
        }
        Ok(())
    }

    /// Whether an access belongs to the recording; in a skipped stretch only first touches do.
    fn is_recorded(&mut self, vaddr: u64, size_bytes: u16, writes: bool, output: &mut Output<'_>) -> bool {
        let Mode::Skipped { stretch, .. } = output.mode() else { return true };
        self.pages.begin(stretch);
        let first = self.pages.touch(vaddr, size_bytes, writes);
        output.executed(0, u64::from(!first));
        first
    }
}
