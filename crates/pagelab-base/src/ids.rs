//! Names of what a simulation holds many of.
//!
//! Each is a type of its own, so that a CPU's number is not taken for its core's. Lists that hold one thing for each of
//! them are indexed by it.

/// Defines a number by which lists are indexed.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The place in a list that holds one thing for each.
            #[inline(always)]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// All of a run that has `count` of them.
            pub fn all(count: usize) -> impl Iterator<Item = Self> + use<> {
                (0..count).map(Self::from)
            }
        }

        impl From<usize> for $name {
            #[inline(always)]
            fn from(index: usize) -> Self {
                Self(index as $inner)
            }
        }

        impl<T> std::ops::Index<$name> for [T] {
            type Output = T;

            #[inline(always)]
            fn index(&self, id: $name) -> &T {
                &self[id.index()]
            }
        }

        impl<T> std::ops::IndexMut<$name> for [T] {
            #[inline(always)]
            fn index_mut(&mut self, id: $name) -> &mut T {
                &mut self[id.index()]
            }
        }

        impl<T> std::ops::Index<$name> for Vec<T> {
            type Output = T;

            #[inline(always)]
            fn index(&self, id: $name) -> &T {
                &self[id.index()]
            }
        }

        impl<T> std::ops::IndexMut<$name> for Vec<T> {
            #[inline(always)]
            fn index_mut(&mut self, id: $name) -> &mut T {
                &mut self[id.index()]
            }
        }
    };
}

id! {
    /// A CPU (a hardware thread), by its place among those that a run uses.
    CpuId(u32)
}

id! {
    /// A layer: a kernel with its physical memory, by its place in the configuration.
    LayerId(u16)
}

/// An address space: the layer whose kernel keeps it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId {
    /// The layer whose kernel keeps it.
    pub layer: LayerId,
    /// Its number among that layer's spaces, used again after the space has ended.
    pub index: u32,
}

/// Number of a layer's first space: the kernel's direct map of all its physical memory.
pub const DIRECT_MAP: u32 = 0;
