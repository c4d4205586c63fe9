//! Whether a machine has stages after its TLBs, known when the fast path is compiled.

use pagelab_translate::stages::Stages;
use pagelab_translate::translation_unit::Stage;

/// The stages of a machine.
pub(super) trait StageUnits<'a>: Sized {
    /// Whether the machine has any.
    const ARE_ANY: bool;

    /// The stages of a core, and those that all cores share.
    fn new(own: &'a mut [Stage], shared: &'a mut [Stage]) -> Self;

    /// The stages, if the machine has any.
    fn get(&mut self) -> Option<&mut Stages<'a>>;
}

/// The stages of a machine without any.
pub(super) struct NoStages;

impl<'a> StageUnits<'a> for NoStages {
    const ARE_ANY: bool = false;

    #[inline(always)]
    fn new(_: &'a mut [Stage], _: &'a mut [Stage]) -> Self {
        Self
    }

    #[inline(always)]
    fn get(&mut self) -> Option<&mut Stages<'a>> {
        None
    }
}

impl<'a> StageUnits<'a> for Stages<'a> {
    const ARE_ANY: bool = true;

    #[inline(always)]
    fn new(own: &'a mut [Stage], shared: &'a mut [Stage]) -> Self {
        Self::new(own, shared)
    }

    #[inline(always)]
    fn get(&mut self) -> Option<&mut Stages<'a>> {
        Some(self)
    }
}
