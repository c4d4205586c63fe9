//! Order-0 placement: the allocator's next frame, as in Linux.
//!
//! Models: no policy; every fault allocates in the ordinary way.
//! Source: Linux mm/memory.c (`do_anonymous_page`).
//! Parameters: none.
//! Stats: none.
//! Deviations from the source: none.

use std::convert::Infallible;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::locks::TaskLocks;
use crate::memory::Memory;
use pagelab_base::error::LayerConfigError;

/// No parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Order0Config {}

/// The policy, see the module's text.
#[derive(Clone, Debug)]
pub struct Order0;

impl Policy for Order0 {
    type Config = Order0Config;
    type Step = Infallible;

    const ABOUT: &'static str = "whichever frame the allocator has next, as Linux does";
    const CHOOSES: bool = false;
    const BESIDE_FOLIOS: bool = true;

    fn new(_: &Order0Config) -> Self {
        Self
    }

    fn check(_: &Order0Config, _: &PolicyContext) -> Result<(), LayerConfigError> {
        Ok(())
    }

    fn samples() -> Vec<Order0Config> {
        vec![Order0Config {}]
    }

    fn commit(
        &mut self,
        _: Option<&WantedPage>,
        action: Infallible,
        _: &mut Memory,
        _: &mut TaskLocks,
    ) -> PlacementProgress<Infallible> {
        match action {}
    }
}
