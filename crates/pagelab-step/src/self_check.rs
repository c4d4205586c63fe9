//! Whether single steps work on this machine: emulated and virtual processors have got them wrong.

use std::io;

use libc::pid_t;

use crate::StepError;
use crate::instruction::{Instruction, InstructionDecoder, Operands, Special};
use crate::operands::iterations;
use crate::registers::{RAX, RCX, RSP, Registers};
use crate::sys::{self, Stop};

/// Below the stack pointer of the waiting process: what the known instructions may use.
const STACK_BYTES: u64 = 4096;
/// More steps than the known instructions take.
const MOST_STEPS: usize = 40;

/// Steps a child through known instructions.
///
/// # Errors
/// [`StepError::Forbidden`] if no process can be traced, [`StepError::Unreliable`] if a step is wrong.
pub fn check() -> Result<(), StepError> {
    let child = sys::fork_to_wait().map_err(StepError::Io)?;
    let checked = sys::seize(child, libc::PTRACE_O_EXITKILL).map_err(forbidden).and_then(|()| check_steps(child));
    sys::kill(child, libc::SIGKILL);
    while !matches!(sys::wait(), Ok(None | Some((_, Stop::Ended(_)))) | Err(_)) {}
    checked
}

/// Why a process must not be traced, and what would allow it.
pub fn forbidden(error: io::Error) -> StepError {
    if error.raw_os_error() != Some(libc::EPERM) {
        return StepError::Io(error);
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    StepError::Forbidden(what_forbids(scope.trim()))
}

/// The setting of yama; nothing where the kernel has none.
fn what_forbids(scope: &str) -> &'static str {
    match scope {
        "2" => "kernel.yama.ptrace_scope is 2, which allows it to root only (sudo sysctl kernel.yama.ptrace_scope=1)",
        "3" => "kernel.yama.ptrace_scope is 3, which forbids it until the next start of the system",
        _ => "a container or a seccomp filter forbids it (Docker allows it with --cap-add=SYS_PTRACE)",
    }
}

fn check_steps(child: pid_t) -> Result<(), StepError> {
    sys::interrupt(child).map_err(StepError::Io)?;
    if !matches!(sys::wait().map_err(StepError::Io)?, Some((_, Stop::Event(libc::PTRACE_EVENT_STOP, _)))) {
        return Err(StepError::Unreliable("a process did not stop when it was asked to".to_owned()));
    }
    let mut registers = sys::registers(child).map_err(StepError::Io)?;
    registers.rip = sys::known_instructions();
    registers.rsp = (registers.rsp - STACK_BYTES) & !15;
    // No system call is to be made again.
    registers.orig_rax = u64::MAX;
    sys::set_registers(child, &registers).map_err(StepError::Io)?;
    let mut decoder = InstructionDecoder::default();
    for _ in 0..MOST_STEPS {
        let before = Registers::from(&sys::registers(child).map_err(StepError::Io)?);
        let Some(instruction) = known(&before, &mut decoder) else {
            return Err(StepError::Unreliable(format!("a step led to {:#x}, where no instruction is", before.rip)));
        };
        if instruction.decoded.mnemonic() == iced_x86::Mnemonic::Hlt {
            return Ok(());
        }
        sys::step(child, 0).map_err(StepError::Io)?;
        let stop = sys::wait().map_err(StepError::Io)?.map(|(_, stop)| stop);
        if stop != Some(Stop::Signal(libc::SIGTRAP)) {
            let what = instruction.decoded.mnemonic();
            return Err(StepError::Unreliable(format!("the step over {what:?} ended with {stop:?}")));
        }
        let after = Registers::from(&sys::registers(child).map_err(StepError::Io)?);
        check_step(&instruction, &before, &after).map_err(StepError::Unreliable)?;
    }
    Err(StepError::Unreliable("known instructions took more steps than they have".to_owned()))
}

fn known(registers: &Registers, decoder: &mut InstructionDecoder) -> Option<Instruction> {
    let offset = registers.rip.checked_sub(sys::known_instructions())?;
    decoder.decode(sys::known_bytes().get(usize::try_from(offset).ok()?..)?, registers.rip)
}

/// Compares a step with what the instruction does.
fn check_step(instruction: &Instruction, before: &Registers, after: &Registers) -> Result<(), String> {
    let code = &instruction.decoded;
    let mut expected = instruction.next_address();
    if instruction.operands == Operands::Repeated {
        let steps = iterations(instruction, before, after);
        if steps != 1 {
            return Err(format!("a step over {:?} executed {steps} iterations", code.mnemonic()));
        }
        if after.general[RCX] != 0 {
            expected = before.rip;
        }
    } else if code.flow_control() == iced_x86::FlowControl::UnconditionalBranch {
        expected = code.near_branch_target();
    }
    if after.rip != expected {
        let (to, what) = (after.rip.wrapping_sub(expected) as i64, code.mnemonic());
        return Err(format!("the step over {what:?} ended {to} bytes from where it should"));
    }
    if instruction.special == Special::SystemCall && after.general[RAX] == before.general[RAX] {
        return Err("a step over a system call did not make it".to_owned());
    }
    if instruction.special == Special::None && !instruction.memory.is_empty() && after.general[RSP] == 0 {
        return Err("a step changed the stack pointer".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registers after each step over the known instructions.
    fn steps(mut spoil: impl FnMut(&Instruction, &mut Registers)) -> Result<(), String> {
        let mut decoder = InstructionDecoder::default();
        let mut registers = Registers { rip: sys::known_instructions(), ..Registers::default() };
        registers.general[RSP] = 0x1000;
        registers.general[RCX] = 2;
        loop {
            let Some(instruction) = known(&registers, &mut decoder) else { return Err("it left them".to_owned()) };
            let mut after = registers;
            after.rip = instruction.next_address();
            match instruction.decoded.mnemonic() {
                iced_x86::Mnemonic::Hlt => return Ok(()),
                iced_x86::Mnemonic::Movsb => {
                    after.general[RCX] -= 1;
                    after.rip = if after.general[RCX] == 0 { after.rip } else { registers.rip };
                }
                iced_x86::Mnemonic::Jmp => after.rip = instruction.decoded.near_branch_target(),
                iced_x86::Mnemonic::Syscall => after.general[RAX] = 7,
                _ => {}
            }
            spoil(&instruction, &mut after);
            check_step(&instruction, &registers, &after)?;
            registers = after;
        }
    }

    #[test]
    fn wrong_steps_are_noticed() {
        assert_eq!(steps(|_, _| {}), Ok(()));
        let skips_after = |mnemonic| {
            steps(move |instruction, after| {
                if instruction.decoded.mnemonic() == mnemonic {
                    after.rip += 2;
                }
            })
        };
        assert!(skips_after(iced_x86::Mnemonic::Cpuid).is_err_and(|why| why.contains("Cpuid ended 2 bytes")));
        assert!(skips_after(iced_x86::Mnemonic::Syscall).is_err());
        let whole = steps(|instruction, after| {
            if instruction.operands == Operands::Repeated {
                (after.general[RCX], after.rip) = (0, instruction.next_address());
            }
        });
        assert!(whole.is_err_and(|why| why.contains("executed 2 iterations")));
    }

    #[test]
    fn the_setting_that_forbids_tracing_is_named() {
        let told = [("2", "ptrace_scope is 2"), ("3", "ptrace_scope is 3"), ("1", "seccomp"), ("", "seccomp")];
        for (scope, words) in told {
            assert!(what_forbids(scope).contains(words), "{scope}");
        }
        let other = forbidden(io::Error::from_raw_os_error(libc::ESRCH));
        assert!(matches!(other, StepError::Io(_)));
        assert!(matches!(forbidden(io::Error::from_raw_os_error(libc::EPERM)), StepError::Forbidden(_)));
    }

    #[test]
    fn this_machine_is_checked_or_the_reason_is_told() {
        match check() {
            Ok(()) => {}
            Err(error) => assert!(error.to_string().contains("single steps"), "{error}"),
        }
    }
}
