//! Frames of a layer: their allocation, their users, and the contiguity of the frames of adjacent pages.

pub mod contiguity;
pub mod frame_alloc;
pub mod memory_files;
pub mod page_use;
pub mod supply;
