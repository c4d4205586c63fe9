//! Parameters of workloads: their kinds and limits, and the values that a spec gives them.

use std::fmt::Write as _;

use super::ParameterDoc;
use crate::{
    TraceError,
    quantity::{format_bytes, format_count, parse_bytes, parse_count},
};

/// A parameter that a workload takes.
pub(super) struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Preset,
    pub meaning: &'static str,
}

/// What values a parameter takes; limits are inclusive.
pub(super) enum Kind {
    /// A size such as `2GiB`.
    Bytes { min: u64, max: u64 },
    /// A count such as `25M`.
    Count { min: u64, max: u64 },
    /// A power of two as a size in bytes.
    PowerOfTwo { min: u64, max: u64 },
    /// A real number from 0 to 1.
    Fraction,
    /// A real number from 0 to `max`.
    Real { max: f64 },
    /// One of some words.
    Choice(&'static [&'static str]),
}

/// The value of a parameter that the spec does not name.
pub(super) enum Preset {
    /// As it would be written.
    Value(&'static str),
    /// Computed by the workload; the text says how.
    Derived(&'static str),
}

/// The most bytes that one array may have: half the user half of a 47-bit address space.
pub(super) const MAX_ARRAY_BYTES: u64 = 1 << 46;
const MAX_COUNT: u64 = 1 << 62;
/// Words of a switch.
pub(super) const YES_NO: Kind = Kind::Choice(&["yes", "no"]);
pub(super) const SIZE: Kind = Kind::Bytes { min: 1, max: MAX_ARRAY_BYTES };
pub(super) const COUNT: Kind = Kind::Count { min: 1, max: MAX_COUNT };

/// Parameters with one meaning in all workloads.
pub(super) const THREADS: Parameter = Parameter {
    name: "threads",
    kind: Kind::Count { min: 1, max: 1024 },
    default: Preset::Value("1"),
    meaning: "threads of the process",
};
pub(super) const GAP: Parameter = Parameter {
    name: "gap",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: Preset::Value("3"),
    meaning: "instructions that each access stands for, its own included",
};
pub(super) const ALIGN: Parameter = Parameter {
    name: "align",
    kind: Kind::PowerOfTwo { min: 4096, max: 1 << 40 },
    default: Preset::Value("2MiB"),
    meaning: "alignment of each array's first byte",
};
pub(super) const SEED: Parameter = Parameter {
    name: "seed",
    kind: Kind::Count { min: 0, max: u64::MAX },
    default: Preset::Derived("the seed of the run"),
    meaning: "what the random choices follow from",
};

impl Parameter {
    pub fn document(&self) -> ParameterDoc {
        let (Preset::Value(default) | Preset::Derived(default)) = self.default;
        let unit = match self.kind {
            Kind::Bytes { .. } | Kind::PowerOfTwo { .. } => "bytes",
            Kind::Count { .. } => "count",
            Kind::Fraction => "fraction",
            Kind::Real { .. } => "number",
            Kind::Choice(_) => "choice",
        };
        ParameterDoc { name: self.name, unit, default, allowed: self.kind.allowed(), meaning: self.meaning }
    }
}

impl Kind {
    fn allowed(&self) -> String {
        match self {
            Self::Bytes { min, max } => format!("{} to {}", format_bytes(*min), format_bytes(*max)),
            Self::PowerOfTwo { min, max } => {
                format!("a power of two from {} to {}", format_bytes(*min), format_bytes(*max))
            }
            Self::Count { min, max: u64::MAX } => format!("{min} to 2^64 - 1"),
            Self::Count { min, max } => format!("{min} to {}", format_count(*max)),
            Self::Fraction => "0 to 1".to_owned(),
            Self::Real { max } => format!("0 to {max}"),
            Self::Choice(words) => words.join(" or "),
        }
    }

    /// The value of `text`, or why it is none.
    fn parse(&self, text: &str) -> Result<Value, String> {
        let refused = || format!("must be {}", self.allowed());
        match self {
            Self::Bytes { min, max } | Self::PowerOfTwo { min, max } | Self::Count { min, max } => {
                let parsed = if matches!(self, Self::Count { .. }) { parse_count(text) } else { parse_bytes(text) };
                let number = parsed.map_err(|error| error.to_string())?;
                let even = !matches!(self, Self::PowerOfTwo { .. }) || number.is_power_of_two();
                if (*min..=*max).contains(&number) && even { Ok(Value::Number(number)) } else { Err(refused()) }
            }
            Self::Fraction | Self::Real { .. } => {
                let max = if let Self::Real { max } = self { *max } else { 1.0 };
                let real = text.parse::<f64>().ok().filter(|real| (0.0..=max).contains(real));
                real.map(Value::Real).ok_or_else(refused)
            }
            Self::Choice(words) => words.iter().find(|&&w| w == text).map(|w| Value::Word(w)).ok_or_else(refused),
        }
    }
}

#[derive(Clone, Copy)]
enum Value {
    Number(u64),
    Real(f64),
    Word(&'static str),
}

/// The values of a workload's parameters: those of the spec, else the defaults.
pub(super) struct Values {
    workload: &'static str,
    parameters: &'static [Parameter],
    /// One for each parameter: its text in the spec (empty if it is not there) and its value; none if derived.
    values: Vec<(String, Option<Value>)>,
    run_seed: u64,
}

impl Values {
    /// Reads `settings`, the part of a spec behind the colon.
    pub fn parse(
        workload: &'static str,
        parameters: &'static [Parameter],
        settings: &str,
        run_seed: u64,
    ) -> Result<Self, TraceError> {
        let usage = |what: String| TraceError::usage(format!("{workload}: {what}"));
        let mut values = vec![(String::new(), None); parameters.len()];
        for setting in settings.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let (key, text) = setting
                .split_once('=')
                .map(|(key, text)| (key.trim(), text.trim()))
                .ok_or_else(|| usage(format!("'{setting}' is not key=value; keys are {}", names(parameters))))?;
            let index = parameters
                .iter()
                .position(|p| p.name == key)
                .ok_or_else(|| usage(format!("unknown parameter '{key}'; known are {}", names(parameters))))?;
            if values[index].1.is_some() {
                return Err(usage(format!("{key} is given twice")));
            }
            let value = parameters[index].kind.parse(text).map_err(|why| usage(format!("{key}={text}: {why}")))?;
            values[index] = (text.to_owned(), Some(value));
        }
        for (parameter, (_, value)) in parameters.iter().zip(&mut values) {
            if let (None, Preset::Value(text)) = (&value, &parameter.default) {
                *value = Some(parameter.kind.parse(text).expect("a default is a legal value"));
            }
        }
        Ok(Self { workload, parameters, values, run_seed })
    }

    fn entry(&self, name: &str) -> &(String, Option<Value>) {
        let index = self.parameters.iter().position(|p| p.name == name);
        &self.values[index.unwrap_or_else(|| panic!("{} has no parameter {name}", self.workload))]
    }

    /// True if the workload takes `name`.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|p| p.name == name)
    }

    /// The size or count `name` if the spec or its default says one.
    pub fn optional(&self, name: &str) -> Option<u64> {
        match self.entry(name).1 {
            Some(Value::Number(number)) => Some(number),
            Some(_) => panic!("{name} is not a number"),
            None => None,
        }
    }

    pub fn number(&self, name: &str) -> u64 {
        self.optional(name).unwrap_or_else(|| panic!("{name} has no default"))
    }

    /// The real number `name` if the spec or its default says one.
    pub fn optional_real(&self, name: &str) -> Option<f64> {
        match self.entry(name).1 {
            Some(Value::Real(real)) => Some(real),
            Some(_) => panic!("{name} is not a real number"),
            None => None,
        }
    }

    pub fn real(&self, name: &str) -> f64 {
        self.optional_real(name).unwrap_or_else(|| panic!("{name} has no default"))
    }

    pub fn word(&self, name: &str) -> &'static str {
        match self.entry(name).1 {
            Some(Value::Word(word)) => word,
            _ => panic!("{name} is not a choice"),
        }
    }

    pub fn is_yes(&self, name: &str) -> bool {
        self.word(name) == "yes"
    }

    /// True if the spec itself names `name`.
    pub fn given(&self, name: &str) -> bool {
        !self.entry(name).0.is_empty()
    }

    pub fn seed(&self) -> u64 {
        self.optional(SEED.name).unwrap_or(self.run_seed)
    }

    pub fn threads(&self) -> u64 {
        self.number(THREADS.name)
    }

    pub fn gap(&self) -> u32 {
        u32::try_from(self.number(GAP.name)).expect("limited by its kind")
    }

    pub fn workload(&self) -> &'static str {
        self.workload
    }

    /// An error about the value of `name`, which `must` be otherwise.
    pub fn refuse(&self, name: &str, must: &str) -> TraceError {
        let given = &self.entry(name).0;
        let mut what = format!("{}: {name}", self.workload);
        if !given.is_empty() {
            write!(what, "={given}").expect("writing to a string");
        }
        TraceError::usage(format!("{what}: must be {must}"))
    }

    /// An error about how values go together.
    pub fn conflict(&self, what: &str) -> TraceError {
        TraceError::usage(format!("{}: {what}", self.workload))
    }
}

fn names(parameters: &[Parameter]) -> String {
    parameters.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
}
