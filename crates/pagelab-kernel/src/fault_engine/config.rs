//! Configuration of fault engines. This module lies below the kernels and knows only the parameters of an engine.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use pagelab_base::addr::PageSize;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::LayerConfigError;

/// The environment of an engine, for checks of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct EngineContext {
    /// The page sizes whose entries can hold words while the page is not present, or why none can.
    pub words: Result<&'static [PageSize], &'static str>,
    /// The largest page that faults may map.
    pub page_size: PageSize,
    /// Whether every page of anonymous memory is mapped alone, in a frame that the allocator chooses.
    pub single_pages: bool,
    /// Whether entries can be marked, in leaves and above.
    pub marks: bool,
    /// Whether the layer neither hosts another nor is hosted.
    pub alone: bool,
    /// Number of frames of the layer's memory.
    pub frames: u64,
    /// Number of drives of the device that files are read from; 0 without one.
    pub drives: u32,
    /// Number of cores of the machine.
    pub cores: u32,
    /// Whether the hardware walks the layer's own page tables for all of its pages.
    pub walked: bool,
}

/// Costs of an ordinary kernel's fault that takes its frame from a ring instead of allocating it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingCosts {
    /// Replaces the stages allocation and zeroing: taking, charging and mapping the frame.
    pub take: RingCost,
    /// Replaces the stage lru: leaving the page to the thread.
    pub defer: RingCost,
}

/// Cost of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingCost {
    /// Instructions of this part.
    pub instructions: u32,
    /// Cycles: a number, or `core`, the default.
    #[serde(default)]
    pub cycles: CodeCycles,
    /// Lines of the CPU that are written, besides those of the ring and of the page's metadata.
    pub cpu: u32,
    /// Lines of the address space that are read.
    pub space: u32,
    /// Lines of the CPU that earlier stages have written.
    pub again: u32,
}

/// Parameters of an engine.
pub trait EngineParameters: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Refuses impossible values, and environments that the engine does not support.
    fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError>;

    /// Parameters for the conformance tests, the defaults first.
    fn samples() -> Vec<Self>;
}

macro_rules! make_config {
    ($($module:ident::$Engine:ident = $name:literal, $text:literal;)+) => {
        /// Name and description of every engine, for lists and error messages.
        pub const DESIGNS: &[(&str, &str)] = &[$(($name, $text)),+];

        /// The engine of a layer.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", deny_unknown_fields)]
        pub enum FaultEngineConfig {
            $(#[doc = $text] #[serde(rename = $name)] $Engine(super::$module::parameters::Parameters),)+
        }

        impl FaultEngineConfig {
            /// Parameters of every engine for the conformance tests.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(super::$module::parameters::Parameters::samples().into_iter().map(Self::$Engine));)+
                all
            }

            /// Refuses impossible parameters, and environments that the engine does not support.
            pub fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError> {
                match self { $(Self::$Engine(parameters) => parameters.check(around),)+ }
            }
        }
    };
}
engines!(make_config);
