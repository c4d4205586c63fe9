//! The macro that generates configuration and enum of the registered prefetchers.

/// Registers designs. Each line gives a file, the design in it, and its description.
macro_rules! prefetchers {
    ($($module:ident::$Design:ident = $text:literal;)*) => {
        $(mod $module;)*
        $(pub use $module::$Design;)*

        /// Name and description of every prefetcher, for lists and error messages.
        pub const DESIGNS: &[(&str, &str)] = &[$((stringify!($module), $text)),*];

        /// The prefetchers of one level of the caches: each is `off`, `on` (with defaults) or its parameters.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct LevelPrefetchConfig {
            $(#[doc = $text]
            pub $module: pagelab_base::switched::Switched<<$Design as Prefetcher>::Parameters>,)*
            /// Lines that the level's prefetchers can have in flight; for L1 and L2 per core. Default 16 (estimated).
            pub buffers: u32,
        }

        impl Default for LevelPrefetchConfig {
            fn default() -> Self {
                Self::OFF
            }
        }

        impl LevelPrefetchConfig {
            /// No prefetcher.
            pub const OFF: Self = Self { $($module: pagelab_base::switched::Switched::Off,)* buffers: 16 };

            /// Whether there is a prefetcher.
            pub fn is_on(&self) -> bool {
                false $(|| self.$module.is_on())*
            }

            /// Whether there is a prefetcher that follows walks.
            pub fn follows_walks(&self) -> bool {
                false $(|| self.$module.is_on() && $Design::FOLLOWS_WALKS)*
            }

            /// Refuses an impossible configuration of a level; keys are relative to it.
            pub fn validate(&self, level: CacheLevel) -> Result<(), CacheConfigError> {
                between("buffers", self.buffers, 1, unit::MAX_BUFFERS)?;
                $(if let Some(parameters) = self.$module.on() {
                    let name = stringify!($module);
                    if !$Design::LEVELS.contains(&level) {
                        let levels: Vec<_> = $Design::LEVELS.iter().map(|level| level.name()).collect();
                        let what = format!(
                            "requests at {} do not contain what it needs; allowed is {}",
                            level.name(),
                            levels.join(", ")
                        );
                        return Err(CacheConfigError::new(name, what));
                    }
                    let in_design = |e: CacheConfigError| CacheConfigError::new(format!("{name}.{}", e.key), e.what);
                    $Design::validate(parameters).map_err(in_design)?;
                })*
                Ok(())
            }

            /// For each design alone, every one of its samples; for tests.
            pub fn samples(level: CacheLevel) -> Vec<Self> {
                let mut all = Vec::new();
                $(if $Design::LEVELS.contains(&level) {
                    all.extend($Design::samples().into_iter().map(|parameters| Self {
                        $module: pagelab_base::switched::Switched::On(parameters),
                        ..Self::default()
                    }));
                })*
                all
            }
        }

        /// A prefetcher of any registered design.
        #[derive(Clone, Debug)]
        pub enum AnyPrefetcher {
            $(#[doc = $text] $Design($Design),)*
        }

        impl AnyPrefetcher {
            /// The prefetchers of a level.
            pub fn from_config(config: &LevelPrefetchConfig) -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(config.$module.on().map(|parameters| Self::$Design($Design::new(parameters))));)*
                all
            }

            /// See [`Prefetcher::demand`].
            pub fn demand(&mut self, demand: &Demand, proposals: &mut Proposals) {
                match self {
                    $(Self::$Design(prefetcher) => {
                        proposals.within = demand.within(prefetcher.border());
                        prefetcher.demand(demand, proposals);
                    })*
                }
            }
        }
    };
}
