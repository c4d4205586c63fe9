//! How a program that is recorded enables and disables the fault engine: by a call that does nothing in any kernel.
//!
//! `madvise(2)` of no bytes succeeds at any page-aligned address and changes nothing. At one of these two addresses, it
//! stands for a call of the engine, so a program that makes it also runs natively.

use crate::EventKind;

/// Address of the `madvise` that disables the engine; that of the next page enables it.
pub const ENGINE_CALLS: u64 = 0x7061_6765_0000;
const PAGE_BYTES: u64 = 4096;
const MADV_NORMAL: u32 = 0;

/// The event of a `madvise(2)` that stands for a call of the engine.
pub(super) fn from_advice(addr: u64, len: u64, advice: u32) -> Option<EventKind> {
    let enable = match addr.wrapping_sub(ENGINE_CALLS) {
        0 => false,
        PAGE_BYTES => true,
        _ => return None,
    };
    (len == 0 && advice == MADV_NORMAL).then_some(EventKind::EngineCall { enable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_advice_on_nothing_at_two_addresses_is_a_call() {
        let call = |enable| Some(EventKind::EngineCall { enable });
        assert_eq!(from_advice(ENGINE_CALLS, 0, 0), call(false));
        assert_eq!(from_advice(ENGINE_CALLS + 4096, 0, 0), call(true));
        for (addr, len, advice) in
            [(0, 0, 0), (ENGINE_CALLS + 8192, 0, 0), (ENGINE_CALLS, 4096, 0), (ENGINE_CALLS, 0, 4)]
        {
            assert_eq!(from_advice(addr, len, advice), None, "{addr:x} {len} {advice}");
        }
    }
}
