//! Configuration of kernel threads: which ones run, and with which parameters.
//!
//! This module is below the kernels. Of each thread's file it uses only the module `parameters`, which imports nothing
//! from them either.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use pagelab_base::error::EngineError;
/// Whether kernels run a thread: `off`, or its parameters.
pub use pagelab_base::switched::Switched as ThreadConfig;

/// Parameters of a kernel thread, which reject unknown fields. A thread without parameters has a type without fields.
pub trait ThreadParameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Whether the thread makes large pages out of small ones, in mappings that may have them.
    const MAKES_LARGE_PAGES: bool = false;

    /// Rejects impossible values; `key` is the prefix of their configuration keys.
    fn validate(&self, _key: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Parameters for the conformance tests.
    fn samples() -> Vec<Self>;
}

/// Defines the configuration with a key for each thread.
macro_rules! make_config {
    (of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ } of_engines { $($engine:tt)+ }) => {
        /// Name and description of every kernel thread, for lists and error messages.
        pub const THREADS: &[(&str, &str)] = &[$((stringify!($module), $text)),+];

        /// Kernel threads. A thread that has nothing to do in a layer is not started there.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct ThreadsConfig {
            $(#[doc = $text] pub $module: ThreadConfig<super::$module::parameters::Parameters>,)+
        }

        impl ThreadsConfig {
            /// Rejects impossible parameters; `key` is the prefix of their configuration keys.
            pub fn validate(&self, key: &str) -> Result<(), EngineError> {
                $(if let ThreadConfig::On(parameters) = &self.$module {
                    parameters.validate(&format!("{key}.{}", stringify!($module)))?;
                })+
                Ok(())
            }

            /// Each thread on its own, with each of its samples.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $({
                    let samples = super::$module::parameters::Parameters::samples().into_iter();
                    all.extend(samples.map(|parameters| Self { $module: ThreadConfig::On(parameters), ..Self::default() }));
                })+
                all
            }

            /// Names of the threads that are on.
            pub fn running(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(names.extend(self.$module.is_on().then_some(stringify!($module)));)+
                names
            }

            /// Names of all threads that make large pages.
            pub fn that_make_large_pages() -> Vec<&'static str> {
                let mut names = Vec::new();
                $(names.extend(
                    super::$module::parameters::Parameters::MAKES_LARGE_PAGES.then_some(stringify!($module)),
                );)+
                names
            }
        }
    };
}
kernel_threads!(make_config);
