//! Text of Valgrind's lackey, as `import::lackey` describes it.
//!
//! Accesses are complete. Instructions without accesses lose their addresses.

use std::io::Write;

use super::{Instruction, Lost, Writer};
use crate::AccessKind;

pub(super) struct Text;

impl Writer for Text {
    fn write(&mut self, instruction: &Instruction, bytes: &mut Vec<u8>, _: &mut Lost) {
        let Instruction { pc, size_bytes, accesses } = instruction;
        let written = writeln!(bytes, "I  {pc:08x},{size_bytes}").and_then(|()| {
            accesses.iter().try_for_each(|(kind, vaddr, size_bytes)| {
                let letter = match kind {
                    AccessKind::Load | AccessKind::Fetch => 'L',
                    AccessKind::Store => 'S',
                    AccessKind::Modify => 'M',
                };
                writeln!(bytes, " {letter} {vaddr:08x},{size_bytes}")
            })
        });
        written.expect("memory takes what is written to it");
    }
}
