//! Numbers that identify the CPUs, cores, nodes, layers and address spaces of a simulation.
//!
//! Each kind has a type of its own, so that a CPU's number cannot be used as a core's. Lists with one element per CPU
//! (or layer, …) are indexed by it.

/// Defines an identifier by which lists can be indexed.
#[macro_export]
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(0);

            /// Index into a list with one element per identifier.
            #[inline(always)]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The plain number, as configurations, statistics and simulated memory hold it.
            #[inline(always)]
            pub fn number(self) -> $inner {
                self.0
            }

            /// The one after it.
            #[inline(always)]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The identifiers of a run that has `count` of them.
            pub fn all(count: usize) -> impl Iterator<Item = Self> + use<> {
                (0..count).map(Self::from)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
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
    /// A CPU (a hardware thread): its index among those that a run uses.
    CpuId(u32)
}

id! {
    /// A core, which one or more CPUs share: its index among those that a run uses.
    CoreId(usize)
}

id! {
    /// A core of the machine, in use or not: its number there.
    MachineCore(u32)
}

id! {
    /// A node of memory (NUMA): its number on the machine.
    NodeId(u32)
}

id! {
    /// A layer, which is a kernel with its physical memory: its index in the configuration.
    LayerId(u16)
}

id! {
    /// An address space of a layer: its number there, which is reused after the space has ended.
    SpaceIx(u32)
}

/// An address space: the layer whose kernel manages it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId {
    /// The layer whose kernel manages it.
    pub layer: LayerId,
    /// Its number among that layer's spaces.
    pub index: SpaceIx,
}

/// Number of a layer's first space: the kernel's direct map of all its physical memory.
pub const DIRECT_MAP: SpaceIx = SpaceIx::FIRST;
