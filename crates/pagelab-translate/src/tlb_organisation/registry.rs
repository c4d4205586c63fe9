//! The macro that generates the enums of the registered organisations.

/// Registers designs. Each line gives the variant, the design's type, its name and its description; the first is the
/// default.
macro_rules! organisations {
    ($($Variant:ident($Design:ty) = $name:literal, $text:literal;)*) => {
        model_choice! {
            /// What an entry of a TLB array covers; `model` is the design.
            TlbOrganisationConfig by Organisation { $($Variant($Design) = $name, $text;)* }
        }

        impl Default for TlbOrganisationConfig {
            fn default() -> Self {
                Self::Pages(Default::default())
            }
        }

        impl TlbOrganisationConfig {
            /// Whether it is an entry per page.
            pub fn is_of_pages(&self) -> bool {
                matches!(self, Self::Pages(_))
            }
        }

        /// An organisation of any registered design.
        #[derive(Clone, Debug)]
        pub enum AnyOrganisation {
            $(#[doc = $text] $Variant($Design),)*
        }

        /// See [`Organisation`] for what each of these does.
        impl AnyOrganisation {
            /// See [`Organisation::new`].
            pub fn new(config: &TlbOrganisationConfig, shape: &ArrayShape<'_>, key: &str) -> Result<Self, EngineError> {
                match config {
                    $(TlbOrganisationConfig::$Variant(parameters) => {
                        <$Design as Organisation>::validate(parameters, key)?;
                        <$Design as Organisation>::new(parameters, shape, key).map(Self::$Variant)
                    })*
                }
            }

            /// The design's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Variant(_) => $name,)* }
            }

            /// See [`Organisation::find`].
            pub fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)> {
                match self { $(Self::$Variant(design) => design.find(array, page),)* }
            }

            /// See [`Organisation::look_up`].
            pub fn look_up(&self, array: &mut AssocArray, page: Page) -> Option<Translation> {
                match self { $(Self::$Variant(design) => design.look_up(array, page),)* }
            }

            /// See [`Organisation::cover`].
            pub fn cover(&self, page: Page, translation: Translation, run: Run) -> Cover {
                match self { $(Self::$Variant(design) => design.cover(page, translation, run),)* }
            }

            /// See [`Organisation::fill`].
            pub fn fill(
                &mut self,
                array: &mut AssocArray,
                page: Page,
                translation: Translation,
                run: Run,
            ) -> Option<Evicted> {
                match self { $(Self::$Variant(design) => design.fill(array, page, translation, run),)* }
            }

            /// See [`Organisation::drop_pages`].
            pub fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64) {
                match self { $(Self::$Variant(design) => design.drop_pages(array, asid, first, last),)* }
            }

            /// See [`Organisation::entry_bits`].
            pub fn entry_bits(&self) -> u64 {
                match self { $(Self::$Variant(design) => design.entry_bits(),)* }
            }

            /// See [`Organisation::counts`].
            pub fn counts(&self) -> &OrganisationCounts {
                match self { $(Self::$Variant(design) => design.counts(),)* }
            }
        }
    };
}
