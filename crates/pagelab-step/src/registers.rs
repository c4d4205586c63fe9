//! Values of a thread's registers, as far as addresses need them.

use iced_x86::Register;

/// General registers, and what else makes addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// In the order of their numbers: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub general: [u64; 16],
    pub rip: u64,
    pub flags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// The code segment, which tells 64-bit code from 32-bit code.
    pub code_segment: u64,
}

pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RSP: usize = 4;
pub const RSI: usize = 6;
pub const RDI: usize = 7;
pub const R11: usize = 11;

/// The direction flag.
const DIRECTION: u64 = 1 << 10;
/// The trap flag, which makes the processor execute single steps.
pub const TRAP: u64 = 1 << 8;

impl Registers {
    /// Arguments of a system call.
    pub fn arguments(&self) -> [u64; 6] {
        [RDI, RSI, RDX, 10, 8, 9].map(|register| self.general[register])
    }

    /// The value of a general register, or the base of a segment; none of a vector register.
    pub fn value(&self, register: Register) -> Option<u64> {
        match register {
            Register::None | Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
            Register::FS => Some(self.fs_base),
            Register::GS => Some(self.gs_base),
            Register::RIP | Register::EIP => Some(self.rip),
            _ if register.is_gpr64() => Some(self.general[register.number()]),
            _ if register.is_gpr32() => Some(self.general[register.number()] & 0xffff_ffff),
            // No other one of a byte makes an address.
            Register::AL => Some(self.general[RAX] & 0xff),
            _ if register.is_gpr16() => Some(self.general[register.number()] & 0xffff),
            _ => None,
        }
    }

    /// Whether string instructions go downwards.
    pub fn goes_down(&self) -> bool {
        self.flags & DIRECTION != 0
    }
}

impl From<&libc::user_regs_struct> for Registers {
    fn from(r: &libc::user_regs_struct) -> Self {
        Self {
            general: [
                r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
                r.r15,
            ],
            rip: r.rip,
            flags: r.eflags,
            fs_base: r.fs_base,
            gs_base: r.gs_base,
            code_segment: r.cs,
        }
    }
}
