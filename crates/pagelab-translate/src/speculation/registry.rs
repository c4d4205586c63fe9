//! The macro that generates the enums of the registered speculations.

/// Registers designs. Each line gives the variant, the design's type, its name and its description; the first is the
/// default.
macro_rules! speculations {
    ($($Variant:ident($Design:ty) = $name:literal, $text:literal;)*) => {
        model_choice! {
            /// How frames are guessed before walks; `model` is the design.
            SpeculationConfig by Speculation { $($Variant($Design) = $name, $text;)* }
        }

        impl Default for SpeculationConfig {
            fn default() -> Self {
                Self::None(Default::default())
            }
        }

        impl SpeculationConfig {
            /// Its key in the configuration.
            pub const KEY: &'static str = "machine.tlb.speculation";

            /// Whether nothing is guessed.
            pub fn is_off(&self) -> bool {
                matches!(self, Self::None(_))
            }

            /// Whether it fetches lines ahead of accesses that do not go on.
            pub fn fetches(&self) -> bool {
                match self { $(Self::$Variant(_) => !<$Design as Speculation>::GOES_ON,)* }
            }

            /// See [`Speculation::BY_HASH`].
            pub fn is_by_hash(&self) -> bool {
                match self { $(Self::$Variant(_) => <$Design as Speculation>::BY_HASH,)* }
            }

            /// Its key, if it guesses by the addresses of instructions.
            pub fn needs_pc(&self) -> Option<&'static str> {
                let needs = match self { $(Self::$Variant(_) => <$Design as Speculation>::NEEDS_PC,)* };
                needs.then_some(Self::KEY)
            }
        }

        impl AnySpeculation {
            /// See [`Speculation::KEEPS_PAGES`].
            pub fn keeps_pages(&self) -> bool {
                match self { $(Self::$Variant(_) => <$Design as Speculation>::KEEPS_PAGES,)* }
            }

            /// See [`Speculation::KEEPS_SPACES`].
            pub fn keeps_spaces(&self) -> bool {
                match self { $(Self::$Variant(_) => <$Design as Speculation>::KEEPS_SPACES,)* }
            }

            /// See [`Speculation::GOES_ON`].
            pub fn goes_on(&self) -> bool {
                match self { $(Self::$Variant(_) => <$Design as Speculation>::GOES_ON,)* }
            }
        }

        /// A speculation of any registered design.
        #[derive(Clone, Debug)]
        pub enum AnySpeculation {
            $(#[doc = $text] $Variant($Design),)*
        }

        /// See [`Speculation`] for what each of these does.
        impl AnySpeculation {
            /// See [`Speculation::new`].
            pub fn new(config: &SpeculationConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
                match config {
                    $(SpeculationConfig::$Variant(parameters) => {
                        <$Design as Speculation>::new(parameters, key, rng).map(Self::$Variant)
                    })*
                }
            }

            /// See [`Speculation::timing`].
            pub fn timing(&self) -> GuessTiming {
                match self { $(Self::$Variant(design) => design.timing(),)* }
            }

            /// See [`Speculation::run_pages`].
            pub fn run_pages(&self) -> Option<u64> {
                match self { $(Self::$Variant(design) => design.run_pages(),)* }
            }

            /// See [`Speculation::guess`].
            pub fn guess(&self, missed: &MissedAccess) -> Guess {
                match self { $(Self::$Variant(design) => design.guess(missed),)* }
            }

            /// See [`Speculation::learn`].
            pub fn learn(&mut self, missed: &MissedAccess, found: &FoundPage) {
                match self { $(Self::$Variant(design) => design.learn(missed, found),)* }
            }

            /// See [`Speculation::invalidate`].
            pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
                match self { $(Self::$Variant(design) => design.invalidate(asid, start, end),)* }
            }

            /// See [`Speculation::flush`].
            pub fn flush(&mut self, asid: Asid) {
                match self { $(Self::$Variant(design) => design.flush(asid),)* }
            }

            /// See [`Speculation::storage_bits`].
            pub fn storage_bits(&self) -> u64 {
                match self { $(Self::$Variant(design) => design.storage_bits(),)* }
            }

            /// See [`Speculation::measures`].
            pub fn measures(&self) -> Vec<Measure> {
                match self { $(Self::$Variant(design) => design.measures(),)* }
            }
        }
    };
}
