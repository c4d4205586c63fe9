//! Miss-ratio curves: the misses of TLBs and caches of every size, from one pass over a trace.
//!
//! Each access is a use of a page, or of a line. The number of different pages used since the last use of the same page
//! is its stack distance. A fully associative cache with LRU replacement hits if it has more entries than that. So the
//! stack distances of a trace give the misses of all sizes at once.
//!
//! | module | what it holds |
//! |---|---|
//! | `host` | prefetch, and code for newer processors |
//! | `marks` | the order of last uses, in which distances are counted |
//! | `positions` | the last use of each page of an address space |
//! | `top` | the pages used last, without a table |
//! | `stack` | the LRU stack of several address spaces |
//! | `histogram` | counts by depth |
//! | `sampling` | which pages are looked at: all, or a sample |
//! | `tracker` | one granule of one stream |
//! | `curve` | misses over sizes, and how far those of a sample may be off |
//! | `ways` | the estimate for caches of some ways |
//! | `spaces` | which space an access is in, and what leaves it |
//! | `analysis` | the pass over a source |
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod analysis;
mod curve;
mod histogram;
mod host;
mod marks;
mod positions;
mod sampling;
mod spaces;
mod stack;
mod top;
mod tracker;
mod ways;

pub use analysis::{Analysis, Options, analyse};
pub use curve::{Curve, Stream};
pub use sampling::Sampling;
