//! The macro that makes configuration, enum and lists of the registered translation units.

/// Registers designs. A line has the file, its design, and what it remembers. Lines of `stages` belong to a part of the
/// configuration, in the order of look-ups; lines of `walks` name the key of their parameters.
macro_rules! translation_units {
    (
        stages { $(
            $(#[$meta:meta])* $Config:ident in $part:literal { $($stage:ident::$Stage:ident = $about:literal;)* }
        )* }
        walks { $($module:ident::$Design:ident in $key:literal = $text:literal;)* }
    ) => {
        $($(mod $stage;)*)*
        $(mod $module;)*
        $($(pub use $stage::$Stage;)*)*
        $(pub use $module::$Design;)*

        /// Name and description of every translation unit, for lists and error messages.
        pub const DESIGNS: &[(&str, &str)] = &[
            $($((stringify!($stage), concat!($about, " (", $part, ")")),)*)*
            $((stringify!($module), concat!($text, " (", $key, ")")),)*
        ];

        $(
            $(#[$meta])*
            #[derive(
                Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
            )]
            #[serde(deny_unknown_fields, default)]
            pub struct $Config {
                $(#[doc = $about]
                pub $stage: pagelab_base::switched::Switched<<$Stage as TranslationUnit>::Parameters>,)*
            }

            impl $Config {
                /// Name and description of the designs of this part, for lists.
                pub const DESIGNS: &'static [(&'static str, &'static str)] =
                    &[$((stringify!($stage), concat!($about, " (", $part, ")"))),*];

                /// Whether all units are off.
                pub fn is_off(&self) -> bool {
                    true $(&& !self.$stage.is_on())*
                }

                /// The units that are on: those that all cores share, or those of one core. `rng` makes a generator
                /// from its name. Errors: impossible parameters.
                pub fn stages(&self, shared: bool, rng: impl Fn(&str) -> Rng) -> Result<Vec<Stage>, EngineError> {
                    let mut all = Vec::new();
                    $(if let Some(parameters) = self.$stage.on().filter(|_| $Stage::IS_SHARED == shared) {
                        let key = concat!($part, ".", stringify!($stage));
                        all.push(Stage::$Stage(Counted::new(parameters, key, &rng(key))?));
                    })*
                    Ok(all)
                }

                /// Refuses impossible parameters. Returns the bytes of memory that the units of `n` cores take.
                pub fn validate(&self, n: u64) -> Result<u64, EngineError> {
                    let bytes = |shared: bool| -> Result<u64, EngineError> {
                        Ok(self.stages(shared, |part| Rng::new(0, part))?.iter().map(Stage::memory_bytes).sum())
                    };
                    Ok(n * bytes(false)? + bytes(true)?)
                }

                /// The key of the first unit that is on and prefetches, if there is one.
                pub fn prefetcher(&self) -> Option<&'static str> {
                    None $(.or((self.$stage.is_on() && $Stage::PREFETCHES)
                        .then_some(concat!($part, ".", stringify!($stage)))))*
                }

                /// The key of the first unit that is on and needs the addresses of instructions, if there is one.
                pub fn needs_pc(&self) -> Option<&'static str> {
                    None $(.or((self.$stage.is_on() && $Stage::NEEDS_PC)
                        .then_some(concat!($part, ".", stringify!($stage)))))*
                }

                /// The key of the first unit that is on and is in the second-level cache, if there is one.
                pub fn in_second_level_cache(&self) -> Option<&'static str> {
                    None $(.or((self.$stage.is_on() && $Stage::NEEDS_SECOND_LEVEL_CACHE)
                        .then_some(concat!($part, ".", stringify!($stage)))))*
                }

                /// One configuration per unit and sample, with that unit alone.
                #[allow(clippy::needless_update, reason = "a group may have one unit, or several")]
                pub fn samples() -> Vec<Self> {
                    let mut all = Vec::new();
                    $(all.extend($Stage::samples().into_iter().map(|parameters| Self {
                        $stage: pagelab_base::switched::Switched::On(parameters),
                        ..Self::default()
                    }));)*
                    all
                }
            }
        )*

        /// A unit at [`LookUpPlace::AfterTlbs`] of any registered design. See [`TranslationUnit`] for what each
        /// function does.
        #[derive(Clone, Debug)]
        pub enum Stage {
            $($(#[doc = $about] $Stage(Counted<$Stage>),)*)*
        }

        // All stages translate to machine addresses.
        $($(const _: () = assert!(matches!($Stage::PLACE, LookUpPlace::AfterTlbs));)*)*
        $(const _: () = assert!(!matches!($Design::PLACE, LookUpPlace::AfterTlbs));)*

        translation_units! { @each ($) $($($Stage)*)* }

        /// Visits every registered design.
        pub fn visit_all(visitor: &mut impl Visitor) {
            $($(visitor.visit::<$Stage>(concat!($part, ".", stringify!($stage)));)*)*
            $(visitor.visit::<$Design>($key);)*
        }
    };
    (@each ($d:tt) $($Stage:ident)*) => {
        /// Evaluates an expression for a stage, whatever its design.
        macro_rules! each_stage {
            ($d stage:expr, $d unit:ident => $d does:expr) => {
                match $d stage { $(Stage::$Stage($d unit) => $d does,)* }
            };
        }
    };
}
