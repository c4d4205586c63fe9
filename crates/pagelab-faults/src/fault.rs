//! One page fault.

use std::num::NonZeroU32;

/// Largest number of cores of a fault trace.
pub const MAX_CORES: u32 = 1 << 16;

/// A page fault: where and when the processor raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Nanoseconds since the beginning of the trace.
    pub time_ns: u64,
    /// The core that raised it, from 0.
    pub core: u16,
    /// The virtual address that was accessed.
    pub address: u64,
    /// Kind of the access, and whether the page was present.
    pub kind: FaultKind,
    /// Process id, as the system reported it.
    pub process: u32,
    /// Thread id, as the system reported it.
    pub thread: u32,
    /// Duration of the fault, if it was measured for this fault.
    pub latency_ns: Option<NonZeroU32>,
}

/// Kind of an access that faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAccess {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Instruction,
}

/// The processor's error code of a fault, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultKind {
    /// None if the recorder does not report it.
    pub access: Option<FaultAccess>,
    /// The page was mapped, but the mapping forbids the access: copy on write, for example.
    pub present: bool,
    /// Kernel code faulted while it worked for the program.
    pub by_kernel: bool,
}

impl FaultKind {
    /// A write to a page that is not mapped: a program's first access to anonymous memory.
    pub const FIRST_WRITE: Self = Self { access: Some(FaultAccess::Write), present: false, by_kernel: false };

    /// Decodes the error code of an x86 page fault (Intel SDM, volume 3, section 4.7): bit 0 present, 1 write, 2 user,
    /// 4 instruction.
    pub fn from_error_code(code: u64) -> Self {
        let access = match (code & 1 << 4 != 0, code & 1 << 1 != 0) {
            (true, _) => FaultAccess::Instruction,
            (false, true) => FaultAccess::Write,
            (false, false) => FaultAccess::Read,
        };
        Self { access: Some(access), present: code & 1 != 0, by_kernel: code & 1 << 2 == 0 }
    }

    /// Its number in the trace format.
    pub(crate) fn code(self) -> u8 {
        let access = match self.access {
            None => 0,
            Some(FaultAccess::Read) => 1,
            Some(FaultAccess::Write) => 2,
            Some(FaultAccess::Instruction) => 3,
        };
        access | u8::from(self.present) << 2 | u8::from(self.by_kernel) << 3
    }

    /// The kind with this number; none if there is no such kind.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let access = match code & 3 {
            0 => None,
            1 => Some(FaultAccess::Read),
            2 => Some(FaultAccess::Write),
            _ => Some(FaultAccess::Instruction),
        };
        (code < 16).then_some(Self { access, present: code & 4 != 0, by_kernel: code & 8 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_those_of_the_manual() {
        let kind = |access, present, by_kernel| FaultKind { access: Some(access), present, by_kernel };
        for (code, expected) in [
            (0x4, kind(FaultAccess::Read, false, false)),
            (0x6, FaultKind::FIRST_WRITE),
            (0x7, kind(FaultAccess::Write, true, false)),
            (0x14, kind(FaultAccess::Instruction, false, false)),
            (0x2, kind(FaultAccess::Write, false, true)),
            (0x0, kind(FaultAccess::Read, false, true)),
        ] {
            assert_eq!(FaultKind::from_error_code(code), expected, "{code:#x}");
        }
    }

    #[test]
    fn every_kind_has_a_number_of_its_own() {
        for code in 0..=u8::MAX {
            match FaultKind::from_code(code) {
                Some(kind) => assert_eq!(kind.code(), code),
                None => assert!(code >= 16),
            }
        }
    }
}
