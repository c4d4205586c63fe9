//! Frames of a layer: who hands them out, who uses them, and how well those of adjacent pages lie together.

pub mod contiguity;
pub mod frame_alloc;
pub mod page_use;
pub mod supply;
