//! What is known about an instruction before it is executed.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, InstructionInfoFactory, MemorySize, Mnemonic,
    OpAccess, OpKind, Register, UsedMemory,
};

use crate::access::{Kind, kind};
use crate::dependencies::Dependencies;

/// The longest instruction.
pub const LONGEST: usize = 15;

/// How the memory of an instruction is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// As encoded.
    Plain,
    /// A string instruction that repeats; each step executes one iteration.
    Repeated,
    /// A bit of memory whose number is in a register: it may be outside the operand.
    Bit(Register),
    /// The elements of a move whose bits are set in the mask register.
    Masked(Register),
    /// As many consecutive elements as bits are set in the mask register.
    Packed(Register),
    /// The whole operand, if any bit is set in the mask register.
    IfAny(Register),
    /// The elements whose top bits are set in the vector.
    VectorMasked(Register),
    /// Elements at addresses from a vector, whose bits are set in the mask register, or whose top bits in the vector.
    Gathered { mask: Register, lanes: usize },
    /// An area of `XSAVE`.
    Area { compacted: bool },
    /// The rows of a tile.
    Tile,
}

/// Instructions that the tracer must treat in a special way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    None,
    SystemCall,
    /// `int 0x80`.
    OldSystemCall,
    /// Stores the flags, among which a single step is visible.
    PushFlags {
        bytes: u8,
    },
    /// The processor executes the next instruction in the same step.
    HoldsTrapBack,
}

/// How control leaves an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    ConditionalBranch,
    Call,
    Return,
}

/// Memory that an instruction may access.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub used: UsedMemory,
    pub bytes: u64,
    /// Bytes of an element, if a mask can select elements.
    pub element_bytes: u64,
    pub kind: Kind,
}

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

impl Operand {
    fn new(used: UsedMemory, instruction: &Decoded) -> Self {
        let (mut used, mut kind) = (used, kind(used.access()));
        let size = match used.memory_size() {
            MemorySize::Unknown => instruction.memory_size(),
            known => known,
        };
        let (mut bytes, mut element_bytes) = (size.size() as u64, size.element_size().max(1) as u64);
        match instruction.mnemonic() {
            Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => element_bytes = 1,
            // It reads bits of the header, too.
            Mnemonic::Xsave
            | Mnemonic::Xsave64
            | Mnemonic::Xsaveopt
            | Mnemonic::Xsaveopt64
            | Mnemonic::Xsavec
            | Mnemonic::Xsavec64 => kind = Kind::Store,
            Mnemonic::Clzero => {
                let (segment, base, size) = (Register::DS, Register::RAX, MemorySize::UInt512);
                used = UsedMemory::new(segment, base, Register::None, 1, 0, size, OpAccess::Write);
                (bytes, kind) = (LINE_BYTES, Kind::Store);
            }
            _ => {}
        }
        Self { used, bytes, element_bytes, kind }
    }
}

fn memory(instruction: &Decoded, used: &[UsedMemory]) -> Vec<Operand> {
    if is_hint(instruction.mnemonic()) {
        return Vec::new();
    }
    let line = UsedMemory::default();
    let used = if instruction.mnemonic() == Mnemonic::Clzero { std::slice::from_ref(&line) } else { used };
    let mut memory: Vec<Operand> = used.iter().map(|used| Operand::new(*used, instruction)).collect();
    // What is read comes first: a call through memory stores the return address after it.
    memory.sort_by_key(|operand| operand.kind == Kind::Store);
    memory
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub decoded: Decoded,
    /// Its bytes, to see whether other ones are at its address by now.
    pub bytes: [u8; LONGEST],
    pub memory: Vec<Operand>,
    pub operands: Operands,
    pub special: Special,
    pub flow: Flow,
    pub dependencies: Dependencies,
}

impl Instruction {
    pub fn len(&self) -> usize {
        self.decoded.len()
    }

    pub fn address(&self) -> u64 {
        self.decoded.ip()
    }

    pub fn next_address(&self) -> u64 {
        self.decoded.next_ip()
    }

    /// Whether the extended state is needed to find the addresses.
    pub fn needs_extended_state(&self) -> bool {
        match self.operands {
            Operands::Plain | Operands::Repeated | Operands::Bit(_) => false,
            Operands::Masked(_)
            | Operands::Packed(_)
            | Operands::IfAny(_)
            | Operands::VectorMasked(_)
            | Operands::Gathered { .. }
            | Operands::Area { .. }
            | Operands::Tile => true,
        }
    }
}

/// Decodes instructions; keeps the memory that this takes.
pub struct InstructionDecoder {
    factory: InstructionInfoFactory,
}

impl Default for InstructionDecoder {
    fn default() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }
}

impl InstructionDecoder {
    /// The instruction at the beginning of `bytes`, which is at `address`; none if it is invalid or cut off.
    pub fn decode(&mut self, bytes: &[u8], address: u64) -> Option<Instruction> {
        let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if decoded.is_invalid() {
            return None;
        }
        let info = self.factory.info(&decoded);
        let mut kept = [0; LONGEST];
        kept[..decoded.len()].copy_from_slice(bytes.get(..decoded.len())?);
        let memory = memory(&decoded, info.used_memory());
        let dependencies = Dependencies::new(&decoded, info);
        Some(Instruction {
            bytes: kept,
            operands: operands(&decoded, &memory),
            special: special(&decoded),
            flow: flow(&decoded),
            memory,
            decoded,
            dependencies,
        })
    }
}

/// Instructions with an address that neither load nor store.
fn is_hint(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb | Mnemonic::Cldemote | Mnemonic::Monitor
    )
}

fn special(instruction: &Decoded) -> Special {
    match instruction.mnemonic() {
        Mnemonic::Syscall => Special::SystemCall,
        Mnemonic::Int if instruction.immediate8() == 0x80 => Special::OldSystemCall,
        Mnemonic::Pushf => Special::PushFlags { bytes: 2 },
        Mnemonic::Pushfq => Special::PushFlags { bytes: 8 },
        Mnemonic::Mov if instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::SS => {
            Special::HoldsTrapBack
        }
        _ => Special::None,
    }
}

fn flow(instruction: &Decoded) -> Flow {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Flow::ConditionalBranch,
        FlowControl::Call | FlowControl::IndirectCall if instruction.code() != Code::Syscall => Flow::Call,
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Flow::Return,
        FlowControl::Next
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::Exception => Flow::Next,
    }
}

fn operands(instruction: &Decoded, memory: &[Operand]) -> Operands {
    let is_memory = |operand: u32| operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Memory;
    match instruction.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            if is_memory(0) && instruction.op1_kind() == OpKind::Register =>
        {
            return Operands::Bit(instruction.op1_register());
        }
        Mnemonic::Xsave | Mnemonic::Xsave64 | Mnemonic::Xsaveopt | Mnemonic::Xsaveopt64 => {
            return Operands::Area { compacted: false };
        }
        // Restores both forms; the standard one is the longer.
        Mnemonic::Xrstor | Mnemonic::Xrstor64 => return Operands::Area { compacted: false },
        Mnemonic::Xsavec | Mnemonic::Xsavec64 => return Operands::Area { compacted: true },
        Mnemonic::Tileloadd | Mnemonic::Tileloaddt1 | Mnemonic::Tilestored => return Operands::Tile,
        Mnemonic::Vmaskmovps | Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovd | Mnemonic::Vpmaskmovq => {
            return Operands::VectorMasked(instruction.op1_register());
        }
        Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => {
            return Operands::VectorMasked(instruction.op2_register());
        }
        _ => {}
    }
    if memory.is_empty() {
        return Operands::Plain;
    }
    if let Some(operand) = memory.iter().find(|operand| operand.used.vsib_size() != 0) {
        return gathered(instruction, operand);
    }
    if (instruction.has_rep_prefix() || instruction.has_repne_prefix()) && instruction.is_string_instruction() {
        return Operands::Repeated;
    }
    if !instruction.has_op_mask() {
        return Operands::Plain;
    }
    let mask = instruction.op_mask();
    if packs(instruction.mnemonic()) {
        Operands::Packed(mask)
    } else if moves_elements(instruction) && !instruction.memory_size().is_broadcast() {
        Operands::Masked(mask)
    } else {
        Operands::IfAny(mask)
    }
}

fn gathered(instruction: &Decoded, operand: &Operand) -> Operands {
    let is_store = instruction.op0_kind() == OpKind::Memory;
    let data = if is_store { instruction.op1_register() } else { instruction.op0_register() };
    let indices = operand.used.index().size() / operand.used.vsib_size().max(1) as usize;
    let mask = if instruction.has_op_mask() { instruction.op_mask() } else { instruction.op2_register() };
    Operands::Gathered { mask, lanes: indices.min(data.size() / operand.element_bytes as usize) }
}

/// Instructions whose mask selects how many elements of memory there are.
fn packs(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Vcompressps
            | Mnemonic::Vcompresspd
            | Mnemonic::Vpcompressb
            | Mnemonic::Vpcompressw
            | Mnemonic::Vpcompressd
            | Mnemonic::Vpcompressq
            | Mnemonic::Vexpandps
            | Mnemonic::Vexpandpd
            | Mnemonic::Vpexpandb
            | Mnemonic::Vpexpandw
            | Mnemonic::Vpexpandd
            | Mnemonic::Vpexpandq
    )
}

/// Whether each bit of the mask belongs to one element of memory.
fn moves_elements(instruction: &Decoded) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Vmovdqu8
            | Mnemonic::Vmovdqu16
            | Mnemonic::Vmovdqu32
            | Mnemonic::Vmovdqu64
            | Mnemonic::Vmovdqa32
            | Mnemonic::Vmovdqa64
            | Mnemonic::Vmovups
            | Mnemonic::Vmovupd
            | Mnemonic::Vmovaps
            | Mnemonic::Vmovapd
            | Mnemonic::Vmovss
            | Mnemonic::Vmovsd
            | Mnemonic::Vmovsh
            | Mnemonic::Vpmovqb
            | Mnemonic::Vpmovqw
            | Mnemonic::Vpmovqd
            | Mnemonic::Vpmovdb
            | Mnemonic::Vpmovdw
            | Mnemonic::Vpmovwb
            | Mnemonic::Vpmovzxbw
            | Mnemonic::Vpmovzxbd
            | Mnemonic::Vpmovzxbq
            | Mnemonic::Vpmovzxwd
            | Mnemonic::Vpmovzxwq
            | Mnemonic::Vpmovzxdq
            | Mnemonic::Vpmovsxbw
            | Mnemonic::Vpmovsxbd
            | Mnemonic::Vpmovsxbq
            | Mnemonic::Vpmovsxwd
            | Mnemonic::Vpmovsxwq
            | Mnemonic::Vpmovsxdq
    )
}
