//! MADV_PAGEOUT: the program waits until the swap device has what the call has taken from memory.
//!
//! Models: the requests go to the device together. What leaves is decided by the call ([`crate::reclaim`]). Before
//! that, the virtual machine monitor reads pages back that a host has swapped out, as for the writes of a scan.
//! Parameters: `kernel.swap`, `kernel.block_io`.

use crate::fault::io::{plan_completion, plan_submit, plan_wait};
use crate::os::Os;
use crate::reclaim::plan_read_back;
use pagelab_base::addr::Pfn;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::io::DeviceRequest;
use pagelab_base::step::{Next, Step};

#[derive(Clone, Copy, Debug)]
enum State {
    /// Let the host read pages back that are to be written.
    ReadBack,
    Submit,
    Device,
    Completion,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct PageOut {
    space: SpaceId,
    writes: Vec<DeviceRequest>,
    absent: Vec<Pfn>,
    state: State,
}

impl PageOut {
    /// Waits for these writes, from frames some of which are `absent` from the host's memory.
    pub fn new(space: SpaceId, writes: Vec<DeviceRequest>, absent: Vec<Pfn>) -> Self {
        let state = if absent.is_empty() { State::Submit } else { State::ReadBack };
        Self { space, writes, absent, state }
    }

    /// The space whose pages are written.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let (costs, requests) = (os.costs.block_io.as_ref(), self.writes.len() as u32);
        match self.state {
            State::ReadBack => plan_read_back(&self.absent, step),
            State::Submit => costs.into_iter().for_each(|costs| plan_submit(costs, requests, step)),
            State::Device => {
                step.io.swap.clone_from(&self.writes);
                costs.into_iter().for_each(|costs| plan_wait(costs, step));
            }
            State::Completion => costs.into_iter().for_each(|costs| plan_completion(costs, requests, step)),
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self) -> Next {
        self.state = match self.state {
            State::ReadBack => State::Submit,
            State::Submit => State::Device,
            State::Device => State::Completion,
            State::Completion => return Next::Done,
        };
        Next::Continue
    }

    /// Counts cycles of such a call, those of its device apart.
    pub fn charge(os: &mut Os, cycles: Cycles) {
        os.mapping.page_out_cycles += cycles;
    }
}
