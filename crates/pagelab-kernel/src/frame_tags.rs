//! Tags of machine frames: who may use each frame, apart from all translations, and the memory that a layer reserves
//! for them (`pagelab_translate::scheme::do_it_yourself` says what they model).

use crate::config::LayerConfig;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, MachineAddr, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_tables::mmu_cache::Asid;

/// Bytes of a tag: a virtual machine and a process.
const TAG_BYTES: u64 = 4;

/// Frames whose tags share a cache line.
pub const FRAMES_PER_LINE: u64 = LINE_BYTES / TAG_BYTES;

/// The owner of frames that anybody may read.
const ANYBODY: u32 = u32::MAX;

/// The tags of all machine frames, and which of them guests have been told.
#[derive(Clone)]
pub struct FrameTags {
    first: Pfn,
    /// By machine frame: the owner's address-space tag plus 1, [`ANYBODY`], or 0 for none.
    owners: Vec<u32>,
    /// By layer, by frame of the guest: the machine frame that the guest knows for it, plus 1; 0 for none.
    known: Vec<Vec<u64>>,
}

impl FrameTags {
    /// The tags that a layer's configuration asks for, after its first `taken` of `frames` frames.
    pub fn set_aside(config: &LayerConfig, taken: u64, frames: u64) -> Result<Option<Self>, EngineError> {
        if config.frame_tags.is_none() {
            return Ok(None);
        }
        let tags = Self { first: Pfn(taken), owners: vec![0; frames as usize], known: Vec::new() };
        if tags.end().0 >= frames {
            let what = format!("the tags of {frames} frames do not fit into the memory that is left");
            return Err(EngineError::config(format!("system.layers.{}.frame_tags", config.name), what));
        }
        Ok(Some(tags))
    }

    /// The first frame after them.
    pub fn end(&self) -> Pfn {
        self.first + (self.owners.len() as u64 * TAG_BYTES).div_ceil(FRAME_BYTES)
    }

    /// Number of the line with a frame's tag, and its address.
    pub fn line(&self, frame: Pfn) -> (u64, MachineAddr) {
        let line = frame.0 / FRAMES_PER_LINE;
        (line, MachineAddr((self.first.0 << FRAME_SHIFT) + line * LINE_BYTES))
    }

    /// Gives a frame to a space, or to anybody for reading; false if its tag already says so.
    pub fn give(&mut self, frame: Pfn, asid: Asid, is_read_only: bool) -> bool {
        let owner = if is_read_only { ANYBODY } else { u32::from(asid.0) + 1 };
        std::mem::replace(&mut self.owners[frame.0 as usize], owner) != owner
    }

    /// Whether a guest knows the machine frame that holds a frame of its memory now.
    pub fn knows(&self, guest: LayerId, frame: Pfn, machine: Pfn) -> bool {
        let known = self.known.get(guest.index()).and_then(|known| known.get(frame.0 as usize));
        known.is_some_and(|&known| known == machine.0 + 1)
    }

    /// Tells a guest the machine frame of a frame of its memory; false if it knew.
    pub fn tell(&mut self, guest: LayerId, frame: Pfn, machine: Pfn) -> bool {
        let (layer, frame) = (guest.index(), frame.0 as usize);
        self.known.resize_with(self.known.len().max(layer + 1), Vec::new);
        let known = &mut self.known[layer];
        known.resize(known.len().max(frame + 1), 0);
        std::mem::replace(&mut known[frame], machine.0 + 1) != machine.0 + 1
    }
}
