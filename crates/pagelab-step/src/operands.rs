//! The memory that an instruction accesses, from the values of registers before it.

use iced_x86::{CodeSize, Mnemonic, Register};

use crate::access::{Access, Kind};
use crate::extended::Extended;
use crate::instruction::{Instruction, LINE_BYTES, Operand, Operands};
use crate::registers::{RAX, RCX, RDX, Registers};

/// The largest access of a trace.
const MOST_BYTES: u64 = 4096;

/// Appends the accesses that `instruction` makes with these registers. A repeated instruction makes those of one
/// iteration. Without extended state, instructions that depend on it count as making all accesses that they can make,
/// but gathers none.
pub fn accesses(
    instruction: &Instruction,
    registers: &Registers,
    extended: Option<Extended<'_>>,
    into: &mut Vec<Access>,
) {
    for (number, used) in instruction.memory.iter().enumerate() {
        let mut place = Place { into, operand: number as u8, kind: used.kind };
        match (instruction.operands, extended) {
            (Operands::Plain, _) if instruction.decoded.mnemonic() == Mnemonic::Clzero => place.line(registers),
            (Operands::Plain | Operands::Repeated, _) => place.whole(used, registers),
            (Operands::Bit(number), _) => place.bit(used, registers, number),
            (Operands::Masked(mask), Some(state)) => {
                place.elements(used, registers, |element| state.mask(mask.number()) >> element & 1 != 0);
            }
            (Operands::Packed(mask), Some(state)) => place.packed(used, registers, state.mask(mask.number())),
            (Operands::IfAny(mask), Some(state)) => {
                if state.mask(mask.number()) != 0 {
                    place.whole(used, registers);
                }
            }
            (Operands::VectorMasked(mask), Some(state)) => {
                let size = used.element_bytes.clamp(1, 8) as usize;
                place.elements(used, registers, |element| is_selected(&state, mask, element, size));
            }
            (Operands::Gathered { mask, lanes }, Some(state)) => place.gathered(used, registers, &state, mask, lanes),
            (Operands::Area { compacted }, state) => place.area(used, registers, state, compacted),
            (Operands::Tile, Some(state)) => place.tile(instruction, registers, &state),
            (Operands::Masked(_) | Operands::Packed(_) | Operands::IfAny(_) | Operands::VectorMasked(_), None) => {
                place.whole(used, registers);
            }
            (Operands::Gathered { .. } | Operands::Tile, None) => {}
        }
    }
}

/// Whether the top bit of an element of a vector is set.
fn is_selected(state: &Extended<'_>, mask: Register, element: usize, size: usize) -> bool {
    state.element(mask.number(), element, size) >> (size * 8 - 1) & 1 != 0
}

/// Where the accesses of an operand go.
struct Place<'a> {
    into: &'a mut Vec<Access>,
    operand: u8,
    kind: Kind,
}

impl Place<'_> {
    fn add(&mut self, address: u64, bytes: u64) {
        let (mut address, mut left) = (address, bytes);
        while left > 0 {
            let part = left.min(MOST_BYTES);
            self.into.push(Access { address, bytes: part as u16, kind: self.kind, operand: self.operand });
            (address, left) = (address.wrapping_add(part), left - part);
        }
    }

    fn whole(&mut self, operand: &Operand, registers: &Registers) {
        if let Some(address) = address(operand, registers) {
            self.add(address, operand.bytes);
        }
    }

    /// The line that the address in RAX is in.
    fn line(&mut self, registers: &Registers) {
        self.add(registers.general[RAX] & !(LINE_BYTES - 1), LINE_BYTES);
    }

    fn bit(&mut self, operand: &Operand, registers: &Registers, number: Register) {
        let (Some(address), Some(value)) = (address(operand, registers), registers.value(number)) else { return };
        let bytes = operand.bytes.max(1) as i64;
        let unused = 64 - 8 * number.size() as u32;
        let bit = (value << unused) as i64 >> unused;
        self.add(address.wrapping_add((bit.div_euclid(8 * bytes) * bytes) as u64), bytes as u64);
    }

    /// The elements that are selected, an access for those that follow each other.
    fn elements(&mut self, operand: &Operand, registers: &Registers, is_selected: impl Fn(usize) -> bool) {
        let Some(address) = address(operand, registers) else { return };
        let size = operand.element_bytes as usize;
        let count = operand.bytes as usize / size;
        let mut from = 0;
        for element in 0..=count {
            if element < count && is_selected(element) {
                continue;
            }
            self.add(address.wrapping_add((from * size) as u64), ((element - from) * size) as u64);
            from = element + 1;
        }
    }

    fn packed(&mut self, operand: &Operand, registers: &Registers, mask: u64) {
        let Some(address) = address(operand, registers) else { return };
        let size = operand.element_bytes as usize;
        let count = operand.bytes as usize / size;
        let unused = 64 - count.clamp(1, 64) as u32;
        self.add(address, u64::from((mask << unused).count_ones()) * size as u64);
    }

    fn gathered(
        &mut self,
        operand: &Operand,
        registers: &Registers,
        state: &Extended<'_>,
        mask: Register,
        lanes: usize,
    ) {
        let size = operand.element_bytes as usize;
        for lane in 0..lanes {
            let selected = if mask.is_k() {
                state.mask(mask.number()) >> lane & 1 != 0
            } else {
                is_selected(state, mask, lane, size.min(8))
            };
            if !selected {
                continue;
            }
            let address =
                operand.used.virtual_address(lane, |register, element, bytes| match registers.value(register) {
                    None if register.is_vector_register() => Some(state.element(register.number(), element, bytes)),
                    value => value,
                });
            if let Some(address) = address {
                self.add(address, size as u64);
            }
        }
    }

    /// The whole area up to its last component, though the processor leaves out parts that have their initial values.
    fn area(&mut self, operand: &Operand, registers: &Registers, state: Option<Extended<'_>>, compacted: bool) {
        let (Some(address), Some(state)) = (address(operand, registers), state) else { return };
        let wanted = registers.general[RDX] << 32 | registers.general[RAX] & 0xffff_ffff;
        self.add(address, state.layout.area_bytes(wanted, compacted));
    }

    fn tile(&mut self, instruction: &Instruction, registers: &Registers, state: &Extended<'_>) {
        let code = &instruction.decoded;
        let tile = (0..code.op_count()).map(|i| code.op_register(i)).find(|register| register.is_tmm());
        let (Some(tile), Some(base)) = (tile, registers.value(code.memory_base())) else { return };
        let stride = registers.value(code.memory_index()).unwrap_or(0).wrapping_mul(code.memory_index_scale().into());
        let begin = base.wrapping_add(code.memory_displacement64());
        let (first, rows, row_bytes) = state.tile(tile.number());
        for row in first..rows {
            self.add(begin.wrapping_add(stride.wrapping_mul(row)), row_bytes);
        }
    }
}

fn address(operand: &Operand, registers: &Registers) -> Option<u64> {
    operand.used.virtual_address(0, |register, _, _| registers.value(register))
}

/// How many iterations of a repeated instruction a step has executed.
pub fn iterations(instruction: &Instruction, before: &Registers, after: &Registers) -> u64 {
    // With a prefix for the size of addresses it counts in ECX.
    let is_long = instruction.memory.first().is_none_or(|operand| operand.used.address_size() != CodeSize::Code32);
    let count = |registers: &Registers| registers.general[RCX] & if is_long { u64::MAX } else { 0xffff_ffff };
    count(before).saturating_sub(count(after))
}

#[cfg(test)]
#[path = "operands_tests.rs"]
mod tests;
