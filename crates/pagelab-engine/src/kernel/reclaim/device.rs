//! Block devices that pages are read from and written to.
//!
//! Models: a device that serves a number of requests at a time, each in the same time, in the order in which they come.
//! Parameters: `kernel.swap.*`, `kernel.storage.*`: cycles of a read and of a write, queue depth.
//! Deviations: a request of several pages that follow each other takes as long as one of a single page.

use crate::base::cycles::Cycles;
use crate::base::step::DeviceRequests;

/// See the module's text.
#[derive(Clone)]
pub struct BlockDevice {
    read_cycles: Cycles,
    write_cycles: Cycles,
    /// When each of its places for a request is free again.
    free_at: Vec<Cycles>,
}

impl BlockDevice {
    pub fn new(read_cycles: Cycles, write_cycles: Cycles, queue_depth: u32) -> Self {
        Self { read_cycles, write_cycles, free_at: vec![Cycles::ZERO; queue_depth as usize] }
    }

    /// Makes requests at `now`; returns when the last of them is done.
    pub fn submit(&mut self, requests: DeviceRequests, now: Cycles) -> Cycles {
        let reads = (0..requests.reads).map(|_| self.read_cycles);
        let writes = (0..requests.writes).map(|_| self.write_cycles);
        let mut done = now;
        for cycles in reads.chain(writes) {
            let place = self.free_at.iter_mut().min().expect("it serves one request at least");
            *place = now.max(*place) + cycles;
            done = done.max(*place);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_overlaps_as_many_requests_as_its_queue_is_deep() {
        let mut device = BlockDevice::new(Cycles(100), Cycles(40), 2);
        assert_eq!(device.submit(DeviceRequests { reads: 1, writes: 0 }, Cycles(1000)), Cycles(1100));
        // One beside the read, the next behind itself, the third behind the second or the read.
        assert_eq!(device.submit(DeviceRequests { reads: 0, writes: 3 }, Cycles(1000)), Cycles(1120));
        assert_eq!(device.submit(DeviceRequests::default(), Cycles(5000)), Cycles(5000));
    }
}
