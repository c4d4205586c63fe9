//! The macro that generates the enums of the registered devices.

/// Registers designs. Each line gives the variant, the design's type, its name and its description; the first is the
/// default.
macro_rules! devices {
    ($(mod $module:ident { $($Variant:ident($Design:ty) = $name:literal, $text:literal;)* })*) => {
        $(mod $module;)*

        model_choice! {
            /// A device; `model` is its design.
            DeviceConfig by Device { $($($Variant($Design) = $name, $text;)*)* }
        }

        impl DeviceConfig {
            /// An example, in the syntax of `--set`.
            pub fn example() -> String {
                serde_json::to_string(&Self::samples()[0]).expect("parameters serialise")
            }
        }

        impl DeviceConfig {
            /// See [`Device::capacity`].
            pub fn capacity(&self) -> Option<Bytes> {
                match self { $($(Self::$Variant(config) => <$Design>::capacity(config),)*)* }
            }

            /// See [`Device::striping`].
            pub fn striping(&self) -> Striping {
                match self { $($(Self::$Variant(config) => <$Design>::striping(config),)*)* }
            }
        }

        /// A device of any registered design.
        #[derive(Clone)]
        pub enum BlockDevice {
            $($(#[doc = $text] $Variant($Design),)*)*
        }

        impl BlockDevice {
            /// See [`Device::new`].
            pub fn new(config: &DeviceConfig, clock: Clock) -> Self {
                match config { $($(DeviceConfig::$Variant(parameters) => Self::$Variant(Device::new(parameters, clock)),)*)* }
            }

            /// See [`Device::submit`].
            pub fn submit(&mut self, request: DeviceRequest, now: Cycles) -> Answer {
                match self { $($(Self::$Variant(device) => device.submit(request, now),)*)* }
            }

            /// See [`Device::measures`].
            pub fn measures(&self) -> Vec<Measure> {
                match self { $($(Self::$Variant(device) => device.measures(),)*)* }
            }
        }
    };
}
