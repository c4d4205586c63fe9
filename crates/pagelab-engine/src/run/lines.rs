//! Replays a list of cache lines through the data caches alone.

use serde::Serialize;

use crate::config::{Assembly, assemble};
use pagelab_base::addr::LineAddr;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CoreId;
use pagelab_hardware::cache::{Hierarchy, HitLevel, Requester};

const LABEL_SHIFT: u32 = 48;
const WRITE: u64 = 1 << 62;
const EMPTY_FIRST: u64 = 1 << 63;

/// Hits of the references with one label, by cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LabelledRefs {
    /// In the core's L1.
    pub l1: u64,
    /// In the core's L2.
    pub l2: u64,
    /// In the L3.
    pub l3: u64,
    /// In no cache.
    pub dram: u64,
    /// Cycles beyond the L1's latency, without overlap.
    pub waited: u64,
}

/// Replays the references of one core of a machine, starting with empty caches. A reference is a line number; bits 48
/// to 55 are its label, bit 62 means a write, and bit 63 empties the caches first. Returns the counts by label.
///
/// Errors: an unknown machine, or a line beyond its memory.
pub fn replay(machine: Option<&str>, references: impl Iterator<Item = u64>) -> Result<Vec<LabelledRefs>, EngineError> {
    let config = assemble(&Assembly { machine, ..Assembly::default() })?;
    let machine = &config.machine;
    let in_cache =
        |e: pagelab_hardware::cache::CacheConfigError| EngineError::config(format!("machine.cache.{}", e.key), e.what);
    let empty = Hierarchy::new(&machine.cache, 1, config.engine.seed).map_err(in_cache)?;
    let (mut caches, mut found) = (empty.clone(), vec![LabelledRefs::default(); 256]);
    let lines = machine.memory_bytes.0 >> 6;
    for reference in references {
        let line = reference & ((1 << LABEL_SHIFT) - 1);
        if line >= lines {
            let what = format!("has {} bytes, and a reference is to line {line:#x} of 64 bytes", machine.memory_bytes);
            return Err(EngineError::config("machine.memory_bytes", what));
        }
        if reference & EMPTY_FIRST != 0 {
            caches.clone_from(&empty);
        }
        let outcome = caches.access(CoreId::FIRST, LineAddr(line), reference & WRITE != 0, Requester::Kernel);
        let counts = &mut found[usize::from((reference >> LABEL_SHIFT) as u8)];
        counts.waited += u64::from(outcome.cycles - caches.l1_latency());
        match outcome.served {
            HitLevel::L1 => counts.l1 += 1,
            HitLevel::L2 => counts.l2 += 1,
            HitLevel::L3 => counts.l3 += 1,
            HitLevel::Dram | HitLevel::Remote => counts.dram += 1,
        }
    }
    Ok(found)
}
