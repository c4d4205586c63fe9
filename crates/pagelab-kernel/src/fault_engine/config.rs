//! What the configuration says of fault engines. It lies below the kernels: of an engine it knows the parameters alone.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use pagelab_base::addr::PageSize;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::LayerConfigError;

/// What an engine finds itself in.
#[derive(Clone, Copy, Debug)]
pub struct EngineContext {
    /// The pages whose entries can hold words while they are not present, or why none can.
    pub words: Result<&'static [PageSize], &'static str>,
    /// The largest page that faults may map.
    pub page_size: PageSize,
    /// Whether every page of anonymous memory is mapped alone, in a frame of the allocator's choice.
    pub single_pages: bool,
    /// Whether entries can be marked, in leaves and above.
    pub marks: bool,
    /// Whether the layer hosts none and no other hosts it.
    pub alone: bool,
    /// Frames of the layer's memory.
    pub frames: u64,
    /// Drives of the device that files are read from; 0 without one.
    pub drives: u32,
    /// Cores of the machine.
    pub cores: u32,
    /// Whether hardware walks the layer's own page tables for all of its pages.
    pub walked: bool,
}

/// What a fault executes that takes its frame from a ring instead of an allocation, in an ordinary kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingCosts {
    /// Instead of the stages allocation and zeroing: the frame is taken, charged and mapped.
    pub take: RingCost,
    /// Instead of the stage lru: the page is left to the thread.
    pub defer: RingCost,
}

/// A part of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingCost {
    /// Instructions of this part.
    pub instructions: u32,
    /// A number, or `core`, as unless given.
    #[serde(default)]
    pub cycles: CodeCycles,
    /// Lines of the CPU, and written, beside those of the ring and of the page's metadata.
    pub cpu: u32,
    /// Lines of the address space, and read.
    pub space: u32,
    /// Of the CPU, which stages before have written.
    pub again: u32,
}

/// Parameters of an engine.
pub trait EngineParameters: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Refuses impossible values, and places where the engine cannot be.
    fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError>;

    /// Those that the conformance tests run it with, the defaults first.
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
            /// Parameters of every engine that the conformance tests run it with.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(super::$module::parameters::Parameters::samples().into_iter().map(Self::$Engine));)+
                all
            }

            /// Refuses what is impossible of the parameters, or where they stand.
            pub fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError> {
                match self { $(Self::$Engine(parameters) => parameters.check(around),)+ }
            }
        }
    };
}
engines!(make_config);
