//! Miss-ratio curves: the misses of TLBs and caches of every size, from one pass over a trace.
//!
//! Each access is a use of a page, or of a line. The number of different pages used since the last use of the same page
//! is its stack distance. A fully associative cache with LRU replacement hits if it has more entries than that. So the
//! stack distances of a trace give the misses of all sizes at once.
//!
//! | module | contents |
//! |---|---|
//! | `host` | prefetch, and code for newer processors |
//! | `marks` | the order of last uses, in which distances are counted |
//! | `positions` | the last use of each page of an address space |
//! | `top` | the pages used last, without a table |
//! | `stack` | the LRU stack of several address spaces |
//! | `histogram` | counts by depth |
//! | `sampling` | selection of pages: all, or a sample |
//! | `tracker` | stack distances for one granule size of one stream |
//! | `curve` | misses by size, with error bounds for samples |
//! | `ways` | estimate for set-associative caches |
//! | `spaces` | address spaces of accesses, and removed pages |
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
