//! Which memory a system call has touched, from its arguments and its result.

use crate::memory::Memory;

/// Memory that a call touches. The numbers are those of arguments, and of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A text is read.
    Text(usize),
    /// Bytes at an address are read.
    In(usize, u64),
    Out(usize, u64),
    InOut(usize, u64),
    /// An array: its address, its length, and the bytes of an element.
    InArray(usize, usize, u64),
    OutArray(usize, usize, u64),
    InOutArray(usize, usize, u64),
    /// As many bytes as the call returned are written.
    Returned(usize),
    /// As many elements.
    ReturnedTimes(usize, u64),
    /// As many bytes as the call returned are read.
    Sent(usize),
    /// A list of parts of memory, whose length is an argument; as many bytes as the call returned.
    InVectors(usize, usize),
    OutVectors(usize, usize),
    /// Memory whose length stands in memory, at the address that is the other argument.
    OutSized(usize, usize),
    /// A `struct msghdr`.
    InMessage(usize),
    OutMessage(usize),
    /// As many of them as the call returned.
    InMessages(usize),
    OutMessages(usize),
    /// A message of a System V queue, with the length of its text.
    QueueSend(usize, usize),
    QueueReceive(usize),
    /// A byte for each page of the range of the first two arguments.
    Pages(usize, usize),
    /// The three sets of `select`.
    DescriptorSets,
}

/// An access of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAccess {
    pub writes: bool,
    pub address: u64,
    pub bytes: u64,
}

/// Bytes of `struct iovec`, `struct msghdr` and `struct mmsghdr`.
const VECTOR_BYTES: u64 = 16;
const MESSAGE_BYTES: u64 = 56;
const NUMBERED_MESSAGE_BYTES: u64 = 64;
/// The kernel takes no more parts, and no more messages.
const MOST_VECTORS: u64 = 1024;
const EFAULT: i64 = -libc::EFAULT as i64;

/// What a call has touched.
pub struct Touched<'a> {
    pub memory: &'a Memory,
    pub arguments: &'a [u64; 6],
    pub result: i64,
    pub accesses: Vec<KernelAccess>,
}

impl Touched<'_> {
    /// Adds what belongs to `touch`. A call that has failed has written nothing, and read nothing from a bad pointer.
    pub fn add(&mut self, touch: Touch) {
        let (argument, result) = (|number: usize| self.arguments[number], self.result);
        if result == EFAULT {
            return;
        }
        match touch {
            Touch::Text(text) => self.text(argument(text)),
            Touch::In(address, bytes) => self.reads(argument(address), bytes),
            Touch::InArray(address, count, bytes) => {
                self.reads(argument(address), argument(count).saturating_mul(bytes))
            }
            Touch::InVectors(address, count) => self.vectors(false, argument(address), argument(count)),
            Touch::OutVectors(address, count) => self.vectors(true, argument(address), argument(count)),
            Touch::InMessage(address) if result >= 0 => self.message(false, argument(address), result as u64),
            Touch::OutMessage(address) if result >= 0 => self.message(true, argument(address), result as u64),
            Touch::InMessages(address) => self.messages(false, argument(address)),
            Touch::OutMessages(address) => self.messages(true, argument(address)),
            Touch::Sent(address) if result > 0 => self.reads(argument(address), result as u64),
            Touch::QueueSend(address, bytes) => self.reads(argument(address), 8 + argument(bytes)),
            Touch::DescriptorSets => {
                let bytes = argument(0).div_ceil(64) * 8;
                for set in 1..=3 {
                    self.reads_and_writes(argument(set), bytes);
                }
                self.reads_and_writes(argument(4), VECTOR_BYTES);
            }
            _ if result < 0 => {}
            Touch::Out(address, bytes) => self.writes(argument(address), bytes),
            Touch::InOut(address, bytes) => self.reads_and_writes(argument(address), bytes),
            Touch::OutArray(address, count, bytes) => {
                self.writes(argument(address), argument(count).saturating_mul(bytes))
            }
            Touch::InOutArray(address, count, bytes) => {
                self.reads_and_writes(argument(address), argument(count).saturating_mul(bytes));
            }
            Touch::Returned(address) => self.writes(argument(address), result as u64),
            Touch::ReturnedTimes(address, bytes) => {
                self.writes(argument(address), (result as u64).saturating_mul(bytes))
            }
            Touch::QueueReceive(address) => self.writes(argument(address), 8 + result as u64),
            Touch::Pages(address, bytes) => self.writes(argument(address), argument(bytes).div_ceil(4096)),
            Touch::OutSized(address, length) => self.sized(argument(address), argument(length)),
            Touch::InMessage(_) | Touch::OutMessage(_) | Touch::Sent(_) => {}
        }
    }

    pub fn reads(&mut self, address: u64, bytes: u64) {
        self.access(false, address, bytes);
    }

    pub fn writes(&mut self, address: u64, bytes: u64) {
        self.access(true, address, bytes);
    }

    fn reads_and_writes(&mut self, address: u64, bytes: u64) {
        self.reads(address, bytes);
        if self.result >= 0 {
            self.writes(address, bytes);
        }
    }

    fn access(&mut self, writes: bool, address: u64, bytes: u64) {
        if address != 0 && bytes != 0 {
            self.accesses.push(KernelAccess { writes, address, bytes });
        }
    }

    pub fn text(&mut self, address: u64) {
        if address != 0
            && let Some(text) = self.memory.text(address)
        {
            self.reads(address, text.len() as u64 + 1);
        }
    }

    /// The parts that a list names.
    pub fn parts(&self, address: u64, count: u64) -> Vec<(u64, u64)> {
        let mut list = vec![0; (count.min(MOST_VECTORS) * VECTOR_BYTES) as usize];
        let read = self.memory.read(address, &mut list);
        let words: Vec<u64> = list[..read].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        words.as_chunks().0.iter().map(|[start, bytes]| (*start, *bytes)).collect()
    }

    fn vectors(&mut self, writes: bool, address: u64, count: u64) {
        self.reads(address, count.min(MOST_VECTORS) * VECTOR_BYTES);
        self.parts_of(writes, address, count, self.result.max(0) as u64);
    }

    /// The first `bytes` of the parts that a list names.
    fn parts_of(&mut self, writes: bool, address: u64, count: u64, bytes: u64) {
        let mut left = bytes;
        for (start, length) in self.parts(address, count) {
            self.access(writes, start, length.min(left));
            left -= length.min(left);
        }
    }

    fn sized(&mut self, address: u64, length: u64) {
        let bytes = self.memory.u32(length).unwrap_or(0);
        self.reads_and_writes(length, 4);
        if length != 0 {
            self.writes(address, bytes.into());
        }
    }

    fn message(&mut self, writes: bool, address: u64, bytes: u64) {
        self.reads(address, MESSAGE_BYTES);
        let Some(words) = self.memory.bytes::<48>(address) else { return };
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        let (name, name_bytes, list, count) = (word(0), word(8) & 0xffff_ffff, word(16), word(24));
        self.access(writes, name, name_bytes);
        self.reads(list, count.min(MOST_VECTORS) * VECTOR_BYTES);
        self.parts_of(writes, list, count, bytes);
        self.access(writes, word(32), word(40));
        if writes {
            self.writes(address, MESSAGE_BYTES);
        }
    }

    fn messages(&mut self, writes: bool, address: u64) {
        for number in 0..(self.result.max(0) as u64).min(MOST_VECTORS) {
            let at = address.saturating_add(number * NUMBERED_MESSAGE_BYTES);
            let bytes = self.memory.u32(at.saturating_add(MESSAGE_BYTES)).unwrap_or(0);
            self.message(writes, at, bytes.into());
            self.writes(at.saturating_add(MESSAGE_BYTES), 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(arguments: [u64; 6], result: i64, touch: Touch) -> Vec<(bool, u64, u64)> {
        let memory = Memory::open(std::process::id() as libc::pid_t).unwrap();
        let mut touched = Touched { memory: &memory, arguments: &arguments, result, accesses: Vec::new() };
        touched.add(touch);
        touched.accesses.iter().map(|access| (access.writes, access.address, access.bytes)).collect()
    }

    #[test]
    fn lengths_come_from_results_and_arguments() {
        assert_eq!(touched([3, 0x1000, 50, 0, 0, 0], 20, Touch::Returned(1)), [(true, 0x1000, 20)]);
        assert_eq!(touched([3, 0x1000, 50, 0, 0, 0], -4, Touch::Returned(1)), []);
        assert_eq!(touched([3, 0x1000, 5, 0, 0, 0], 0, Touch::InArray(1, 2, 12)), [(false, 0x1000, 60)]);
        assert_eq!(touched([0, 0x1000, 0, 0, 0, 0], -2, Touch::In(1, 16)), [(false, 0x1000, 16)]);
        assert_eq!(touched([0, 0x1000, 0, 0, 0, 0], EFAULT, Touch::In(1, 16)), []);
        let name = c"a name";
        assert_eq!(touched([name.as_ptr() as u64; 6], -2, Touch::Text(0)), [(false, name.as_ptr() as u64, 7)]);
    }

    #[test]
    fn lists_and_messages_are_read_from_memory() {
        let list: [u64; 4] = [0x1000, 100, 0x2000, 100];
        let at = list.as_ptr() as u64;
        let expected = [(false, at, 32), (true, 0x1000, 100), (true, 0x2000, 20)];
        assert_eq!(touched([3, at, 2, 0, 0, 0], 120, Touch::OutVectors(1, 2)), expected);
        let message: [u64; 7] = [0x5000, 16, at, 2, 0x6000, 24, 0];
        let address = message.as_ptr() as u64;
        let expected = [
            (false, address, 56),
            (false, 0x5000, 16),
            (false, at, 32),
            (false, 0x1000, 100),
            (false, 0x2000, 10),
            (false, 0x6000, 24),
        ];
        assert_eq!(touched([3, address, 0, 0, 0, 0], 110, Touch::InMessage(1)), expected);
    }
}
