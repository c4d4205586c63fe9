//! Core models as the fast path uses them: by their own type, outside of a [`CoreModel`].

use super::{CoreModel, InOrder, Timing, Window};

/// A model that the fast path is compiled for.
pub trait CompiledCore: Timing + Sized {
    /// Takes the model out of a core, if the core has this model. It must be [given back](Self::give_back) before the
    /// core is used again.
    fn take(from: &mut CoreModel) -> Option<Self>;

    /// Puts it back.
    fn give_back(self, to: &mut CoreModel);
}

impl CompiledCore for InOrder {
    #[inline]
    fn take(from: &mut CoreModel) -> Option<Self> {
        if let CoreModel::InOrder(core) = from { Some(core.clone()) } else { None }
    }

    /// The model has no state, as the fast path makes no accesses of one with a branch unit, and the core has kept a
    /// copy.
    #[inline]
    fn give_back(self, _: &mut CoreModel) {}
}

impl CompiledCore for Window {
    #[inline]
    fn take(from: &mut CoreModel) -> Option<Self> {
        match std::mem::replace(from, CoreModel::InOrder(InOrder::IN_PLACE)) {
            CoreModel::Window(core) => Some(core),
            CoreModel::InOrder(core) => {
                *from = CoreModel::InOrder(core);
                None
            }
        }
    }

    #[inline]
    fn give_back(self, to: &mut CoreModel) {
        *to = CoreModel::Window(self);
    }
}
