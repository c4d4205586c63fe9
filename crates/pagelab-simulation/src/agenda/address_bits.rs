//! Refuses mappings at addresses that the page table of their space cannot translate.
//!
//! A page table translates as many address bits as its levels cover. At an address with more bits, two pages of a
//! program would silently share an entry, and all counts would be wrong. So the run ends with an error.

use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceId;
use pagelab_kernel::os::Os;
use pagelab_trace::EventKind;

/// The kernel's page for old programs, above the user half of every page table. Programs only execute calls there,
/// which the kernel carries out instead.
const VSYSCALL: &str = "[vsyscall]";

/// Refuses a mapping call that reaches beyond the addresses that its space's page table translates.
pub(super) fn refuse_beyond_table(os: &Os, space: SpaceId, kind: &EventKind) -> Result<(), EngineError> {
    let (addr, len) = match kind {
        EventKind::Mmap { file: Some(name), .. } if **name == *VSYSCALL => return Ok(()),
        EventKind::Mmap { addr, len, .. } => (*addr, *len),
        EventKind::Mremap { new_addr, new_len, .. } => (*new_addr, *new_len),
        EventKind::Brk { start, end } => (*start, end.saturating_sub(*start)),
        _ => return Ok(()),
    };
    let layer = &os.layers[space.layer];
    let bits = layer.spaces[space.index].table.va_bits();
    let last = addr.saturating_add(len.saturating_sub(1));
    if last < 1 << bits {
        return Ok(());
    }
    let needed = u64::BITS - last.leading_zeros();
    let what = format!(
        "the program maps {addr:#x}, an address of {needed} bits, but the page table of layer `{}` translates {bits}; \
         choose a system with a larger one (radix-5level has 57), or import the trace again if these are no addresses \
         of a program",
        layer.name
    );
    Err(EngineError::config("sources", what))
}
