//! Errors instead of panics of the library that decodes Parquet.
//!
//! The hash in a part's footer covers all bytes before the footer, not the footer's own description of the columns. The
//! `parquet` crate panics on some descriptions that do not fit the bytes: one damaged bit is enough.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread calls the library, whose panics are not to be printed.
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the library. Whatever the call works on must not be used again after an error.
///
/// # Errors
/// Those of the call, as text, or the message of its panic.
pub fn as_errors<T, E: ToString>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CALLING.get() {
                usual(panic);
            }
        }));
    });
    let before = IS_CALLING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_CALLING.set(before);
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("its footer does not describe its content ({text})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors_and_results_stay() {
        assert_eq!(as_errors(|| Ok::<_, String>(5)), Ok(5));
        assert_eq!(as_errors(|| Err::<(), _>("wrong")), Err("wrong".to_owned()));
        for (error, message) in [
            (as_errors(|| -> Result<(), String> { panic!("in page {}", 7) }), "(in page 7)"),
            (as_errors(|| -> Result<(), String> { panic!("always") }), "(always)"),
            (as_errors(|| -> Result<(), String> { std::panic::panic_any(7) }), "(no message)"),
        ] {
            assert!(error.unwrap_err().ends_with(message));
            assert!(!IS_CALLING.get());
        }
    }

    /// In a process of its own: only panics of the library are not printed.
    #[test]
    fn other_panics_are_printed() {
        const INSIDE: &str = "PAGELAB_PANICS_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            let _ = as_errors(|| -> Result<(), String> { panic!("of the library") });
            panic!("of the program");
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "library_panics::tests::other_panics_are_printed", "--nocapture"]).env(INSIDE, "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success() && text.contains("of the program"), "{text}");
        assert!(!text.contains("of the library"), "{text}");
    }
}
