//! Memory that a workload itself takes on the host.

use crate::{TraceError, quantity::format_bytes};

/// An empty array with room for `len` elements.
///
/// # Errors
/// If there is not enough memory; the error names the array by `what`, and what would help by `instead`.
pub(super) fn reserve<T>(len: u64, what: &str, instead: &str) -> Result<Vec<T>, TraceError> {
    let mut array = Vec::new();
    let reserved = usize::try_from(len).ok().and_then(|len| array.try_reserve_exact(len).ok());
    reserved.ok_or_else(|| {
        let bytes = format_bytes(len.saturating_mul(size_of::<T>() as u64));
        TraceError::usage(format!("no memory for {what} of {bytes}; take {instead}"))
    })?;
    Ok(array)
}
