//! The balloon's configuration, and the rules by which a host's manager chooses its size. This module is below the
//! kernels and imports nothing from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::threads::config::ThreadParameters;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT};
use pagelab_base::error::EngineError;
use pagelab_trace::quantity::Bytes;

/// Parameters of the balloons of guests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Memory that each guest is to give back; with a manager, at first.
    pub bytes: Bytes,
    /// Cycles from the start to the inflation.
    pub start_cycles: u64,
    /// Cycles until the driver tries again when the guest's memory is short. Linux: 200 ms.
    pub retry_cycles: u64,
    /// Cycles of the host's work for a page, besides the exit and the flush.
    pub page_cycles: u32,
    /// Whether a guest without memory takes pages back from the balloon (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
    #[serde(default)]
    pub deflate_on_oom: bool,
    /// A program of the host that changes the size while the guest runs; without it, the size stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
}

/// A manager that shrinks guests when their host's memory is short, and lets them grow otherwise. Its rules, and all
/// defaults, are those of oVirt's MOM (Memory Overcommitment Manager, doc/balloon.rules). A fraction is 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manager {
    /// Cycles from one decision to the next, a multiple of `retry_cycles`; the work adds to them. MOM: 10 s
    /// (doc/mom-balloon.conf).
    pub interval_cycles: u64,
    /// Memory that a guest keeps in any case (MOM: what the virtual machine is guaranteed).
    #[serde(default)]
    pub least_bytes: Bytes,
    /// Guests shrink when less than this fraction of the host's memory is free.
    #[serde(default = "fifth")]
    pub pressure_fraction: f64,
    /// Guests must swap when no more than this fraction of the host's memory is free.
    #[serde(default = "twentieth")]
    pub critical_fraction: f64,
    /// Fraction of its memory that a guest would like to have free.
    #[serde(default = "fifth")]
    pub guest_free_fraction: f64,
    /// Fraction of its memory by which a guest shrinks or grows at a time.
    #[serde(default = "twentieth")]
    pub most_change_fraction: f64,
    /// Changes are made only if they are larger than this fraction of the guest's memory.
    #[serde(default = "least_change")]
    pub least_change_fraction: f64,
}

fn fifth() -> f64 {
    0.2
}

fn twentieth() -> f64 {
    0.05
}

fn least_change() -> f64 {
    0.0025
}

/// What MOM takes off the free fraction of a guest that must swap.
const SWAPPED_FRACTION: f64 = 0.05;

/// What a manager knows of a host and of a guest, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The host's memory.
    pub host: u64,
    /// What of it is free.
    pub host_free: u64,
    /// The guest's memory without a balloon.
    pub most: u64,
    /// The guest's memory now: without its balloon.
    pub guest: u64,
    /// What of it is free.
    pub guest_free: u64,
}

impl Manager {
    /// The memory in frames that a guest is to have from now on; `None` if that stays.
    pub fn target(&self, observed: &Observed) -> Option<u64> {
        let Observed { host, host_free, most, guest, guest_free } = *observed;
        let host_free = host_free as f64 / host as f64;
        let shrinks = host_free < self.pressure_fraction;
        let (guest, used) = (guest as f64, guest.saturating_sub(guest_free) as f64);
        let free = match () {
            () if !shrinks => self.guest_free_fraction,
            () if host_free <= self.critical_fraction => host_free - SWAPPED_FRACTION,
            () => self.guest_free_fraction * host_free / self.pressure_fraction,
        };
        let floor = (used + free * guest).max((self.least_bytes.0 >> FRAME_SHIFT) as f64);
        let step = self.most_change_fraction * if shrinks { -guest } else { guest };
        let target = (guest + step).max(floor).min(most as f64).round();
        let changes = (target - guest).abs() > self.least_change_fraction * guest && (target < guest) == shrinks;
        changes.then_some(target as u64)
    }

    fn validate(&self, retry_cycles: u64, key: &str) -> Result<(), EngineError> {
        let fail = |name: &str, what: String| Err(EngineError::config(format!("{key}.{name}"), what));
        if self.interval_cycles == 0 || !self.interval_cycles.is_multiple_of(retry_cycles) {
            let what = format!(
                "{} is not possible; allowed are multiples of retry_cycles, {retry_cycles}, from {retry_cycles} on",
                self.interval_cycles
            );
            return fail("interval_cycles", what);
        }
        if !self.least_bytes.0.is_multiple_of(FRAME_BYTES) {
            let what = format!("{} is not possible; allowed are multiples of 4096", self.least_bytes);
            return fail("least_bytes", what);
        }
        for (name, fraction) in [
            ("pressure_fraction", self.pressure_fraction),
            ("critical_fraction", self.critical_fraction),
            ("guest_free_fraction", self.guest_free_fraction),
            ("most_change_fraction", self.most_change_fraction),
            ("least_change_fraction", self.least_change_fraction),
        ] {
            if !(0.0..=1.0).contains(&fraction) {
                return fail(name, format!("{fraction} is not possible; allowed are fractions from 0 to 1"));
            }
        }
        for (low, least, name, most) in [
            ("critical_fraction", self.critical_fraction, "pressure_fraction", self.pressure_fraction),
            ("least_change_fraction", self.least_change_fraction, "most_change_fraction", self.most_change_fraction),
        ] {
            if least > most {
                return fail(
                    low,
                    format!("{least} is more than {name}, {most}; allowed are fractions from 0 to {most}"),
                );
            }
        }
        Ok(())
    }
}

impl ThreadParameters for Parameters {
    fn validate(&self, key: &str) -> Result<(), EngineError> {
        let least = if self.manager.is_some() { 0 } else { FRAME_BYTES };
        if self.bytes.0 < least || !self.bytes.0.is_multiple_of(FRAME_BYTES) {
            let what = format!("{} is not possible; allowed are multiples of 4096 from {least} on", self.bytes);
            return Err(EngineError::config(format!("{key}.bytes"), what));
        }
        for (name, cycles) in [("start_cycles", self.start_cycles), ("retry_cycles", self.retry_cycles)] {
            if cycles == 0 {
                let what = "0 is not possible; allowed is 1 and more";
                return Err(EngineError::config(format!("{key}.{name}"), what));
            }
        }
        self.manager.map_or(Ok(()), |manager| manager.validate(self.retry_cycles, &format!("{key}.manager")))
    }

    fn samples() -> Vec<Self> {
        let small = Self {
            bytes: Bytes(1 << 20),
            start_cycles: 20_000,
            retry_cycles: 50_000,
            page_cycles: 1000,
            deflate_on_oom: false,
            manager: None,
        };
        let bytes = Bytes(4 << 20);
        let large = Self { bytes, start_cycles: 1, retry_cycles: 1_000_000, page_cycles: 0, ..small };
        let manager = Manager {
            interval_cycles: 100_000,
            least_bytes: Bytes(0),
            pressure_fraction: 0.5,
            critical_fraction: 0.1,
            guest_free_fraction: 0.2,
            most_change_fraction: 0.1,
            least_change_fraction: 0.0,
        };
        vec![
            small,
            large,
            Self { deflate_on_oom: true, ..large },
            Self { manager: Some(manager), ..small },
            Self { manager: Some(Manager { pressure_fraction: 1.0, ..manager }), deflate_on_oom: true, ..small },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: &str = r#"{"interval_cycles":1,"least_bytes":"2000KiB"}"#;
    /// A guest of 10,000 frames without a balloon, of whose 8,000 frames it uses 7,000.
    const GUEST: Observed = Observed { host: 1_000_000, host_free: 0, most: 10_000, guest: 8_000, guest_free: 1_000 };

    #[test]
    fn targets_are_those_of_the_rules() {
        let manager: Manager = serde_json::from_str(DEFAULTS).unwrap();
        let target = |host_free: u64, guest_free: u64| manager.target(&Observed { host_free, guest_free, ..GUEST });
        // Without pressure, a fifth of 8,000 frames is to be free, beyond the 7,000 that are used.
        assert_eq!(target(200_000, 1_000), Some(8_600));
        // If more is free than that, a guest grows by a twentieth; never beyond its memory.
        assert_eq!(target(200_000, 3_000), Some(8_400));
        assert_eq!(target(200_000, 0), Some(9_600));
        assert_eq!(manager.target(&Observed { host_free: 200_000, guest: 9_990, ..GUEST }), None, "a small change");
        // At half of the pressure, half of that is to be free; a guest shrinks by at most a twentieth.
        assert_eq!(target(100_000, 3_000), Some(7_600));
        assert_eq!(target(100_000, 1_000), Some(7_800));
        assert_eq!(target(100_000, 800), None, "it has no more than it is to have");
        assert_eq!(target(100_000, 0), None, "guests do not grow under pressure");
        // At 4 % of the host's memory, it is to have 1 % less than it uses.
        assert_eq!(target(40_000, 0), Some(7_920));
        assert_eq!(target(50_000, 15), None, "15 of 8,000 frames are less than 0.25 %");
        assert_eq!(target(50_000, 25), Some(7_975));
        // 2,000 KiB are 500 frames.
        let small = Observed { guest: 510, guest_free: 510, ..GUEST };
        assert_eq!(manager.target(&small), Some(500));
    }

    #[test]
    fn impossible_managers_are_refused() {
        let with = |manager: &str| {
            let text = format!(
                r#"{{"bytes":"0","start_cycles":1,"retry_cycles":10,"page_cycles":0,"manager":{{"interval_cycles":20{manager}}}}}"#
            );
            let parameters: Parameters = serde_json::from_str(&text).unwrap();
            parameters.validate("balloon").map_err(|error| error.to_string())
        };
        assert_eq!(with(""), Ok(()));
        for (manager, texts) in [
            (r#","pressure_fraction":1.5"#, ["balloon.manager.pressure_fraction: 1.5", "from 0 to 1"]),
            (r#","critical_fraction":0.3"#, ["balloon.manager.critical_fraction: 0.3 is more than", "from 0 to 0.2"]),
            (r#","least_change_fraction":0.1"#, ["least_change_fraction: 0.1 is more than", "from 0 to 0.05"]),
            (r#","least_bytes":"1KiB""#, ["balloon.manager.least_bytes: 1KiB", "multiples of 4096"]),
        ] {
            let error = with(manager).unwrap_err();
            assert!(texts.iter().all(|text| error.contains(text)), "{error}");
        }
        let text =
            r#"{"bytes":"0","start_cycles":1,"retry_cycles":10,"page_cycles":0,"manager":{"interval_cycles":25}}"#;
        let parameters: Parameters = serde_json::from_str(text).unwrap();
        let error = parameters.validate("balloon").unwrap_err().to_string();
        assert!(error.contains("balloon.manager.interval_cycles: 25") && error.contains("retry_cycles, 10"), "{error}");
        let without = Parameters { manager: None, ..parameters };
        assert!(without.validate("balloon").unwrap_err().to_string().contains("multiples of 4096 from 4096 on"));
    }
}
