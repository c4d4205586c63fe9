//! `--check`: comparing every translation with a flat record of what the kernels mapped.
//!
//! The kernels keep the record ([`pagelab_kernel::layer::Layer::recorded`]) from their decisions alone; it knows no
//! page table, TLB or MMU cache. So it reveals a translation that is stale, misread or taken from another space. A page
//! that is swapped out has no record. For pages of files that are read from storage, the contents are compared, too
//! ([`pagelab_kernel::layer::contents`]).

use crate::machine::simulation::Simulation;
use pagelab_base::ids::SpaceId;
use pagelab_base::page_fault::Intent;
use pagelab_base::translation::Translation;
use pagelab_translate::walker::TranslationRequest;

impl Simulation {
    /// Checks the translation of a program's access
    /// ([`Hardware::check`](pagelab_translate::hardware::Hardware::check)), and the contents that it accesses.
    #[inline]
    pub fn check(&mut self, wanted: &TranslationRequest, translation: Translation) {
        self.hw.check(&self.kernels.os.layers, wanted.space, wanted.va, translation);
        if self.hw.check && self.hw.check_failure.is_none() {
            let SpaceId { layer, index } = wanted.space;
            let layer = &mut self.kernels.os.layers[layer];
            if let Some((frame, _)) = layer.recorded(index, wanted.va) {
                let store = wanted.intent == Intent::Store;
                self.hw.check_failure = layer.access_contents(index, wanted.va, frame, store);
            }
        }
    }
}
