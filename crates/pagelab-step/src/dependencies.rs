//! Which registers, and which loads of the same instruction, the values of an instruction come from.
//!
//! Registers have the numbers of the recorder's stream: 16 general ones, the flags, 16 of vectors. The stack pointer
//! counts as known. Every result of an instruction counts as made of everything that it reads, but for the pointers and
//! counts of string instructions.

use iced_x86::{Instruction as Decoded, InstructionInfo, OpAccess, Register, UsedMemory};

/// Number of the flags.
const FLAGS: u8 = 16;
/// Number of the first vector register.
const VECTORS: u8 = 17;
const STACK_POINTER: u8 = 4;

/// What a value depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Distance to a load of the instruction; 0 without one.
    pub back: u16,
    /// Whether that load's address depends on no register but the stack pointer.
    pub at_once: bool,
    /// Registers, a bit each; none beside a load whose address is not known at once.
    pub registers: u64,
}

impl Origin {
    /// Of a value made of registers, and of a load: how many accesses away, and the registers that make its address.
    fn new(registers: u64, load: Option<(u16, u64)>) -> Self {
        match load {
            None => Self { back: 0, at_once: false, registers },
            Some((back, 0)) => Self { back, at_once: true, registers },
            Some((back, _)) => Self { back, at_once: false, registers: 0 },
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    /// Registers that make the address of each memory operand, in the order of the decoder.
    addresses: Vec<(UsedMemory, u64)>,
    /// Registers that are read, but for those that make addresses only.
    data: u64,
    /// Registers that are written.
    written: u64,
    /// What a condition is made of.
    pub condition: u64,
}

fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    if full.is_gpr64() {
        Some(full.number() as u8).filter(|number| *number != STACK_POINTER)
    } else if full.is_vector_register() && full.number() < 16 {
        Some(VECTORS + full.number() as u8)
    } else {
        None
    }
}

fn bit(register: Register) -> u64 {
    number(register).map_or(0, |number| 1 << number)
}

impl Dependencies {
    pub fn new(instruction: &Decoded, info: &InstructionInfo) -> Self {
        let addresses: Vec<(UsedMemory, u64)> =
            info.used_memory().iter().map(|used| (*used, bit(used.base()) | bit(used.index()))).collect();
        let of_addresses = addresses.iter().fold(0, |all, (_, registers)| all | registers);
        let (mut data, mut written) = (0, 0);
        for used in info.used_registers() {
            let register = bit(used.register());
            let (reads, writes) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                // The other bytes of the register stay.
                OpAccess::Write => (used.register().is_gpr8() || used.register().is_gpr16(), true),
                OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => (false, false),
            };
            data |= if reads { register } else { 0 };
            written |= if writes { register } else { 0 };
        }
        // A register that makes an address is not data, unless the instruction has it as an operand, too.
        let operands = (0..instruction.op_count())
            .filter(|i| instruction.op_kind(*i) == iced_x86::OpKind::Register)
            .fold(0, |all, i| all | bit(instruction.op_register(i)));
        data &= !of_addresses | operands;
        if instruction.rflags_read() != 0 {
            data |= 1 << FLAGS;
        }
        if instruction.rflags_modified() != 0 {
            written |= 1 << FLAGS;
        }
        if instruction.is_string_instruction() {
            // Pointers and counts move by constants.
            let moved = bit(Register::RSI) | bit(Register::RDI) | bit(Register::RCX);
            (data, written) = (data & !moved, written & !moved);
        }
        Self { addresses, data, written, condition: data }
    }

    fn address_of(&self, used: &UsedMemory) -> u64 {
        self.addresses.iter().find(|(known, _)| known == used).map_or(0, |(_, registers)| *registers)
    }

    /// What an access depends on. `load` is the instruction's last load before it: how far back, and its operand.
    pub fn of_access(&self, used: &UsedMemory, writes: bool, load: Option<(u16, &UsedMemory)>) -> Origin {
        let address = self.address_of(used);
        if !writes {
            return Origin::new(address, None);
        }
        Origin::new(address | self.data, load.map(|(back, used)| (back, self.address_of(used))))
    }

    /// The registers that are written, and what their values depend on. `load` is the instruction's last load: how many
    /// accesses back from its end, and its operand.
    pub fn of_registers(&self, load: Option<(u16, &UsedMemory)>) -> Vec<(u8, Origin)> {
        let origin = Origin::new(self.data, load.map(|(back, used)| (back, self.address_of(used))));
        let numbers = (0..=VECTORS + 15).filter(|number| self.written >> number & 1 != 0);
        numbers.map(|number| (number, origin)).filter(|(number, origin)| !is_unchanged(*number, origin)).collect()
    }
}

/// Whether a register depends on itself alone, as a counter does.
fn is_unchanged(number: u8, origin: &Origin) -> bool {
    origin.back == 0 && origin.registers == 1 << number
}
