//! The instructions of a program image: decoded once, and described once to the recorder.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::access::{Access, Kind};
use crate::dependencies::Origin;
use crate::instruction::{Flow, Instruction, InstructionDecoder, LONGEST};
use crate::stream::{Description, Stream};

/// An access without its address.
type Shape = (u16, Kind, u8);

/// An instruction with the numbers under which it was described.
#[derive(Clone, Debug)]
pub struct Known {
    pub instruction: Rc<Instruction>,
    /// Usually one; several if a mask decides which accesses there are.
    numbers: Vec<(Box<[Shape]>, u32)>,
}

/// The known instructions of an image. A forked child has those of its parent.
#[derive(Clone, Debug, Default)]
pub struct Code {
    known: FxHashMap<u64, Known>,
    described: u32,
}

impl Code {
    /// The instruction at `address`, where these bytes are now; none if they are none.
    pub fn at(&mut self, address: u64, bytes: &[u8], decoder: &mut InstructionDecoder) -> Option<Rc<Instruction>> {
        if let Some(known) = self.known.get(&address) {
            let length = known.instruction.len();
            if bytes.get(..length) == Some(&known.instruction.bytes[..length]) {
                return Some(Rc::clone(&known.instruction));
            }
        }
        let instruction = Rc::new(decoder.decode(&bytes[..bytes.len().min(LONGEST)], address)?);
        self.known.insert(address, Known { instruction: Rc::clone(&instruction), numbers: Vec::new() });
        Some(instruction)
    }

    /// Sends that an instruction was executed with these accesses.
    pub fn execute(&mut self, instruction: &Rc<Instruction>, accesses: &[Access], stream: &mut Stream) {
        let number = self.number(instruction, accesses, stream);
        stream.execute(number, accesses.iter().map(|access| access.address));
    }

    fn number(&mut self, instruction: &Rc<Instruction>, accesses: &[Access], stream: &mut Stream) -> u32 {
        let shape = |access: &Access| (access.bytes, access.kind, access.operand);
        let known = self.known.entry(instruction.address());
        let known = known.or_insert_with(|| Known { instruction: Rc::clone(instruction), numbers: Vec::new() });
        let described = known.numbers.iter().find(|(shapes, _)| shapes.iter().copied().eq(accesses.iter().map(shape)));
        if let Some((_, number)) = described
            && Rc::ptr_eq(&known.instruction, instruction)
        {
            return *number;
        }
        let number = self.described;
        self.described += 1;
        describe(number, instruction, accesses, stream);
        if Rc::ptr_eq(&known.instruction, instruction) {
            known.numbers.push((accesses.iter().map(shape).collect(), number));
        }
        number
    }
}

fn describe(number: u32, instruction: &Instruction, accesses: &[Access], stream: &mut Stream) {
    let dependencies = &instruction.dependencies;
    let operand = |access: &Access| &instruction.memory[usize::from(access.operand)].used;
    let last_load = |before: usize| {
        let at = accesses[..before].iter().rposition(|access| access.kind != Kind::Store)?;
        Some(((before - at) as u16, operand(&accesses[at])))
    };
    let described: Vec<(u16, Kind, Origin)> = accesses
        .iter()
        .enumerate()
        .map(|(i, access)| {
            let load = last_load(i).filter(|_| access.kind.writes());
            (access.bytes, access.kind, dependencies.of_access(operand(access), access.kind.writes(), load))
        })
        .collect();
    let registers = dependencies.of_registers(last_load(accesses.len()));
    let branch = (instruction.flow == Flow::ConditionalBranch).then_some(Origin {
        back: 0,
        at_once: false,
        registers: dependencies.condition,
    });
    let transfer = match instruction.flow {
        Flow::Call => 1,
        Flow::Return => 2,
        Flow::Next | Flow::ConditionalBranch => 0,
    };
    let (address, bytes) = (instruction.address(), instruction.len() as u32);
    stream.describe(&Description {
        number,
        address,
        bytes,
        accesses: &described,
        registers: &registers,
        branch,
        transfer,
    });
}
