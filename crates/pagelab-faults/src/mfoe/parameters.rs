//! Parameters of the model, each with its origin.

use pagelab_trace::{
    TraceError,
    spec::{Kind, Parameter, ParameterDoc, Preset, Values},
};
use serde::Serialize;

use crate::timeline::{Selection, Which};

/// Picoseconds per second.
pub(super) const SECOND_PS: u64 = 1_000_000_000_000;

/// Upper limit of the hardware's time for a fault, which keeps sums within range.
const MAX_HARDWARE_PS: f64 = 1e9;

/// The engine and its threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Pages per core's ring.
    pub ring_entries: u32,
    /// Picoseconds from the start of a pass to the start of the next.
    pub period_ps: u64,
    /// Picoseconds of a fault with a page in the ring.
    pub hit_ps: u64,
    /// Additional picoseconds of a fault with an empty ring.
    pub miss_penalty_ps: u64,
    /// Pages that a thread refills per second of a pass.
    pub refill_pages_per_second: u64,
    /// Pages that a thread refills per second of the first fill.
    pub fill_pages_per_second: u64,
    /// Threads that refill; with k threads, each handles every k-th core.
    pub background_threads: u32,
    /// Order in which a pass visits the cores.
    pub visit: Visit,
    /// When the pass after a late pass begins.
    pub late_pass: LatePass,
    /// State of the rings when the program starts.
    pub initial_fill: InitialFill,
}

/// Order in which a pass visits the cores of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visit {
    /// Always from the first core up.
    FirstCore,
    /// From where the last pass stopped.
    WhereStopped,
    /// From the core after the one at which the last pass began.
    NextCore,
    /// The emptiest ring first.
    Emptiest,
}

/// When the pass after a late pass begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatePass {
    /// At the next multiple of the period; if the pass takes longer, right after it.
    AtOnce,
    /// At the first multiple of the period after the pass.
    NextPeriod,
    /// A period after the end of the pass.
    Sleep,
    /// At the next multiple of the period, when a pass that is still going stops.
    Cut,
}

/// State of the rings when the program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialFill {
    /// Empty: the threads begin to fill them.
    Running,
    /// Full.
    Done,
}

/// A parameter and the origin of its default.
struct Documented {
    name: &'static str,
    origin: &'static str,
}

const fn parameter(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind, default: Preset::Value(default), meaning }
}

const fn derived(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind, default: Preset::Derived(default), meaning }
}

const PAGES_PER_SECOND: Kind = Kind::Count { min: 1, max: 1_000_000_000_000 };

static PARAMETERS: [Parameter; 16] = [
    parameter("ring_entries", Kind::Count { min: 1, max: 65_535 }, "256", "pages of a core's ring"),
    parameter("period_us", Kind::Positive { max: 1e9 }, "2000", "microseconds from the begin of a pass to the next"),
    parameter("hit_cycles", Kind::Real { max: 1e9 }, "78", "cycles of a fault that the ring serves"),
    parameter(
        "miss_penalty_cycles",
        Kind::Real { max: 1e9 },
        "14",
        "additional cycles of a fault if the ring is empty",
    ),
    parameter("clock_ghz", Kind::Positive { max: 1000.0 }, "3", "clock that turns these cycles into time"),
    parameter("refill_pages_per_second", PAGES_PER_SECOND, "580169", "pages that a thread refills per second"),
    parameter("fill_pages_per_second", PAGES_PER_SECOND, "1093075", "pages per second when rings are filled at first"),
    parameter(
        "background_threads",
        Kind::Count { min: 1, max: 65_535 },
        "1",
        "threads that refill; with k of them, each has every k-th core",
    ),
    parameter(
        "visit",
        Kind::Choice(&["first-core", "where-stopped", "next-core", "emptiest"]),
        "first-core",
        "the core that a pass begins with: the first one, that where the last pass stopped, the one after that where the \
         last pass began, or that with the emptiest ring",
    ),
    parameter(
        "late_pass",
        Kind::Choice(&["at-once", "next-period", "sleep", "cut"]),
        "at-once",
        "when a pass takes longer than a period, the next begins right after it, or with the next period, or the pass is \
         cut short; with sleep, every pass begins a period after the end of the one before",
    ),
    parameter(
        "initial_fill",
        Kind::Choice(&["running", "done"]),
        "running",
        "the rings are filled while the program starts, or before",
    ),
    parameter(
        "faults",
        Kind::Choice(&["first-writes", "not-present", "all"]),
        "first-writes",
        "faults that are looked at: writes of pages that are not mapped, all faults of such pages, or all; where the kind is \
         unknown, all",
    ),
    derived(
        "fault_latency_ns",
        Kind::Count { min: 1, max: 4_000_000_000 },
        "the trace's",
        "latency of every fault without the engine",
    ),
    derived(
        "recording_cost_ns",
        Kind::Count { min: 0, max: 1_000_000_000 },
        "the trace's",
        "time that recording a fault took, which is taken off",
    ),
    derived("seconds", Kind::Positive { max: 8e6 }, "the trace's", "how long the program runs"),
    derived(
        "parallelism",
        Kind::Positive { max: 65_535.0 },
        "CPU time by duration where both were measured, but 1 at least; else the cores that fault",
        "cores that the program keeps busy on average",
    ),
];

static ORIGINS: [Documented; 16] = [
    Documented { name: "ring_entries", origin: "paper, section 5.2.3: 256 pages; the count has 16 bits (section 4.1)" },
    Documented { name: "period_us", origin: "paper, section 5.2.3: sleeps 2 ms" },
    Documented { name: "hit_cycles", origin: "paper, table 4: mean and standard deviation on gem5 (section 5.2.1)" },
    Documented { name: "miss_penalty_cycles", origin: "paper, table 4: mean on gem5 (section 5.2.1)" },
    Documented { name: "clock_ghz", origin: "paper, table 3a: the simulated system, whose cycles they are" },
    Documented { name: "refill_pages_per_second", origin: "paper, table 4: background thread throughput" },
    Documented { name: "fill_pages_per_second", origin: "paper, table 4: initialisation throughput" },
    Documented { name: "background_threads", origin: "paper, sections 4.5 and 5.2.3: one; more are suggested" },
    Documented { name: "visit", origin: "estimated: the paper says round-robin, but not from where" },
    Documented { name: "late_pass", origin: "estimated: the paper does not say" },
    Documented { name: "initial_fill", origin: "paper, section 5.1: filled at the start of the application" },
    Documented {
        name: "faults",
        origin: "paper, section 5.1: anonymous faults; a recording does not tell these apart",
    },
    Documented { name: "fault_latency_ns", origin: "the recording's calibration, or the process" },
    Documented { name: "recording_cost_ns", origin: "the recording's calibration" },
    Documented { name: "seconds", origin: "the recording, or the process" },
    Documented { name: "parallelism", origin: "the paper does not say what it divides the time of parallel faults by" },
];

/// Documentation of a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct ModelParameterDoc {
    /// Its name, limits and default.
    #[serde(flatten)]
    pub parameter: ParameterDoc,
    /// Origin of the default.
    pub origin: &'static str,
}

/// All parameters.
pub fn list() -> Vec<ModelParameterDoc> {
    let document = |documented: &Documented| ModelParameterDoc {
        parameter: PARAMETERS.iter().find(|p| p.name == documented.name).expect("each has an origin").document(),
        origin: documented.origin,
    };
    ORIGINS.iter().map(document).collect()
}

/// Parses `settings` (`key=value,key=value`) into the engine's configuration and the selection of faults.
///
/// # Errors
/// [`TraceError::Usage`] with the setting, and what is allowed.
pub fn parse(settings: &str) -> Result<(Config, Selection), TraceError> {
    let values = Values::parse("mfoe", &PARAMETERS, settings, 0)?;
    let cycle_ps = 1000.0 / values.real("clock_ghz");
    let small = |name: &str| u32::try_from(values.number(name)).expect("limited by its kind");
    let hardware_ps = |name: &str| Some((values.real(name) * cycle_ps).round()).filter(|&ps| ps <= MAX_HARDWARE_PS);
    let too_long = |name: &str| values.refuse(name, "at most a millisecond at clock_ghz");
    let config = Config {
        ring_entries: small("ring_entries"),
        period_ps: ((values.real("period_us") * 1e6).round() as u64).max(1),
        hit_ps: hardware_ps("hit_cycles").ok_or_else(|| too_long("hit_cycles"))? as u64,
        miss_penalty_ps: hardware_ps("miss_penalty_cycles").ok_or_else(|| too_long("miss_penalty_cycles"))? as u64,
        refill_pages_per_second: values.number("refill_pages_per_second"),
        fill_pages_per_second: values.number("fill_pages_per_second"),
        background_threads: small("background_threads"),
        visit: match values.word("visit") {
            "where-stopped" => Visit::WhereStopped,
            "next-core" => Visit::NextCore,
            "emptiest" => Visit::Emptiest,
            _ => Visit::FirstCore,
        },
        late_pass: match values.word("late_pass") {
            "next-period" => LatePass::NextPeriod,
            "sleep" => LatePass::Sleep,
            "cut" => LatePass::Cut,
            _ => LatePass::AtOnce,
        },
        initial_fill: if values.word("initial_fill") == "done" { InitialFill::Done } else { InitialFill::Running },
    };
    let selection = Selection {
        which: match values.word("faults") {
            "not-present" => Which::NotPresent,
            "all" => Which::All,
            _ => Which::FirstWrites,
        },
        latency_ns: values.optional("fault_latency_ns").map(|ns| u32::try_from(ns).expect("limited by its kind")),
        recording_cost_ns: values
            .optional("recording_cost_ns")
            .map(|ns| u32::try_from(ns).expect("limited by its kind")),
        duration_ns: values.optional_real("seconds").map(|seconds| (seconds * 1e9) as u64),
        parallelism: values.optional_real("parallelism"),
    };
    Ok((config, selection))
}

impl Default for Config {
    fn default() -> Self {
        parse("").expect("defaults are legal").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_table_4() {
        let config = Config::default();
        assert_eq!((config.ring_entries, config.period_ps), (256, 2_000_000_000));
        assert_eq!((config.hit_ps, config.miss_penalty_ps), (26_000, 4_667));
        assert_eq!((config.refill_pages_per_second, config.fill_pages_per_second), (580_169, 1_093_075));
        assert_eq!(list().len(), PARAMETERS.len());
    }

    #[test]
    fn settings_are_read_or_refused() {
        let (config, selection) = parse("ring_entries=1Ki,period_us=0.5,clock_ghz=1,late_pass=cut,faults=all").unwrap();
        assert_eq!((config.ring_entries, config.period_ps, config.hit_ps), (1024, 500_000, 78_000));
        assert_eq!((config.late_pass, selection.which), (LatePass::Cut, Which::All));
        for (settings, says) in [
            ("ring_entries=0", "mfoe: ring_entries=0: must be 1 to"),
            ("ring_entries=65536", "must be 1 to"),
            ("period_us=0", "mfoe: period_us=0: must be more than 0, to"),
            ("period_us=-2", "more than 0"),
            ("refill_pages_per_second=0", "must be 1 to"),
            ("background_threads=0", "must be 1 to"),
            ("hit_cycles=3000001", "hit_cycles=3000001: must be at most a millisecond"),
            ("clock_ghz=1e-300", "must be at most a millisecond at clock_ghz"),
            ("visit=all", "must be first-core or where-stopped or next-core or emptiest"),
            ("ring=2", "unknown parameter 'ring'; known are ring_entries, period_us, "),
        ] {
            let error = parse(settings).unwrap_err().to_string();
            assert!(error.contains(says), "{settings}: {error}");
        }
    }
}
