//! The code of a kernel, which its paths fetch through the instruction caches.
//!
//! Models: a path (a stage of page faults, or another activity) has lines of code of its own, one path after the other.
//! Each step fetches as many of them, from the first one on, as its instructions take; further instructions are loops.
//! So kernel code takes room of the program's in the instruction cache and in the levels behind it, and must be fetched
//! again when the program has taken its room.
//! Source: Lee, Jin et al., ISCA 2020 (pollution of caches by page faults). The sizes are estimates.
//! Parameters: `kernel.code`; the instructions of each step are those of `kernel.fault` and the other costs.
//! Stats: `instruction_cache.kernel.*`.
//! Deviations: a step without instructions fetches nothing. All steps of a path begin at its first line. The
//! instruction TLB always holds the kernel's code; only hosts translate its addresses. The code is fetched before the
//! step's references.

use crate::config::KernelCodeConfig;
use crate::context::KernelContext;
use crate::fault::stage::Stage;
use crate::layer::Layer;
use pagelab_base::addr::{LINE_BYTES, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::step::{Ref, RefKind, RefSpace, Step};

/// Number of paths with code of their own: the stages of faults, and seven other activities.
pub const CODE_PATHS: usize = Stage::ALL.len() + 7;

/// The memory of a kernel's code.
#[derive(Clone, Debug)]
pub struct CodeMemory {
    first: Pfn,
    frames: u64,
    config: KernelCodeConfig,
}

impl Layer {
    /// Reserves memory for the code of the kernel's paths. Errors: there is none.
    pub fn boot_code(&mut self, config: KernelCodeConfig) -> Result<(), EngineError> {
        let bytes = CODE_PATHS as u64 * u64::from(config.path_lines) * LINE_BYTES;
        if bytes > 0 {
            let memory = self.memory_for(KernelContext::BOOT).take_ring(bytes);
            let (first, frames) = memory.ok_or_else(|| self.out_of_memory("its kernel's code"))?;
            self.data.code = Some(CodeMemory { first, frames, config });
        }
        Ok(())
    }

    /// Lets a planned step fetch the code of a path first, one of [`CODE_PATHS`].
    pub fn plan_code(&self, path: usize, step: &mut Step) {
        let Some(CodeMemory { first, config, .. }) = &self.data.code else { return };
        let lines = config.lines(step.preset.instructions);
        if lines == 0 {
            return;
        }
        let addr = first.addr() + path as u64 * u64::from(config.path_lines) * LINE_BYTES;
        let kind = RefKind::Fetch { bytes: lines * LINE_BYTES };
        // The first reference follows the code.
        let number = step.refs.first().map_or(0, |next| next.step.wrapping_sub(1));
        step.refs
            .insert(0, Ref { addr, space: RefSpace::Physical, kind, step: number, independent: false, lock: None });
        if step.before_pte > 0 {
            step.before_pte += 1;
        }
    }

    /// Number of frames of the code.
    pub fn code_frames(&self) -> u64 {
        self.data.code.as_ref().map_or(0, |code| code.frames)
    }
}
