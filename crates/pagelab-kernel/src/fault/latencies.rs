//! Latencies of page faults, by how the kernel served them.

use pagelab_base::cycles::Cycles;
use pagelab_base::latencies::Latencies;
use pagelab_base::measure::Measure;

/// How a page fault was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Without reading a device, in a frame that the fault allocated or that was in use already.
    Minor,
    /// Without reading a device, in a frame that a fault engine's thread had prepared.
    ReadyFrame,
    /// With a page that was read from a device.
    Major,
    /// By the kernel of a host, for the memory of a guest.
    Nested,
}

/// Cycles of the programs' page faults from the exception to the return, and of hosts' handlers from start to end.
#[derive(Clone, Debug, Default)]
pub struct FaultLatencies {
    minor: Latencies,
    ready: Latencies,
    major: Latencies,
    nested: Latencies,
}

impl FaultLatencies {
    /// Records the latency of a fault.
    pub fn note(&mut self, service: Service, latency: Cycles) {
        match service {
            Service::Minor => self.minor.note(latency),
            Service::ReadyFrame => self.ready.note(latency),
            Service::Major => self.major.note(latency),
            Service::Nested => self.nested.note(latency),
        }
    }

    /// The statistics `minor.latency.…` and, for whatever occurred, `ready.…`, `major.…` and `nested.…`.
    pub fn measures(&self, has_devices: bool, has_ready_frames: bool, has_guests: bool) -> Vec<Measure> {
        [
            (true, &self.minor, "minor", "page faults of the programs that read no device and took no ready frame"),
            (has_ready_frames, &self.ready, "ready", "page faults of the programs whose handler took a ready frame"),
            (has_devices, &self.major, "major", "page faults of the programs that read a device"),
            (has_guests, &self.nested, "nested", "handlers of host layers that mapped memory of a guest"),
        ]
        .into_iter()
        .filter(|(is_reported, ..)| *is_reported)
        .flat_map(|(_, latencies, name, text)| {
            let text = match name {
                "nested" => format!("{text}, from their start to their end"),
                _ => format!("{text}, from the exception to the return"),
            };
            latencies.measures(&format!("{name}.latency"), &text)
        })
        .collect()
    }
}
