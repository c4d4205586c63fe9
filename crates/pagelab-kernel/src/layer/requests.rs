//! The memory that a kernel's requests to devices touch: a queue pair, and other lines of its code and data.
//!
//! Source: NVM Express base specification 1.4, 4.2 and 4.6 (entries of 64 and of 16 bytes); Linux
//! drivers/nvme/host/pci.c.
//! Parameters: `kernel.block_io`.
//! Deviations: one pair for all CPUs and both devices, while Linux has one per CPU. Only the touched lines are
//! modelled; the contents of entries are not written.

use crate::context::KernelContext;
use crate::layer::Layer;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::error::EngineError;
use pagelab_base::io::NVME_COMPLETION_BYTES;

/// Entries of a queue (`NVMe io_queue_depth`).
const ENTRIES: u64 = 1024;

/// The memory, see the module's text.
#[derive(Clone, Debug)]
pub struct RequestMemory {
    submissions: Pfn,
    completions: Pfn,
    lines: Pfn,
    frames: u64,
    /// Number of requests so far.
    made: u64,
}

/// Requests that are made together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    first: u64,
    /// Number of these requests.
    pub many: u32,
}

impl RequestMemory {
    /// Address of the line with the completion of a request.
    fn completion(&self, number: u64) -> PhysAddr {
        let at = number % ENTRIES * NVME_COMPLETION_BYTES;
        self.completions.addr() + at / LINE_BYTES * LINE_BYTES
    }

    /// Addresses of the submission entries of requests.
    pub fn submissions(&self, requested: Requested) -> impl Iterator<Item = PhysAddr> + '_ {
        let numbers = requested.first..requested.first + u64::from(requested.many).min(ENTRIES);
        numbers.map(|number| self.submissions.addr() + number % ENTRIES * LINE_BYTES)
    }

    /// Addresses of the lines with their completions, each once.
    pub fn completions(&self, requested: Requested) -> Vec<PhysAddr> {
        let numbers = requested.first..requested.first + u64::from(requested.many).min(ENTRIES);
        let mut lines: Vec<PhysAddr> = numbers.map(|number| self.completion(number)).collect();
        lines.dedup();
        lines
    }

    /// Address of one of the other lines.
    pub fn line(&self, line: u32) -> PhysAddr {
        self.lines.addr() + u64::from(line) * LINE_BYTES
    }

    /// Number of 4 KiB frames of this memory.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

impl Layer {
    /// Reserves memory for requests to devices, and for the other lines that they touch. Errors: there is none.
    pub fn boot_requests(&mut self, lines: u32) -> Result<(), EngineError> {
        let memory = &mut self.memory_for(KernelContext::BOOT);
        let mut take = |bytes: u64| memory.take_ring(bytes);
        let rings =
            [ENTRIES * LINE_BYTES, ENTRIES * NVME_COMPLETION_BYTES, u64::from(lines) * LINE_BYTES].map(&mut take);
        let [Some(submissions), Some(completions), Some(lines)] = rings else {
            return Err(self.out_of_memory("its requests to devices"));
        };
        let frames = submissions.1 + completions.1 + lines.1;
        let (submissions, completions, lines) = (submissions.0, completions.0, lines.0);
        self.data.requests = Some(RequestMemory { submissions, completions, lines, frames, made: 0 });
        Ok(())
    }

    /// Begins this number of requests.
    pub fn begin_requests(&mut self, many: u32) -> Requested {
        let Some(requests) = &mut self.data.requests else { return Requested { first: 0, many } };
        let first = requests.made;
        requests.made += u64::from(many);
        Requested { first, many }
    }

    /// The memory that requests touch, in kernels where they have a cost.
    pub fn request_memory(&self) -> &RequestMemory {
        self.data.requests.as_ref().expect("requests cost the kernel something")
    }

    /// Number of frames of that memory.
    pub fn request_frames(&self) -> u64 {
        self.data.requests.as_ref().map_or(0, RequestMemory::frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_round_and_four_completions_share_a_line() {
        let memory = RequestMemory { submissions: Pfn(16), completions: Pfn(32), lines: Pfn(36), frames: 21, made: 0 };
        let at = |first, many| Requested { first, many };
        let lines =
            |base: u64, numbers: &[u64]| numbers.iter().map(|n| PhysAddr((base << 12) + n * 64)).collect::<Vec<_>>();
        assert_eq!(memory.submissions(at(1022, 4)).collect::<Vec<_>>(), lines(16, &[1022, 1023, 0, 1]));
        assert_eq!(memory.completions(at(1022, 4)), lines(32, &[255, 0]));
        assert_eq!(memory.completions(at(2, 5)), lines(32, &[0, 1]));
        assert_eq!(memory.submissions(at(0, 5000)).count(), 1024, "at most the entries of the queue");
    }
}
