//! The macro that makes the enums of the registered designs, and what each of them is asked.

/// Registers designs. A line is a variant, the design's table, its name and its description.
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

        /// The page tables of a layer: the design's parameters, and what the tables of its spaces have in common.
#[derive(Clone)]
        pub enum LayerTables {
            $(#[doc = $text] $Variant($crate::page_table::dispatch::OfLayer<$Table>),)*
        }

        /// The table of each variant, by its name.
        mod design_of {
            use super::*;

            $(pub type $Variant = $Table;)*
        }

        impl PageTableConfig {
            /// The design's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Variant(_) => $name,)* }
            }

            /// Parameters of every registered design to test it with.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(<$Table as $crate::page_table::Design>::samples().into_iter().map(Self::$Variant));)*
                all
            }
        }

        impl LayerTables {
            /// The tables of a layer that boots. Errors: they do not fit its memory.
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
        /// Does something with a table, whatever its design.
        macro_rules! each_table {
            ($d of:expr, $d table:ident => $d does:expr) => {
                match $d of { $($crate::page_table::PageTable::$Variant($d table) => $d does,)* }
            };
        }

        /// Does something with parameters; `Table` is the design.
        macro_rules! each_config {
            ($d of:expr, $d parameters:ident => $d does:expr) => {
                match $d of {
                    $($crate::page_table::PageTableConfig::$Variant($d parameters) => {
                        type Table = $crate::page_table::design_of::$Variant;
                        $d does
                    })*
                }
            };
        }

        /// Does something with what the tables of a layer have in common; `wrap` makes a table one of any design.
        macro_rules! each_layer {
            ($d of:expr, $d layer:ident => $d does:expr) => {
                match $d of { $($crate::page_table::LayerTables::$Variant($d layer) => $d does,)* }
            };
            ($d of:expr, $d layer:ident, $d wrap:ident => $d does:expr) => {
                match $d of {
                    $($crate::page_table::LayerTables::$Variant($d layer) => {
                        let $d wrap = $crate::page_table::PageTable::$Variant;
                        $d does
                    })*
                }
            };
        }

        /// Does something with a table and its layer's part; something else with one of another design: the kernel's
        /// own.
        macro_rules! each_pair {
            ($d of:expr, $d layer:ident, $d table:ident => $d does:expr, else $d other:expr) => {
                match $d of {
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
