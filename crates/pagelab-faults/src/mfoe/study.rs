//! Runs the model on one source with all values of a sweep.

use pagelab_trace::TraceError;
use serde::{Deserialize, Serialize};

use super::{Config, Outcome, parameters, run};
use crate::{
    FaultTraceInfo, LatencyOrigin, Timeline,
    timeline::{Recording, Selection},
};

/// Maximum number of runs of a sweep.
const MAX_RUNS: usize = 10_000;

/// A study to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyRequest {
    /// A fault trace, a text, or the spec of a process.
    pub source: String,
    /// Seed of a process.
    pub seed: u64,
    /// Settings `key=value` of [`parameters`].
    pub settings: Vec<String>,
    /// Parameters with their values; the sweep covers all combinations.
    pub sweep: Vec<(String, Vec<String>)>,
}

/// The result of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Name of the model.
    pub model: &'static str,
    /// The requested source.
    pub source: String,
    /// The requested seed.
    pub seed: u64,
    /// The requested settings.
    pub settings: Vec<String>,
    /// Information about the source.
    pub info: FaultTraceInfo,
    /// One run for each combination of the sweep's values.
    pub runs: Vec<Run>,
}

/// One run of the model.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The parameters that the sweep sets in this run.
    pub sweep: Vec<(String, String)>,
    /// The engine's effective configuration.
    pub config: Config,
    /// Facts about the timeline of the run.
    pub timeline: TimelineFacts,
    /// The engine's effect on the program.
    pub outcome: Outcome,
}

/// Facts about a [`Timeline`].
#[derive(Clone, Debug, Serialize)]
pub struct TimelineFacts {
    /// Duration of the program without the cost of recording.
    pub duration_seconds: f64,
    /// How many cores the program keeps busy on average.
    pub parallelism: f64,
    /// Origin of the latencies.
    pub latency: LatencyOrigin,
    /// Nanoseconds subtracted from each fault.
    pub recording_cost_ns: u32,
    /// Faults that were not considered.
    pub left_out: u64,
    /// See [`Timeline::cut`].
    pub cut: u64,
}

/// Runs a study. `going` is asked before each run; once it returns false, the remaining runs are omitted.
///
/// # Errors
/// [`TraceError`] of the source; [`TraceError::Usage`] for a wrong setting, before the first run.
pub fn study(request: &StudyRequest, going: &dyn Fn() -> bool) -> Result<Study, TraceError> {
    let points = points(request)?;
    let recording = Recording::open(&request.source, request.seed)?;
    let mut made: Option<(Selection, Timeline)> = None;
    let mut runs = Vec::new();
    for (sweep, config, selection) in points {
        if !going() {
            break;
        }
        let timeline = match made.take() {
            Some((made_for, timeline)) if made_for == selection => timeline,
            _ => Timeline::new(&recording, &selection)?,
        };
        let outcome = run(&config, &timeline);
        runs.push(Run { sweep, config, timeline: facts(&timeline), outcome });
        made = Some((selection, timeline));
    }
    let StudyRequest { source, seed, settings, .. } = request.clone();
    Ok(Study { model: "mfoe", source, seed, settings, info: recording.info, runs })
}

type Point = (Vec<(String, String)>, Config, Selection);

/// All combinations of the sweep's values; the last parameter varies fastest.
fn points(request: &StudyRequest) -> Result<Vec<Point>, TraceError> {
    let count = request.sweep.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    if count.is_none_or(|count| count > MAX_RUNS) {
        return Err(TraceError::usage(format!("the sweep has more than {MAX_RUNS} runs; give fewer values")));
    }
    let mut combinations = vec![Vec::new()];
    for (name, values) in &request.sweep {
        let with = |before: &Vec<(String, String)>, value: &String| {
            let mut all = before.clone();
            all.push((name.clone(), value.clone()));
            all
        };
        combinations = combinations.iter().flat_map(|all| values.iter().map(move |value| with(all, value))).collect();
    }
    let point = |sweep: Vec<(String, String)>| {
        let swept = sweep.iter().map(|(name, value)| format!("{name}={value}"));
        let settings: Vec<_> = request.settings.iter().cloned().chain(swept).collect();
        let (config, selection) = parameters::parse(&settings.join(","))?;
        Ok((sweep, config, selection))
    };
    combinations.into_iter().map(point).collect()
}

fn facts(timeline: &Timeline) -> TimelineFacts {
    TimelineFacts {
        duration_seconds: timeline.duration_ns / 1e9,
        parallelism: timeline.parallelism,
        latency: timeline.latency.clone(),
        recording_cost_ns: timeline.recording_cost_ns,
        left_out: timeline.left_out,
        cut: timeline.cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(settings: &[&str], sweep: &[(&str, &[&str])]) -> StudyRequest {
        StudyRequest {
            source: "bursts:rate=100K,burst=400,seconds=0.2".to_owned(),
            seed: 1,
            settings: settings.iter().map(|&text| text.to_owned()).collect(),
            sweep: sweep
                .iter()
                .map(|(name, values)| ((*name).to_owned(), values.iter().map(|&v| v.to_owned()).collect()))
                .collect(),
        }
    }

    #[test]
    fn a_sweep_runs_all_combinations_in_order() {
        let sweep: &[(&str, &[&str])] = &[("ring_entries", &["128", "256"]), ("period_us", &["2000", "8000", "32000"])];
        let study = study(&request(&["clock_ghz=2"], sweep), &|| true).unwrap();
        let set: Vec<_> =
            study.runs.iter().map(|run| (run.config.ring_entries, run.config.period_ps / 1_000_000)).collect();
        assert_eq!(set, [(128, 2000), (128, 8000), (128, 32000), (256, 2000), (256, 8000), (256, 32000)]);
        assert!(study.runs.iter().all(|run| run.config.hit_ps == 39_000));
        // Fig 10: wider rings and shorter periods hit more often.
        let rates: Vec<_> = study.runs.iter().map(|run| run.outcome.hit_rate).collect();
        assert!(rates[0] > rates[1] && rates[1] > rates[2] && rates[3] > rates[0], "{rates:?}");
    }

    #[test]
    fn a_selection_may_be_swept() {
        let sweep: &[(&str, &[&str])] = &[("fault_latency_ns", &["500", "1000"])];
        let study = study(&request(&[], sweep), &|| true).unwrap();
        let overheads: Vec<_> = study.runs.iter().map(|run| run.outcome.overhead_before).collect();
        assert!((overheads[1] / overheads[0] - 2.0).abs() < 0.01, "{overheads:?}");
    }

    #[test]
    fn settings_are_checked_before_anything_runs() {
        let error = |settings: &[&str], sweep: &[(&str, &[&str])]| {
            study(&request(settings, sweep), &|| panic!("nothing may run")).unwrap_err().to_string()
        };
        assert!(error(&["ring_entries=0"], &[]).contains("ring_entries=0: must be 1 to"));
        assert!(error(&[], &[("ring", &["1"])]).contains("unknown parameter 'ring'"));
        assert!(error(&["ring_entries=2"], &[("ring_entries", &["1"])]).contains("ring_entries is given twice"));
        let many = vec!["1"; 200];
        assert!(error(&[], &[("ring_entries", &many), ("period_us", &many)]).contains("more than 10000 runs"));
    }
}
