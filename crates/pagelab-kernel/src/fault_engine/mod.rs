//! Fault engines: hardware that handles page faults. The walker starts it if the entry of a page says so, before any
//! kernel runs.
//!
//! A kernel arms the entries of pages that its engine may map ([`crate::entry_word::EntryWord::Armed`]). A walk that
//! ends at such an entry starts the engine ([`work`]), which maps the page or passes the fault to the kernel. The
//! engine's data is in the layer's memory; the kernel's part ([`kernel_side`]) supplies it, checks what was taken, and
//! takes it back.
//!
//! An engine is a folder here, its `pub mod` line and one line in `engines!` below: a type that is a
//! [`kernel_side::KernelSide`], one that is a [`work::PageWork`], and parameters in a module that imports nothing of
//! the kernels. The line gives it its `kind` in configurations (`system.layers.NAME.fault_engine`), its row in `pagelab
//! list fault-engines`, and its place in error messages and conformance tests. Its kernel threads are lines of
//! [`crate::threads`].

/// Passes the list of engines to a macro: folder, variant, kind, and a description.
macro_rules! engines {
    ($make:ident) => {
        $make! {
            mfoe::Mfoe = "mfoe",
                "minor-fault offload engine: the walker takes zeroed frames from a table per CPU that a kernel thread fills";
            smu::Smu = "smu",
                "storage management unit: reads pages of files through its own queue pair into frames that a kernel thread has prepared";
        }
    };
}

pub mod config;
pub mod kernel_side;
pub mod mfoe;
pub mod smu;
pub mod work;
