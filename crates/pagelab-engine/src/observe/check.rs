//! `--check`: every translation against a flat record of what the kernels mapped.
//!
//! The record ([`crate::kernel::layer::Layer::recorded`]) is kept by the kernels' decisions alone, apart from page tables, TLBs and
//! MMU caches, so a translation that is stale, misread or mixed up between spaces differs from it. And a page that is swapped
//! out has none. Of pages of files that are read from storage it compares what they hold, too ([`crate::kernel::layer::contents`]).

use crate::base::addr::{FRAME_BYTES, FRAME_SHIFT, PhysAddr, VirtAddr};
use crate::base::error::EngineError;
use crate::base::ids::SpaceId;
use crate::base::page_fault::Intent;
use crate::base::translation::Translation;
use crate::kernel::layer::Layer;
use crate::machine::simulation::Simulation;
use crate::translate::hardware::Hardware;
use crate::translate::walker::TranslationRequest;

impl Simulation {
    /// [`Hardware::check`] of a program's access, and of what it sees there.
    #[inline]
    pub fn check(&mut self, wanted: &TranslationRequest, translation: Translation) {
        self.hw.check(&self.os.layers, wanted.space, wanted.va, translation);
        if self.hw.check && self.hw.check_failure.is_none() {
            let SpaceId { layer, index } = wanted.space;
            let layer = &mut self.os.layers[layer];
            if let Some((frame, _)) = layer.recorded(index, wanted.va) {
                let store = wanted.intent == Intent::Store;
                self.hw.check_failure = layer.access_contents(index, wanted.va, frame, store);
            }
        }
    }
}

impl Hardware {
    /// Compares a translation with the record, if checking is on. A difference is kept in [`Hardware::check_failure`], which
    /// ends the run soon: the simulator is wrong then, not its user.
    #[inline]
    pub fn check(&mut self, layers: &[Layer], space: SpaceId, va: VirtAddr, translation: Translation) {
        if self.check && self.check_failure.is_none() {
            self.check_failure = difference(layers, space, va, translation);
        }
    }

    /// Says what has been found.
    pub fn end_check(&mut self) -> Result<(), EngineError> {
        self.check_failure.take().map_or(Ok(()), |what| Err(EngineError::Check { what }))
    }
}

/// What is wrong with a translation, if anything is.
fn difference(layers: &[Layer], space: SpaceId, va: VirtAddr, translation: Translation) -> Option<String> {
    if let Some(word) = layers[space.layer].word(space.index, va) {
        return Some(format!("{va:?} of {space:?} has a translation, but its entry says {word:?}"));
    }
    let found = translation.address(va).0 >> FRAME_SHIFT;
    let what = match recorded_on_machine(layers, space, va) {
        None => format!("translates to frame {found:#x}, but no mapping is recorded"),
        Some((frame, _)) if frame != found => format!("translates to frame {found:#x}, but {frame:#x} is recorded"),
        Some((_, false)) if translation.writable() => "is writable, but was mapped read-only".to_owned(),
        Some(_) => return None,
    };
    Some(format!("{va:?} of {space:?} {what}"))
}

/// Machine frame of an address, and whether every layer allows stores, by the records of all layers.
pub fn recorded_on_machine(layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<(u64, bool)> {
    let layer = &layers[space.layer];
    let (frame, writable) = layer.recorded(space.index, va)?;
    let Some(host) = layer.host else { return Some((frame.0, writable)) };
    let below = PhysAddr(frame.addr().0 | va.0 & (FRAME_BYTES - 1));
    let (frame, below_writable) = recorded_on_machine(layers, host, VirtAddr(below.0))?;
    Some((frame, writable && below_writable))
}

#[cfg(test)]
mod tests {
    use crate::base::addr::PhysAddr;
    use crate::base::error::EngineError;
    use crate::base::ids::DIRECT_MAP;
    use crate::config::{Assembly, assemble};
    use crate::machine::simulation::{PlacedSource, Simulation};
    use crate::page_table::WalkList;

    #[test]
    fn a_table_that_lies_is_found_out() {
        let set = ["engine.check=on".to_owned()];
        let config = assemble(&Assembly { machine: None, system: Some("radix"), kernel: None, set: &set }).unwrap();
        let source = pagelab_trace::workload::parse("seq:size=1MiB,passes=1", 1).unwrap();
        let mut simulation =
            Simulation::new(&config, vec![PlacedSource { source, cpus: vec![0], memory_limit: None }], None).unwrap();
        // The direct map's first gigabyte page leads elsewhere.
        let layer = &mut simulation.os.layers[0];
        let mut list = WalkList::new();
        let va = layer.direct(PhysAddr(0));
        layer.spaces[DIRECT_MAP as usize].table.walk(&layer.mem, va, &mut list);
        let entry = list.refs().last().unwrap().addr;
        let told = layer.mem.read(entry);
        layer.mem.write(entry, told ^ 1 << 30);
        let error = simulation.run(&mut |_| true).unwrap_err();
        let EngineError::Check { what } = &error else { panic!("{error}") };
        assert!(what.contains("translates to frame 0x4") && what.contains("but 0x"), "{what}");
    }
}
