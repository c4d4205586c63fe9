//! Which signals a recorded program inherits as ignored.
//!
//! Programs inherit what the recorder inherited, but the recorder's process has changed some of it: Python ignores
//! SIGPIPE and SIGXFSZ for itself, and the C library has a handler for signal 33 from the first `pthread_create()` on.

use std::sync::OnceLock;

/// The C library's own signals: 32 cancels threads, 33 changes their user ids.
pub(crate) const SIGNALS_OF_THE_C_LIBRARY: [u32; 2] = [32, 33];

static IGNORED: OnceLock<u64> = OnceLock::new();

/// Notes which signals this process ignores. To be called before it has a second thread; later calls change nothing.
pub fn note_ignored_signals() {
    IGNORED.get_or_init(ignored_signals);
}

/// Those of the C library's signals that were ignored when [`note_ignored_signals`] was called: bit N - 1 is signal N.
#[must_use]
pub fn inherited_ignored_signals() -> u64 {
    let of_the_c_library: u64 = SIGNALS_OF_THE_C_LIBRARY.map(|number| 1 << (number - 1)).iter().sum();
    IGNORED.get_or_init(ignored_signals) & of_the_c_library
}

/// The signals that this process ignores now: bit N - 1 is signal N.
#[must_use]
pub fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
