//! What a run consists of, besides the machine that it runs on.
//!
//! | room | what it holds |
//! |---|---|
//! | [`config`] | everything that determines a run, besides its traces |
//! | [`observe`] | what is observed of a run: statistics by name, windows, single page faults, profiles |
//! | [`programs`] | sources on their way to the CPUs; the background load; what each source cost |
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
pub mod observe;
pub mod programs;
