//! The macro that generates the enums of the registered designs and the macros that dispatch over them.

/// Registers designs. Each line gives the variant, the type of the design's table, its name and its description.
macro_rules! page_tables {
    (@enums $(($Variant:ident, $Table:ty, $name:literal, $text:literal))*) => {
        /// Name and description of every design, for lists and error messages.
        pub const DESIGNS: &[(&str, &str)] = &[$(($name, $text)),*];

        /// Page-table design of a layer.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(tag = "kind", deny_unknown_fields)]
        pub enum PageTableConfig {
            $(#[doc = $text] #[serde(rename = $name)] $Variant(<$Table as $crate::page_table::Design>::Parameters),)*
        }

        /// The page table of an address space, of any registered design.
#[derive(Clone)]
        pub enum PageTable {
            $(#[doc = $text] $Variant($Table),)*
        }

        /// The page tables of a layer: the design's parameters, and the state that the tables of its spaces share.
#[derive(Clone)]
        pub enum LayerTables {
            $(#[doc = $text] $Variant($crate::page_table::dispatch::OfLayer<$Table>),)*
        }

        /// The table type of each variant, under the variant's name.
        mod design_of {
            use super::*;

            $(pub type $Variant = $Table;)*
        }

        impl PageTableConfig {
            /// The design's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Variant(_) => $name,)* }
            }

            /// Parameters of every registered design, for tests.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(<$Table as $crate::page_table::Design>::samples().into_iter().map(Self::$Variant));)*
                all
            }
        }

        impl LayerTables {
            /// The page tables of a layer at boot. Error: they do not fit into its memory.
            pub fn boot(
                config: &PageTableConfig,
                boot: &$crate::page_table::Boot,
                mem: &mut pagelab_base::memory::PhysMem,
            ) -> Result<Self, pagelab_base::error::EngineError> {
                Ok(match config {
                    $(PageTableConfig::$Variant(parameters) => {
                        Self::$Variant($crate::page_table::dispatch::OfLayer::boot(parameters, boot, mem)?)
                    })*
                })
            }
        }
    };
    (@each ($d:tt) $($Variant:ident)*) => {
        /// Evaluates an expression with a table of any design.
        macro_rules! each_table {
            ($d value:expr, $d table:ident => $d does:expr) => {
                match $d value { $($crate::page_table::PageTable::$Variant($d table) => $d does,)* }
            };
        }

        /// Evaluates an expression with the parameters of any design; `Table` is the design.
        macro_rules! each_config {
            ($d value:expr, $d parameters:ident => $d does:expr) => {
                match $d value {
                    $($crate::page_table::PageTableConfig::$Variant($d parameters) => {
                        type Table = $crate::page_table::design_of::$Variant;
                        $d does
                    })*
                }
            };
        }

        /// Evaluates an expression with the shared state of a layer's tables; `wrap` converts a table to [`PageTable`].
        macro_rules! each_layer {
            ($d value:expr, $d layer:ident => $d does:expr) => {
                match $d value { $($crate::page_table::LayerTables::$Variant($d layer) => $d does,)* }
            };
            ($d value:expr, $d layer:ident, $d wrap:ident => $d does:expr) => {
                match $d value {
                    $($crate::page_table::LayerTables::$Variant($d layer) => {
                        let $d wrap = $crate::page_table::PageTable::$Variant;
                        $d does
                    })*
                }
            };
        }

        /// Evaluates an expression with a table and the shared state of its layer. For a table of another design than
        /// the layer's, such as the kernel's direct map, it evaluates the `else` expression.
        macro_rules! each_pair {
            ($d value:expr, $d layer:ident, $d table:ident => $d does:expr, else $d other:expr) => {
                match $d value {
                    $($crate::page_table::LayerTables::$Variant($d layer) => match $d table {
                        $crate::page_table::PageTable::$Variant($d table) => $d does,
                        #[allow(unused_variables, reason = "some do not look at it")]
                        $d table => $d other,
                    })*
                }
            };
        }
    };
    ($(mod $module:ident { $($Variant:ident($Table:ty) = $name:literal, $text:literal;)* })*) => {
        $(mod $module;)*
        page_tables! { @enums $($(($Variant, $Table, $name, $text))*)* }
        page_tables! { @each ($) $($($Variant)*)* }
    };
}
