//! Imports the fuzzer's bytes as what they look like: archives and compressed files among them.
#![no_main]

mod imported;

use libfuzzer_sys::fuzz_target;
use pagelab_trace::import::Format;

fuzz_target!(|data: &[u8]| imported::check(data, Format::Auto));
