//! Accesses to memory, as an instruction makes them.

use iced_x86::OpAccess;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Load,
    Store,
    /// A load and a store of the same place.
    Modify,
}

impl Kind {
    pub fn writes(self) -> bool {
        self != Self::Load
    }
}

pub fn kind(access: OpAccess) -> Kind {
    match access {
        OpAccess::Write | OpAccess::CondWrite => Kind::Store,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Kind::Modify,
        OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess => Kind::Load,
    }
}

/// An access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: u64,
    pub bytes: u16,
    pub kind: Kind,
    /// Which of the instruction's memory operands it belongs to.
    pub operand: u8,
}
