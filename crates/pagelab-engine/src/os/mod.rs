//! The operating system of a layer.
pub mod frame_alloc;
pub mod vma;
