//! `--check`: every translation against a flat record of what the kernels mapped.
//!
//! The record ([`pagelab_kernel::layer::Layer::recorded`]) is kept by the kernels' decisions alone, apart from page
//! tables, TLBs and MMU caches, so a translation that is stale, misread or mixed up between spaces differs from it. And
//! a page that is swapped out has none. Of pages of files that are read from storage it compares what they hold, too
//! ([`pagelab_kernel::layer::contents`]).

use crate::machine::simulation::Simulation;
use pagelab_base::ids::SpaceId;
use pagelab_base::page_fault::Intent;
use pagelab_base::translation::Translation;
use pagelab_translate::walker::TranslationRequest;

impl Simulation {
    /// [`Hardware::check`](pagelab_translate::hardware::Hardware::check) of a program's access, and of what it reads.
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
