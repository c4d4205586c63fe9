//! Names of what a simulation holds many of.

/// An address space: the layer whose kernel keeps it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId {
    pub layer: u16,
    pub index: u32,
}

/// Number of a layer's first space: the kernel's direct map of all its physical memory.
pub const DIRECT_MAP: u32 = 0;
