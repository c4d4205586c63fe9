//! The stretches of a program that are recorded or skipped.
//!
//! A stretch covers all processes and threads. It is defined by instructions, counted over all of them, or by calls of
//! functions and signals. Stretches begin and end at segments of code, which have a few dozen instructions.

use serde::Deserialize;

use super::functions::{FunctionCall, Functions};
use crate::format::StretchTotals;
use crate::quantity::parse_count;
use crate::rng::Rng;
use crate::{EventKind, TraceError};

/// The stretches to record, as users specify them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StretchRequest {
    /// Number of instructions that are skipped at first.
    pub skip: Option<u64>,
    /// `every=N,length=N[,warm=N][,offset=N|random][,seed=N]`, in instructions.
    pub windows: Option<String>,
    /// Functions whose calls begin a recorded stretch.
    pub start_at: Vec<String>,
    /// Functions whose calls end one.
    pub stop_at: Vec<String>,
    /// Whether SIGUSR1 to the recorder begins a recorded stretch and SIGUSR2 ends it.
    pub start_on_signal: bool,
}

/// One window per period, after `skip` instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    pub every: u64,
    pub length: u64,
    pub warm: u64,
    pub offset: Offset,
    /// Windows with a longer warm-up.
    pub longer: Option<Longer>,
}

/// One period in `each` has a warm-up of `warm` instructions, if there are as many since the previous window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Longer {
    pub each: u64,
    pub warm: u64,
}

impl Longer {
    /// Whether it applies to this period, numbered from 0.
    pub fn is(self, period: u64) -> bool {
        period % self.each == self.each / 2
    }
}

/// Start of a window in its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offset {
    Fixed(u64),
    /// Drawn for each period.
    Random {
        seed: u64,
    },
}

/// The stretches to record.
#[derive(Clone, Debug)]
pub struct Stretches {
    skip: u64,
    periods: Option<Periods>,
    start_at: Vec<FunctionCall>,
    stop_at: Vec<FunctionCall>,
    pub(super) on_signal: bool,
}

impl StretchRequest {
    /// None if everything is to be recorded.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if it is impossible; it says what is possible.
    pub fn parse(&self) -> Result<Option<Stretches>, TraceError> {
        let functions = |texts: &[String]| texts.iter().map(|text| FunctionCall::parse(text)).collect::<Result<_, _>>();
        let stretches = Stretches {
            skip: self.skip.unwrap_or(0),
            periods: self.windows.as_deref().map(Periods::parse).transpose()?,
            start_at: functions(&self.start_at)?,
            stop_at: functions(&self.stop_at)?,
            on_signal: self.start_on_signal,
        };
        if self.skip == Some(0) {
            return Err(TraceError::usage("a skip of 0 instructions skips nothing; remove it, or write 1 or more"));
        }
        let counted = self.skip.is_some() || self.windows.is_some();
        let by_functions = !(self.start_at.is_empty() && self.stop_at.is_empty());
        if counted && (by_functions || self.start_on_signal) {
            return Err(TraceError::usage(
                "stretches are given by instructions (skip, windows), or by functions and signals (start-at, stop-at, \
                 start-on-signal), not by both; leave one of the two out",
            ));
        }
        Ok((counted || by_functions || self.start_on_signal).then_some(stretches))
    }
}

/// Syntax of windows.
pub(crate) struct Grammar {
    /// Name of the setting.
    pub name: &'static str,
    /// The allowed keys.
    pub keys: &'static [&'static str],
    pub example: &'static str,
}

const WINDOWS: Grammar = Grammar {
    name: "windows",
    keys: &["every", "length", "warm", "offset", "seed"],
    example: "every=1G,length=20M,warm=5M,offset=random",
};

impl Grammar {
    fn wrong(&self, text: &str, what: &str) -> TraceError {
        TraceError::usage(format!("{} `{text}`: {what}; an example is {}", self.name, self.example))
    }

    /// The values of the keys, in the order of the keys.
    fn values<'t>(&self, text: &'t str) -> Result<Vec<Option<&'t str>>, TraceError> {
        let mut values = vec![None; self.keys.len()];
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (key.trim(), value.trim());
            let Some(at) = self.keys.iter().position(|known| *known == key) else {
                let what = format!("`{key}` is not known here; known are {}", self.keys.join(", "));
                return Err(self.wrong(text, &what));
            };
            if values[at].replace(value).is_some() {
                return Err(self.wrong(text, &format!("{key} is given twice")));
            }
        }
        Ok(values)
    }
}

impl Periods {
    fn parse(text: &str) -> Result<Self, TraceError> {
        Self::parse_as(&WINDOWS, text)
    }

    /// Windows without a fixed offset begin with their periods, unless `offset=random` is allowed and given.
    pub(crate) fn parse_as(grammar: &Grammar, text: &str) -> Result<Self, TraceError> {
        let wrong = |what: String| grammar.wrong(text, &what);
        let values = grammar.values(text)?;
        let count = |key: &str, least: u64| {
            let parse = |text| {
                let number = parse_count(text).ok().filter(|&number| number >= least);
                number.ok_or_else(|| wrong(format!("{key}={text}: must be a count from {least} on, such as 20M")))
            };
            let at = grammar.keys.iter().position(|known| *known == key);
            at.and_then(|at| values[at]).map(parse).transpose()
        };
        let needed = |key: &str| count(key, 1)?.ok_or_else(|| wrong(format!("{key} is missing")));
        let (every, length, warm) = (needed("every")?, needed("length")?, count("warm", 1)?.unwrap_or(0));
        let seed = count("seed", 0)?;
        let offset = match values[3] {
            Some("random") if grammar.keys.contains(&"seed") => Offset::Random { seed: seed.unwrap_or(1) },
            _ => Offset::Fixed(count("offset", 0)?.unwrap_or(0)),
        };
        if seed.is_some() && matches!(offset, Offset::Fixed(_)) {
            return Err(wrong("a seed is for offset=random".to_owned()));
        }
        if length > every {
            return Err(wrong(format!("a window of {length} instructions is longer than its period of {every}")));
        }
        if warm > every - length {
            return Err(wrong(format!("warm={warm} and length={length} are longer than the period of {every}")));
        }
        if let Offset::Fixed(offset) = offset
            && offset > every - length
        {
            return Err(wrong(format!("offset={offset} and length={length} are longer than the period of {every}")));
        }
        Ok(Self { every, length, warm, offset, longer: None })
    }

    /// Maximum number of instructions that warm up for the window of a period.
    fn warm_of(&self, period: u64) -> u64 {
        self.longer.filter(|longer| longer.is(period)).map_or(self.warm, |longer| longer.warm)
    }
}

/// The treatment of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Skipped,
    Warming,
    Measured,
}

/// What to record from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything, to the end.
    All,
    /// Everything, for this many instructions.
    Recorded { left: u64 },
    /// First touches only, for this many instructions, in the skipped stretch of this number.
    Skipped { left: u64, stretch: u64 },
}

/// Progress of a recording through its stretches.
#[derive(Debug)]
pub(crate) struct Schedule {
    periods: Option<Periods>,
    /// The period of the current or next window, and its start.
    period: u64,
    period_begin: u64,
    rng: Option<Rng>,
    /// Start of the window in instructions.
    window_begin: u64,
    functions: Functions,
    phase: Phase,
    /// Number of instructions so far, and the number at which the phase ends.
    instructions: u64,
    until: u64,
    /// Request of a function or signal.
    requested: Option<bool>,
    /// Number of the skipped stretch, and what was skipped in it.
    stretch: u64,
    skipped_instructions: u64,
    skipped_accesses: u64,
    totals: StretchTotals,
    /// Whether the trace contains the first phase.
    announced: bool,
}

impl Schedule {
    /// A schedule of windows in periods from the beginning on.
    pub(crate) fn from_periods(periods: Periods) -> Self {
        let (start_at, stop_at) = (Vec::new(), Vec::new());
        Self::new(&Stretches { skip: 0, periods: Some(periods), start_at, stop_at, on_signal: false })
    }

    pub(super) fn new(stretches: &Stretches) -> Self {
        let Stretches { skip, periods, start_at, stop_at, on_signal } = stretches;
        let rng = periods.as_ref().and_then(|periods| match periods.offset {
            Offset::Fixed(_) => None,
            Offset::Random { seed } => Some(Rng::new(seed, "windows of a recording")),
        });
        let mut schedule = Self {
            periods: *periods,
            period: 0,
            period_begin: *skip,
            rng,
            window_begin: 0,
            functions: Functions::new(start_at, stop_at),
            phase: Phase::Skipped,
            instructions: 0,
            until: u64::MAX,
            requested: None,
            stretch: 1,
            skipped_instructions: 0,
            skipped_accesses: 0,
            totals: StretchTotals::default(),
            announced: false,
        };
        if periods.is_some() {
            schedule.place_window();
            schedule.until = schedule.warm_begin();
        } else if start_at.is_empty() && !on_signal {
            schedule.until = *skip;
        }
        schedule
    }

    fn place_window(&mut self) {
        let Some(Periods { every, length, offset, .. }) = self.periods else { return };
        let offset = match (offset, &mut self.rng) {
            (Offset::Fixed(offset), _) => offset,
            (Offset::Random { .. }, Some(rng)) => rng.below(every - length + 1),
            (Offset::Random { .. }, None) => unreachable!("random offsets have numbers"),
        };
        self.window_begin = self.period_begin.saturating_add(offset);
    }

    /// Start of the warm-up for the window.
    fn warm_begin(&self) -> u64 {
        self.window_begin
            .saturating_sub(self.periods.map_or(0, |periods| periods.warm_of(self.period)))
            .max(self.instructions)
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        let left = self.until - self.instructions.min(self.until);
        match self.phase {
            Phase::Skipped => Mode::Skipped { left, stretch: self.stretch },
            Phase::Warming | Phase::Measured => Mode::Recorded { left },
        }
    }

    /// Counts executed instructions, which are recorded or skipped depending on the mode, and omitted accesses among
    /// them.
    pub(crate) fn executed(&mut self, instructions: u64, left_out: u64) {
        self.instructions += instructions;
        match self.phase {
            Phase::Skipped => {
                self.skipped_instructions += instructions;
                self.skipped_accesses += left_out;
                self.totals.skipped_instructions += instructions;
                self.totals.skipped_accesses += left_out;
            }
            Phase::Warming => self.totals.warming_instructions += instructions,
            Phase::Measured => self.totals.measured_instructions += instructions,
        }
    }

    pub(super) fn ask(&mut self, record: bool) {
        self.requested = Some(record);
    }

    pub(super) fn functions(&mut self) -> &mut Functions {
        &mut self.functions
    }

    /// Makes every page count as untouched, in all processes that map it.
    pub(crate) fn forget_pages(&mut self) {
        self.stretch += 1;
    }

    /// Whether the trace contains the phase with which it begins.
    pub(crate) fn is_announced(&self) -> bool {
        self.announced
    }

    /// Whether the phase has ended.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.instructions >= self.until || self.requested.is_some() || !self.announced
    }

    /// Enters the phase that is due; returns the events for the trace.
    pub(crate) fn enter_due_phase(&mut self) -> Vec<EventKind> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.announced, true) && self.instructions < self.until {
            events.push(EventKind::Skip);
        }
        if let Some(record) = self.requested.take() {
            match (record, self.phase) {
                (true, Phase::Skipped) => self.enter_phase(Phase::Measured, &mut events),
                (false, Phase::Measured) => self.enter_phase(Phase::Skipped, &mut events),
                _ => {}
            }
        }
        while self.instructions >= self.until {
            let (phase, until) = self.next();
            self.until = until;
            self.enter_phase(phase, &mut events);
        }
        events
    }

    /// The next phase, and its end.
    fn next(&mut self) -> (Phase, u64) {
        let Some(Periods { every, length, .. }) = self.periods else { return (Phase::Measured, u64::MAX) };
        match self.phase {
            Phase::Skipped if self.window_begin > self.instructions => (Phase::Warming, self.window_begin),
            Phase::Skipped | Phase::Warming => (Phase::Measured, self.window_begin.saturating_add(length)),
            Phase::Measured => {
                self.period += 1;
                self.period_begin = self.period_begin.saturating_add(every);
                self.place_window();
                (Phase::Skipped, self.warm_begin())
            }
        }
    }

    fn enter_phase(&mut self, phase: Phase, events: &mut Vec<EventKind>) {
        match (self.phase, phase) {
            (Phase::Skipped, Phase::Warming | Phase::Measured) => {
                let (instructions, accesses) = (self.skipped_instructions, self.skipped_accesses);
                // A trace that begins with a window has nothing to resume.
                if self.instructions > 0 || !events.is_empty() {
                    events.push(EventKind::Resume { instructions, accesses });
                }
                (self.skipped_instructions, self.skipped_accesses) = (0, 0);
            }
            (_, Phase::Skipped) => {
                self.stretch += 1;
                events.push(EventKind::Skip);
            }
            (Phase::Warming | Phase::Measured, _) => {}
        }
        if phase == Phase::Measured {
            self.totals.windows += 1;
            events.push(EventKind::Measure);
        }
        self.phase = phase;
    }

    pub(crate) fn totals(&self) -> StretchTotals {
        self.totals
    }

    /// Notes on what is missing and why, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.functions.notes();
        if self.totals.windows == 0 {
            let instructions = self.instructions;
            notes.push(format!(
                "all of the program was skipped: it ended after {instructions} instructions, before the first stretch to record"
            ));
        }
        notes
    }
}

#[cfg(test)]
#[path = "stretches_tests.rs"]
mod tests;
