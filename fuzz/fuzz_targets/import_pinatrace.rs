//! Imports the fuzzer's bytes as PinAtrace.
#![no_main]

mod imported;

use libfuzzer_sys::fuzz_target;
use pagelab_trace::import::Format;

fuzz_target!(|data: &[u8]| imported::check(data, Format::PinAtrace));
