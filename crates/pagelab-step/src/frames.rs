//! The frames that the kernel writes for handlers of signals.

use crate::memory::Memory;

/// Offset of the pointer to the extended state from the frame's start: return address, then `ucontext_t`.
const STATE_POINTER: u64 = 8 + 224;
/// Offset of the software-reserved bytes in the extended state, and what they begin with if they are used.
const RESERVED: u64 = 464;
const EXTENDED_MAGIC: u32 = 0x4650_5853;
/// Bytes of the extended state without any of that.
const LEGACY_BYTES: u64 = 512;
/// Return address, `ucontext_t` and `siginfo_t`.
const FRAME_BYTES: u64 = 8 + 304 + 128;

/// The address behind the frame at the stack pointer.
pub fn end(memory: &Memory, stack_pointer: u64) -> u64 {
    let whole = stack_pointer + FRAME_BYTES;
    let Some(state) = memory.u64(stack_pointer + STATE_POINTER).filter(|state| *state >= stack_pointer) else {
        return whole;
    };
    let bytes = match memory.bytes::<8>(state + RESERVED) {
        Some([a, b, c, d, bytes @ ..]) if u32::from_le_bytes([a, b, c, d]) == EXTENDED_MAGIC => {
            u64::from(u32::from_le_bytes(bytes))
        }
        _ => LEGACY_BYTES,
    };
    whole.max(state + bytes)
}
