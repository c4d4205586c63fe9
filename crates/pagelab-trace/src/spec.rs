//! Parameters of things that a spec describes, such as a workload: their kinds, limits and values.
//!
//! A spec is `name` or `name:key=value,key=value`. Sizes and counts are written as in [`quantity`](crate::quantity).

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    TraceError,
    quantity::{format_bytes, format_count, parse_bytes, parse_count},
    suggestion::nearest,
};

/// A parameter that a spec can set.
pub struct Parameter {
    /// Its name in a spec.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its value if a spec does not set it.
    pub default: Preset,
    /// Its meaning, with its unit.
    pub meaning: &'static str,
}

/// Documentation of a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterDoc {
    /// Its name in a spec.
    pub name: &'static str,
    /// `bytes`, `count`, `fraction`, `number` or `choice`.
    pub unit: &'static str,
    /// The default as in a spec, or a description of how it follows from other parameters.
    pub default: &'static str,
    /// The accepted values.
    pub allowed: String,
    /// Its meaning, with its unit.
    pub meaning: &'static str,
}

/// The values that a parameter accepts; limits are inclusive.
pub enum Kind {
    /// A size such as `2GiB`.
    Bytes {
        /// The least, in bytes.
        min: u64,
        /// The most, in bytes.
        max: u64,
    },
    /// A count such as `25M`.
    Count {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A power of two as a size in bytes.
    PowerOfTwo {
        /// The least, in bytes.
        min: u64,
        /// The most, in bytes.
        max: u64,
    },
    /// A real number from 0 to 1.
    Fraction,
    /// A real number from 0 to `max`.
    Real {
        /// The most.
        max: f64,
    },
    /// A real number above 0 and up to `max`.
    Positive {
        /// The most.
        max: f64,
    },
    /// One of several words.
    Choice(&'static [&'static str]),
}

/// The value of a parameter that the spec does not set.
pub enum Preset {
    /// As it would be in a spec.
    Value(&'static str),
    /// Computed from other values; the text says how.
    Derived(&'static str),
}

/// Maximum number of bytes of an array: half the user half of a 47-bit address space.
pub(crate) const MAX_ARRAY_BYTES: u64 = 1 << 46;
const MAX_COUNT: u64 = 1 << 62;
/// Values of a switch.
pub(crate) const YES_NO: Kind = Kind::Choice(&["yes", "no"]);
pub(crate) const SIZE: Kind = Kind::Bytes { min: 1, max: MAX_ARRAY_BYTES };
pub(crate) const COUNT: Kind = Kind::Count { min: 1, max: MAX_COUNT };

/// Parameters with one meaning in all workloads.
pub(crate) const THREADS: Parameter = Parameter {
    name: "threads",
    kind: Kind::Count { min: 1, max: 1024 },
    default: Preset::Value("1"),
    meaning: "threads of the process",
};
pub(crate) const GAP: Parameter = Parameter {
    name: "gap",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: Preset::Value("3"),
    meaning: "instructions per access, including its own",
};
pub(crate) const ALIGN: Parameter = Parameter {
    name: "align",
    kind: Kind::PowerOfTwo { min: 4096, max: 1 << 40 },
    default: Preset::Value("2MiB"),
    meaning: "alignment of each array's first byte",
};
/// The seed of every workload.
pub const SEED: Parameter = Parameter {
    name: "seed",
    kind: Kind::Count { min: 0, max: u64::MAX },
    default: Preset::Derived("the seed of the run"),
    meaning: "seed of the random choices",
};

impl Parameter {
    /// Its documentation.
    pub fn document(&self) -> ParameterDoc {
        let (Preset::Value(default) | Preset::Derived(default)) = self.default;
        let unit = match self.kind {
            Kind::Bytes { .. } | Kind::PowerOfTwo { .. } => "bytes",
            Kind::Count { .. } => "count",
            Kind::Fraction => "fraction",
            Kind::Real { .. } | Kind::Positive { .. } => "number",
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
            Self::Positive { max } => format!("more than 0, to {max}"),
            Self::Choice(words) => words.join(" or "),
        }
    }

    /// Parses `text`; on error, why it is not a value.
    fn parse(&self, text: &str) -> Result<Value, String> {
        let refused = || format!("must be {}", self.allowed());
        match self {
            Self::Bytes { min, max } | Self::PowerOfTwo { min, max } | Self::Count { min, max } => {
                let parsed = if matches!(self, Self::Count { .. }) { parse_count(text) } else { parse_bytes(text) };
                let number = parsed.map_err(|error| error.to_string())?;
                let even = !matches!(self, Self::PowerOfTwo { .. }) || number.is_power_of_two();
                if (*min..=*max).contains(&number) && even { Ok(Value::Number(number)) } else { Err(refused()) }
            }
            Self::Fraction => real(text, 1.0).map(Value::Real).ok_or_else(refused),
            Self::Real { max } => real(text, *max).map(Value::Real).ok_or_else(refused),
            Self::Positive { max } => real(text, *max).filter(|real| *real > 0.0).map(Value::Real).ok_or_else(refused),
            Self::Choice(words) => words.iter().find(|&&w| w == text).map(|w| Value::Word(w)).ok_or_else(refused),
        }
    }
}

/// Parses `text` as a number from 0 to `max`.
fn real(text: &str, max: f64) -> Option<f64> {
    text.parse::<f64>().ok().filter(|real| (0.0..=max).contains(real))
}

#[derive(Clone, Copy)]
enum Value {
    Number(u64),
    Real(f64),
    Word(&'static str),
}

/// The values of parameters: from the spec, otherwise the defaults.
pub struct Values {
    name: &'static str,
    parameters: &'static [Parameter],
    /// For each parameter its text in the spec (empty if not set) and its value; none if derived.
    values: Vec<(String, Option<Value>)>,
    run_seed: u64,
}

impl Values {
    /// Parses `settings`, the part of a spec after the colon. `run_seed` is the default of `seed`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] with the setting, and what is allowed.
    ///
    /// # Panics
    /// If the default of a parameter is not one of its values.
    pub fn parse(
        name: &'static str,
        parameters: &'static [Parameter],
        settings: &str,
        run_seed: u64,
    ) -> Result<Self, TraceError> {
        let usage = |what: String| TraceError::usage(format!("{name}: {what}"));
        let mut values = vec![(String::new(), None); parameters.len()];
        for setting in settings.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let (key, text) = setting
                .split_once('=')
                .map(|(key, text)| (key.trim(), text.trim()))
                .ok_or_else(|| usage(format!("'{setting}' is not key=value; keys are {}", names(parameters))))?;
            let index = parameters.iter().position(|p| p.name == key).ok_or_else(|| {
                let near = nearest(key, parameters.iter().map(|p| p.name));
                let meant = near.map_or(String::new(), |near| format!("did you mean {near}? "));
                usage(format!("unknown parameter '{key}'; {meant}known are {}", names(parameters)))
            })?;
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
        Ok(Self { name, parameters, values, run_seed })
    }

    fn entry(&self, name: &str) -> &(String, Option<Value>) {
        let index = self.parameters.iter().position(|p| p.name == name);
        &self.values[index.unwrap_or_else(|| panic!("{} has no parameter {name}", self.name))]
    }

    /// True if there is a parameter `name`.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|p| p.name == name)
    }

    /// The size or count `name`, if the spec or its default gives one.
    pub fn optional(&self, name: &str) -> Option<u64> {
        match self.entry(name).1 {
            Some(Value::Number(number)) => Some(number),
            Some(_) => panic!("{name} is not a number"),
            None => None,
        }
    }

    /// The size or count `name`, which has a default.
    pub fn number(&self, name: &str) -> u64 {
        self.optional(name).unwrap_or_else(|| panic!("{name} has no default"))
    }

    /// The real number `name`, if the spec or its default gives one.
    pub fn optional_real(&self, name: &str) -> Option<f64> {
        match self.entry(name).1 {
            Some(Value::Real(real)) => Some(real),
            Some(_) => panic!("{name} is not a real number"),
            None => None,
        }
    }

    /// The real number `name`, which has a default.
    pub fn real(&self, name: &str) -> f64 {
        self.optional_real(name).unwrap_or_else(|| panic!("{name} has no default"))
    }

    /// The choice `name`.
    pub fn word(&self, name: &str) -> &'static str {
        match self.entry(name).1 {
            Some(Value::Word(word)) => word,
            _ => panic!("{name} is not a choice"),
        }
    }

    /// Whether the choice `name` is `yes`.
    pub fn is_yes(&self, name: &str) -> bool {
        self.word(name) == "yes"
    }

    /// True if the spec itself sets `name`.
    pub fn given(&self, name: &str) -> bool {
        !self.entry(name).0.is_empty()
    }

    /// The seed in the spec, or that of the run.
    pub fn seed(&self) -> u64 {
        self.optional(SEED.name).unwrap_or(self.run_seed)
    }

    pub(crate) fn threads(&self) -> u64 {
        self.number(THREADS.name)
    }

    pub(crate) fn gap(&self) -> u32 {
        u32::try_from(self.number(GAP.name)).expect("limited by its kind")
    }

    /// The name of what the spec describes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// An error about the value of `name`, which `must` be different.
    pub fn refuse(&self, name: &str, must: &str) -> TraceError {
        let given = &self.entry(name).0;
        let mut what = format!("{}: {name}", self.name);
        if !given.is_empty() {
            write!(what, "={given}").expect("writing to a string");
        }
        TraceError::usage(format!("{what}: must be {must}"))
    }

    /// An error about a combination of values.
    pub fn conflict(&self, what: &str) -> TraceError {
        TraceError::usage(format!("{}: {what}", self.name))
    }
}

fn names(parameters: &[Parameter]) -> String {
    parameters.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
}
