//! The macro that generates the enums of the registered MMU caches and the macro that dispatches over them.

/// Registers designs. Each line gives the variant, the type of the design's cache, its name and its description; a
/// module with parameters gives their name and type.
macro_rules! mmu_caches {
    ($(mod $module:ident $([$(#[$meta:meta])* $part:ident: $Part:ty])? {
        $($Variant:ident($Cache:ty) = $name:literal, $text:literal;)*
    })*) => {
        $(mod $module;)*

        /// Name and description of every design, for lists and error messages.
        pub const DESIGNS: &[(&str, &str)] = &[$($(($name, $text)),*),*];

        /// MMU cache of a layer; its geometry is in `machine.mmu_cache`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum MmuCacheKind {
            $($(#[doc = $text] #[serde(rename = $name)] $Variant,)*)*
        }

        /// Geometry of the MMU caches that a layer can choose. Every layer has a cache of its own of the kind it
        /// chooses, except for kinds that layers share.
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct MmuCacheGeometry {
            $($($(#[$meta])* pub $part: $Part,)?)*
            /// One MMU cache for all cores instead of one per core, with the entries of all of them together. Default:
            /// one per core.
            #[serde(default)]
            pub shared_by_cores: Option<SharedMmuCacheConfig>,
            /// Whether walks of a host's tables for its guests use an MMU cache too; otherwise they read every level.
            #[serde(default = "of_hosts", skip_serializing_if = "is_so")]
            pub of_hosts: bool,
        }

        fn of_hosts() -> bool {
            true
        }

        fn is_so(of_hosts: &bool) -> bool {
            *of_hosts
        }

        impl MmuCacheGeometry {
            /// The geometry of one cache that replaces those of `cores` cores.
            pub fn together(&self, cores: u32, shared: SharedMmuCacheConfig) -> Self {
                let mut all = self.clone();
                $($(all.$part.together(cores, shared.extra_latency_cycles);)?)*
                all
            }
        }

        /// An MMU cache of any registered design.
#[derive(Clone)]
        pub enum MmuCache {
            $($(#[doc = $text] $Variant($Cache),)*)*
        }

        impl MmuCacheKind {
            /// All designs in registration order.
            pub const ALL: &[Self] = &[$($(Self::$Variant),*),*];

            /// The design's name.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$Variant => $name,)*)* }
            }

            /// Whether the layers of a core that choose this kind share one cache.
            pub fn is_shared_by_layers(self) -> bool {
                match self { $($(Self::$Variant => <$Cache>::SHARED_BY_LAYERS,)*)* }
            }

            /// Whether it can hold such entries. The error completes "a page table has …".
            pub fn keeps(self, entries: $crate::page_table::UpperEntries) -> Result<(), &'static str> {
                match self { $($(Self::$Variant => <$Cache>::keeps(entries),)*)* }
            }

            /// Geometries for tests on a machine like this one.
            pub fn samples(self, geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
                match self { $($(Self::$Variant => <$Cache as Design>::samples(geometry),)*)* }
            }
        }

        impl MmuCache {
            /// An empty cache of the kind. Error: its part of the geometry is impossible.
            pub fn new(
                kind: MmuCacheKind,
                geometry: &MmuCacheGeometry,
                rng: &pagelab_base::rng::Rng,
            ) -> Result<Self, pagelab_base::error::EngineError> {
                Ok(match kind { $($(MmuCacheKind::$Variant => Self::$Variant(Design::new(geometry, rng)?),)*)* })
            }
        }

        mmu_caches! { @each ($) $($($Variant)*)* }
    };
    (@each ($d:tt) $($Variant:ident)*) => {
        /// Evaluates an expression with a cache of any design.
        macro_rules! each_cache {
            ($d value:expr, $d cache:ident => $d does:expr) => {
                match $d value { $(MmuCache::$Variant($d cache) => $d does,)* }
            };
        }
    };
}
