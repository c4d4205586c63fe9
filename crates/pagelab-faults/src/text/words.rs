//! Elements that lines of both tools contain: words, a core in brackets, a time, an event.

use crate::FaultKind;

/// The line's words, each with its byte offset.
pub(super) fn words(line: &str) -> Vec<(usize, &str)> {
    let base = line.as_ptr() as usize;
    line.split_ascii_whitespace().map(|word| (word.as_ptr() as usize - base, word)).collect()
}

/// Parses the core of `[007]`.
pub(super) fn core(word: &str) -> Option<u32> {
    number(word.strip_prefix('[')?.strip_suffix(']')?)
}

/// Parses `12.345678:` (1 to 9 decimals) to nanoseconds.
pub(super) fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    if seconds.len() > 10 || !(1..=9).contains(&fraction.len()) {
        return None;
    }
    let (seconds, digits) = (decimal(seconds)?, decimal(fraction)?);
    Some(seconds * 1_000_000_000 + digits * 10_u64.pow(9 - fraction.len() as u32))
}

pub(super) fn number(digits: &str) -> Option<u32> {
    u32::try_from(decimal(digits)?).ok()
}

pub(super) fn decimal(digits: &str) -> Option<u64> {
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

pub(super) fn hexadecimal(digits: &str) -> Option<u64> {
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    (digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Start of the kernel's addresses; faults there are not the program's, whoever raises them.
const KERNEL: u64 = 1 << 63;

/// Address and kind of `address=0x… ip=0x… error_code=0x…`; none if the address is the kernel's, which may be printed
/// as a symbol.
pub(super) fn tracepoint(payload: &str) -> Result<Option<(u64, FaultKind)>, String> {
    let text =
        |name: &str| payload.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let field =
        |name: &str| text(name).and_then(hexadecimal).ok_or_else(|| format!("expected {name}=0x… (hexadecimal)"));
    let kind = FaultKind::from_error_code(field("error_code")?);
    let is_symbol = kind.by_kernel && text("address").is_some_and(|word| !word.starts_with("0x"));
    let address = if is_symbol { KERNEL } else { field("address")? };
    Ok((address < KERNEL).then_some((address, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        assert_eq!(time("1263.840686203:"), Some(1_263_840_686_203));
        assert_eq!(time("1263.840686:"), Some(1_263_840_686_000));
        assert_eq!(time("0.5:"), Some(500_000_000));
        for wrong in ["1263.840686", "1263:", ".5:", "1.:", "-1.5:", "1.5.5:", "1.0123456789:", "12345678901.0:"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_kernel_s_own_addresses_are_not_the_program_s() {
        let own = Ok(Some((0x1000, FaultKind { by_kernel: true, ..FaultKind::FIRST_WRITE })));
        assert_eq!(tracepoint("address=0x1000 ip=f error_code=0x2"), own);
        for kernel in ["address=0xffffc90000000000", "address=init_task+0x10"] {
            assert_eq!(tracepoint(&format!("{kernel} ip=f error_code=0x2")), Ok(None));
        }
        assert!(tracepoint("address=init_task ip=f error_code=0x6").unwrap_err().contains("expected address=0x"));
    }

    #[test]
    fn words_know_where_they_begin() {
        assert_eq!(words(" a  bc "), [(1, "a"), (4, "bc")]);
        assert!(words("  ").is_empty());
    }
}
