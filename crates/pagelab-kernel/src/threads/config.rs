//! What the configuration says of kernel threads: which there are, and with which parameters.
//!
//! It lies below the kernels. Of a thread's file it knows the module `parameters` alone, which imports nothing of them
//! either.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use pagelab_base::error::EngineError;
/// Whether kernels have a thread: `off`, or its parameters.
pub use pagelab_base::switched::Switched as ThreadConfig;

/// Parameters of a kernel thread, which refuse unknown fields; a thread that needs none has a type without fields.
pub trait ThreadParameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Whether the thread makes large pages of small ones, in the mappings that may have them.
    const MAKES_LARGE_PAGES: bool = false;

    /// Refuses impossible values; `key` is the part of the configuration that they are in.
    fn validate(&self, _key: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Those that the conformance tests run it with.
    fn samples() -> Vec<Self>;
}

/// Makes the part of the configuration that has a key for each thread.
macro_rules! make_config {
    (of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ } of_engines { $($engine:tt)+ }) => {
        /// Name and description of every kernel thread, for lists and error messages.
        pub const THREADS: &[(&str, &str)] = &[$((stringify!($module), $text)),+];

        /// The threads of the kernels, but for those that have nothing to do in a layer.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct ThreadsConfig {
            $(#[doc = $text] pub $module: ThreadConfig<super::$module::parameters::Parameters>,)+
        }

        impl ThreadsConfig {
            /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
            pub fn validate(&self, key: &str) -> Result<(), EngineError> {
                $(if let ThreadConfig::On(parameters) = &self.$module {
                    parameters.validate(&format!("{key}.{}", stringify!($module)))?;
                })+
                Ok(())
            }

            /// Each thread alone, with each of its samples.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $({
                    let samples = super::$module::parameters::Parameters::samples().into_iter();
                    all.extend(samples.map(|of| Self { $module: ThreadConfig::On(of), ..Self::default() }));
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
