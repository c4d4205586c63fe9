//! Hardware engines that handle page faults: started by the walker where the entry of a page says so, before any kernel
//! is.
//!
//! A kernel arms the entries of pages ([`crate::entry_word::EntryWord::Armed`]) that its engine may map. A walk that
//! ends at such an entry goes to the engine ([`work`]), which maps the page, or gives the fault to the kernel. What the
//! engine works on stands in the layer's memory, and the kernel has its part in that ([`kernel_side`]): it fills it,
//! looks at what was taken, and takes it back.
//!
//! An engine is a folder here, its `pub mod` line and one line in `engines!` below: a type that is a
//! [`kernel_side::KernelSide`], one that is a [`work::Work`], and parameters in a module that imports nothing of the
//! kernels. The line gives it its `kind` in configurations (`system.layers.NAME.fault_engine`), its row in `pagelab
//! list fault-engines`, its place in error texts and in the conformance tests. Its kernel threads are lines of
//! [`crate::threads`].

/// The engines, for a macro that makes something of them: the folder, the variant, its kind, and what the engine does.
macro_rules! engines {
    ($make:ident) => {
        $make! {
            mfoe::Mfoe = "mfoe",
                "minor-fault offload engine: the walker takes zeroed frames from a table per CPU that a kernel thread fills";
            smu::Smu = "smu",
                "storage management unit: reads pages of files by a queue pair of its own into frames that a kernel thread has ready";
        }
    };
}

pub mod config;
pub mod kernel_side;
pub mod mfoe;
pub mod smu;
pub mod work;
