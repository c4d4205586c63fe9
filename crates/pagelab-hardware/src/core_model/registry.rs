//! The macro that generates the enums of the registered core models.

/// Registers models. Each line gives the variant, the model's type, its name and its description; the first is the
/// default.
macro_rules! cores {
    ($(mod $module:ident { $($Variant:ident($Design:ty) = $name:literal, $text:literal;)* })*) => {
        $(mod $module;)*

        model_choice! {
            /// How a core turns instructions and latencies into cycles; `model` is its design.
            CoreConfig by Core { $($($Variant($Design) = $name, $text;)*)* }
        }

        /// A core of any registered model.
        #[derive(Clone, Debug)]
        pub enum CoreModel {
            $($(#[doc = $text] $Variant($Design),)*)*
        }

        impl CoreModel {
            /// See [`Core::new`].
            pub fn new(config: &CoreConfig, l1_latency: Cycles) -> Self {
                match config {
                    $($(CoreConfig::$Variant(parameters) => Self::$Variant(Core::new(parameters, l1_latency)),)*)*
                }
            }
        }

        impl Timing for CoreModel {
            #[inline(always)]
            fn base_cycles(&self, instructions: u64) -> Cycles {
                match self { $($(Self::$Variant(core) => core.base_cycles(instructions),)*)* }
            }

            #[inline(always)]
            fn repeat_stall(&self) -> Cycles {
                match self { $($(Self::$Variant(core) => core.repeat_stall(),)*)* }
            }

            #[inline(always)]
            fn models_dependencies(&self) -> bool {
                match self { $($(Self::$Variant(core) => core.models_dependencies(),)*)* }
            }

            #[inline(always)]
            fn begin_access(&mut self, incoming: IncomingAccess, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.begin_access(incoming, at),)*)* }
            }

            #[inline(always)]
            fn make_all(&mut self, row: &Row, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.make_all(row, at),)*)* }
            }

            #[inline(always)]
            fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.data_stall(data, at),)*)* }
            }

            #[inline(always)]
            fn translation_stall(&mut self, miss: L1TlbMiss, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.translation_stall(miss, at),)*)* }
            }

            fn guessed_translation_stall(&mut self, miss: L1TlbMiss, guessed: Cycles, at: CoreTime) -> (Stall, Cycles) {
                match self { $($(Self::$Variant(core) => core.guessed_translation_stall(miss, guessed, at),)*)* }
            }

            fn verified_data_stall(&mut self, data: Data, verified: Cycles, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.verified_data_stall(data, verified, at),)*)* }
            }

            fn drop_younger(&mut self, penalty: Cycles, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.drop_younger(penalty, at),)*)* }
            }

            fn fetch_stall(&mut self, latency: Cycles, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.fetch_stall(latency, at),)*)* }
            }

            fn common(&self) -> Option<Box<Common>> {
                match self { $($(Self::$Variant(core) => core.common(),)*)* }
            }

            fn resume(&mut self, common: Box<Common>, siblings: Siblings) {
                match self { $($(Self::$Variant(core) => core.resume(common, siblings),)*)* }
            }

            fn pause(&mut self) -> Option<Box<Common>> {
                match self { $($(Self::$Variant(core) => core.pause(),)*)* }
            }

            fn kernel_branches(&mut self, run: &BranchRun) -> Cycles {
                match self { $($(Self::$Variant(core) => core.kernel_branches(run),)*)* }
            }

            #[inline]
            fn kernel_window(&mut self) -> Option<&mut KernelWindow> {
                match self { $($(Self::$Variant(core) => core.kernel_window(),)*)* }
            }

            fn branches(&self) -> Option<BranchCounts> {
                match self { $($(Self::$Variant(core) => core.branches(),)*)* }
            }

            fn dependency_assumption(&self) -> Option<&'static str> {
                match self { $($(Self::$Variant(core) => core.dependency_assumption(),)*)* }
            }

            #[inline(always)]
            fn drain(&mut self, at: CoreTime) -> Stall {
                match self { $($(Self::$Variant(core) => core.drain(at),)*)* }
            }
        }
    };
}
