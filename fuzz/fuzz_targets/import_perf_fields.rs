//! Imports the fuzzer's bytes as a text of perf, whose first line names its fields.
#![no_main]

mod imported;

use libfuzzer_sys::fuzz_target;
use pagelab_trace::import::{Format, ImportOptions};

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (fields, text) = data.split_at(end);
    let fields = Some(String::from_utf8_lossy(fields).into_owned());
    imported::check_with(text, Format::Perf, &ImportOptions { fields, ..ImportOptions::default() });
});
