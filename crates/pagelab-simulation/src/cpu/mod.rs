//! What a CPU does with its accesses: the loop over them, and the activities that interrupt it.

mod beside_walks;
mod by_kernel;
mod exceptions;
pub(crate) mod fast_path;
mod lookahead;
mod profiling;
mod references;
mod replay;
mod stack;
