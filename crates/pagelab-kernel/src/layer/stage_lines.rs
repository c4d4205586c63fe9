//! Lines of the kernel's data that the stages of a page fault touch, besides those that the engine simulates.
//!
//! Models: the number of lines, their owner, and the stage in which a fault first touches them; not their contents. So,
//! as in a real kernel, caches must hold these lines between two faults, and lose them to the program.
//! Source: `pagelab linux trace`, which counts the lines of a real kernel.
//! Parameters: `kernel.fault.STAGE.lines`, `kernel.fault_kinds.KIND.STAGE.lines`.
//! Deviations: the lines are contiguous. Address spaces whose numbers differ by a multiple of 64 share their lines,
//! which are only read. A stage's lines are touched together, so they cost as much as the slowest of them. Kinds of
//! faults share a stage's lines.

use crate::config::StageLines;
use crate::context::KernelContext;
use crate::layer::Layer;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_base::step::{RefKind, Step};

/// Number of address spaces with lines of their own.
const SPACES: u64 = 64;

/// The memory of these lines, see the module's text.
#[derive(Clone, Debug)]
pub struct LineMemory {
    first: Pfn,
    frames: u64,
    /// For each stage: the lines of all stages before it; at the end, all lines.
    before: [StageLines; 11],
    cpus: u64,
}

impl LineMemory {
    /// Memory for this number of lines of each stage; `None` inside if they have no lines.
    fn new(most: &[StageLines; 10], cpus: u64, take: impl FnOnce(u64) -> Option<(Pfn, u64)>) -> Option<Option<Self>> {
        let mut before = [StageLines::NONE; 11];
        for (at, lines) in most.iter().enumerate() {
            let StageLines { cpu, space, kernel, .. } = before[at];
            let after = (cpu + lines.cpu, space + lines.space, kernel + lines.kernel);
            before[at + 1] = StageLines { cpu: after.0, space: after.1, kernel: after.2, again: 0 };
        }
        let all = before[10];
        if all.is_none() {
            return Some(None);
        }
        let lines = u64::from(all.cpu) * cpus + u64::from(all.space) * SPACES + u64::from(all.kernel);
        let (first, frames) = take(lines * LINE_BYTES)?;
        Some(Some(Self { first, frames, before, cpus }))
    }

    fn at(&self, line: u64) -> PhysAddr {
        self.first.addr() + line * LINE_BYTES
    }

    /// The references of a stage to these lines, by a CPU in an address space.
    fn references(
        &self,
        stage: usize,
        touched: StageLines,
        by: CpuId,
        space_index: SpaceIx,
    ) -> impl Iterator<Item = (RefKind, PhysAddr)> {
        let (from, all) = (self.before[stage], self.before[10]);
        let of_cpu = u64::from(by.0) * u64::from(all.cpu);
        let spaces = self.cpus * u64::from(all.cpu);
        let of_space = spaces + u64::from(space_index.number()) % SPACES * u64::from(all.space);
        let kernel = spaces + SPACES * u64::from(all.space);
        let lines =
            |base: u64, from: u32, many: u32| (u64::from(from)..u64::from(from + many)).map(move |line| base + line);
        let StageLines { cpu, space, kernel: shared, again } = touched;
        let written = lines(of_cpu, 0, again).chain(lines(of_cpu, from.cpu, cpu));
        let read = lines(of_space, from.space, space).chain(lines(kernel, from.kernel, shared));
        let written = written.map(|line| (RefKind::Write, line));
        written.chain(read.map(|line| (RefKind::Read, line))).map(|(kind, line)| (kind, self.at(line)))
    }

    fn plan(&self, stage: usize, touched: StageLines, by: CpuId, space_index: SpaceIx, step: &mut Step) {
        for (at, (kind, addr)) in self.references(stage, touched, by, space_index).enumerate() {
            if at == 0 {
                step.kernel_independent(kind, addr);
            } else {
                step.kernel_overlapped(kind, addr);
            }
        }
    }
}

impl Layer {
    /// Reserves memory for the lines that fault stages touch. Errors: there is none.
    pub fn boot_stage_lines(&mut self, most: &[StageLines; 10]) -> Result<(), EngineError> {
        let cpus = self.data.cpus.len() as u64;
        let memory = &mut self.memory_for(KernelContext::BOOT);
        let lines = LineMemory::new(most, cpus, |bytes| memory.take_ring(bytes));
        self.data.stage_lines = lines.ok_or_else(|| self.out_of_memory("lines of its page-fault handler"))?;
        Ok(())
    }

    /// Plans the references of a stage to its lines.
    #[inline]
    pub fn plan_stage_lines(&self, stage: usize, lines: StageLines, cpu: CpuId, space: SpaceIx, step: &mut Step) {
        if let Some(memory) = &self.data.stage_lines {
            memory.plan(stage, lines, cpu, space, step);
        }
    }

    /// Number of frames of these lines.
    pub fn stage_line_frames(&self) -> u64 {
        self.data.stage_lines.as_ref().map_or(0, |lines| lines.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(entry: StageLines, lookup: StageLines) -> [StageLines; 10] {
        let mut most = [StageLines::NONE; 10];
        (most[0], most[1]) = (entry, lookup);
        most
    }

    #[test]
    fn lines_are_of_a_cpu_of_a_space_or_of_all() {
        let entry = StageLines { cpu: 2, space: 1, kernel: 0, again: 0 };
        let lookup = StageLines { cpu: 1, space: 1, kernel: 1, again: 2 };
        let memory = LineMemory::new(&most(entry, lookup), 2, |bytes| {
            assert_eq!(bytes, (2 * 3 + 64 * 2 + 1) * 64);
            Some((Pfn(16), 4))
        });
        let memory = memory.unwrap().unwrap();
        let lines = |stage, touched, cpu, space| -> Vec<(RefKind, u64)> {
            let all = memory.references(stage, touched, CpuId(cpu), SpaceIx(space));
            all.map(|(kind, addr)| (kind, (addr.0 - (16 << 12)) / 64)).collect()
        };
        let (write, read) = (RefKind::Write, RefKind::Read);
        assert_eq!(lines(0, entry, 0, 1), [(write, 0), (write, 1), (read, 6 + 2)]);
        assert_eq!(lines(0, entry, 1, 65), [(write, 3), (write, 4), (read, 6 + 2)]);
        assert_eq!(lines(1, lookup, 1, 0), [(write, 3), (write, 4), (write, 5), (read, 6 + 1), (read, 6 + 128)]);
        assert_eq!(lines(9, StageLines::NONE, 0, 0), []);
        // A kind of fault that touches fewer of them.
        assert_eq!(lines(1, StageLines { kernel: 1, ..StageLines::NONE }, 0, 0), [(read, 6 + 128)]);
    }

    #[test]
    fn without_lines_no_memory_is_taken() {
        let memory = LineMemory::new(&most(StageLines::NONE, StageLines::NONE), 2, |_| unreachable!("nothing is"));
        assert!(memory.unwrap().is_none());
    }
}
