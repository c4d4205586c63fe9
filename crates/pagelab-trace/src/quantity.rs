//! Sizes and counts as people write them: `2GiB`, `64K`, `25M`, `1e6`.
//!
//! Sizes: `K M G T P` and `KiB MiB GiB TiB PiB` (also `Ki Mi Gi Ti Pi`) are powers of 1024, `KB MB GB TB PB` powers of
//! 1000, `B` or nothing is bytes. Counts: `K M G T P` are powers of 1000, `Ki Mi Gi Ti Pi` powers of 1024. Case does
//! not matter. A number may have a fraction and a decimal exponent (`1.5GiB`, `2.5e6`) as long as the result is whole.
//! Arithmetic is exact, so that what is printed parses to the same number.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::TraceError;

const PREFIXES: [char; 5] = ['k', 'm', 'g', 't', 'p'];

/// Bytes in a size such as `2GiB`, `64K`, `4096`, `1.5GiB`, `10MB`.
///
/// # Errors
/// [`TraceError::Usage`] if the text is not a number, has an unknown unit, is not a whole number of bytes or does not
/// fit into 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, TraceError> {
    parse(
        text,
        "size",
        "2GiB, 64K, 1.5MiB, 10MB or 4096 (K, M, G, T, P and KiB… are powers of 1024, KB… of 1000)",
        |unit| {
            if unit.is_empty() || unit == "b" {
                return Some(1);
            }
            let (power, rest) = prefix(unit)?;
            match rest {
                "" | "i" | "ib" => Some(1024u64.pow(power)),
                "b" => Some(1000u64.pow(power)),
                _ => None,
            }
        },
    )
}

/// A count such as `25M`, `1Mi`, `1e6`, `4096`.
///
/// # Errors
/// [`TraceError::Usage`] if the text is not a number, has an unknown unit, is not whole or does not fit into 64 bits.
pub fn parse_count(text: &str) -> Result<u64, TraceError> {
    parse(text, "count", "25M, 1Mi, 1e6 or 4096 (K, M, G, T, P are powers of 1000, Ki, Mi… of 1024)", |unit| {
        if unit.is_empty() {
            return Some(1);
        }
        let (power, rest) = prefix(unit)?;
        match rest {
            "" => Some(1000u64.pow(power)),
            "i" => Some(1024u64.pow(power)),
            _ => None,
        }
    })
}

/// The size in the largest binary unit that represents it exactly with two decimals: `2GiB`, `1.5MiB`, `4097B`.
pub fn format_bytes(bytes: u64) -> String {
    in_units(bytes, 1024, 100, ["KiB", "MiB", "GiB", "TiB", "PiB"]).unwrap_or_else(|| format!("{bytes}B"))
}

/// The count in the largest unit that represents it exactly (decimal with two decimals, otherwise binary): `25M`,
/// `1Mi`, `12345`.
pub fn format_count(count: u64) -> String {
    in_units(count, 1000, 100, ["K", "M", "G", "T", "P"])
        .or_else(|| in_units(count, 1024, 1, ["Ki", "Mi", "Gi", "Ti", "Pi"]))
        .unwrap_or_else(|| count.to_string())
}

/// `value` in the largest of `units` that it reaches and of which it is a multiple of 1/`steps`.
fn in_units(value: u64, base: u64, steps: u64, units: [&str; 5]) -> Option<String> {
    (1..=5).rev().find_map(|power| {
        let unit = base.pow(power);
        let scaled = u128::from(value) * u128::from(steps);
        if value < unit || scaled % u128::from(unit) != 0 {
            return None;
        }
        let (whole, hundredths) = (value / unit, (scaled / u128::from(unit)) % u128::from(steps));
        let number = format!("{whole}.{hundredths:02}");
        let name = units[power as usize - 1];
        Some(format!("{}{name}", number.trim_end_matches('0').trim_end_matches('.')))
    })
}

/// The power that a unit's first letter stands for, and the rest of the unit.
fn prefix(unit: &str) -> Option<(u32, &str)> {
    let letter = unit.chars().next()?;
    let power = PREFIXES.iter().position(|&p| p == letter)? as u32 + 1;
    Some((power, &unit[letter.len_utf8()..]))
}

/// Splits `text` into number and unit and multiplies them exactly.
fn parse(text: &str, what: &str, examples: &str, factor_of: impl Fn(&str) -> Option<u64>) -> Result<u64, TraceError> {
    let wrong = |why: &str| TraceError::usage(format!("'{text}' is not a {what}{why}; write for example {examples}"));
    let lower = text.trim().to_lowercase();
    let (digits, decimals, rest) = leading_decimal(&lower).ok_or_else(|| wrong(""))?;
    let (exponent, unit) = leading_exponent(rest);
    let factor = factor_of(unit.trim_start()).ok_or_else(|| wrong(&format!(": unknown unit '{}'", unit.trim())))?;
    // value = digits × factor × 10^shift; the digits have no trailing zeros, so small powers of ten suffice.
    let shift = exponent - i64::from(decimals);
    let too_large = || wrong(": it does not fit 64 bits");
    let product = digits.checked_mul(u128::from(factor)).ok_or_else(too_large)?;
    let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|p| 10u128.checked_pow(p));
    let value = match (product, shift, power) {
        (0, ..) => 0,
        (_, 0.., Some(power)) => product.checked_mul(power).ok_or_else(too_large)?,
        (_, 0.., None) => return Err(too_large()),
        (_, _, Some(power)) if product.is_multiple_of(power) => product / power,
        _ => return Err(wrong(": it is not a whole number")),
    };
    u64::try_from(value).map_err(|_| too_large())
}

/// The decimal number at the start of `text`: its significant digits, how many of them are decimals, and the rest of
/// the text; `None` if there is no digit or there are too many to represent.
fn leading_decimal(text: &str) -> Option<(u128, u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if number.bytes().all(|b| b == b'.') {
        return None;
    }
    let digits = format!("0{whole}{fraction}").parse().ok()?;
    Some((digits, u32::try_from(fraction.len()).ok()?, rest))
}

/// The decimal exponent (`e6`, `e+6`, `e-3`) at the start of `text`, 0 if there is none, and the rest.
fn leading_exponent(text: &str) -> (i64, &str) {
    let parsed = text.strip_prefix('e').and_then(|after| {
        let signed = after.strip_prefix('+').unwrap_or(after);
        let start = usize::from(after.starts_with('-'));
        let end = signed[start..].find(|c: char| !c.is_ascii_digit()).map_or(signed.len(), |n| n + start);
        Some((signed[..end].parse::<i32>().ok()?, &signed[end..]))
    });
    parsed.map_or((0, text), |(exponent, rest)| (i64::from(exponent), rest))
}

/// A size in bytes; in configuration files a string such as `"32KiB"` or an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_bytes(self.0))
    }
}

impl std::str::FromStr for Bytes {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        parse_bytes(text).map(Self)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_bytes(self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in bytes: an integer or a string such as \"32KiB\"")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                let bytes = u64::try_from(value);
                bytes.map(Bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                parse_bytes(text).map(Bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl schemars::JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A size in bytes: an integer, or a string such as \"32KiB\" (K, M, G, T, P and KiB… are powers of 1024, KB… of 1000).",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^ *[0-9.]+([eE][+-]?[0-9]+)? *([kKmMgGtTpP]([iI]?[bB]?)|[bB])? *$" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(result: Result<u64, TraceError>) -> String {
        result.expect_err("must be refused").to_string()
    }

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("64K", 65_536),
            ("64k", 65_536),
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("1.50gib", 3 << 29),
            ("3Ti", 3 << 40),
            ("2PiB", 2 << 50),
            ("1.5pb", 1_500_000_000_000_000),
            ("10MB", 10_000_000),
            ("7kb", 7_000),
            ("12B", 12),
            (".5K", 512),
            ("1e6", 1_000_000),
            ("1e-3KB", 1),
            ("0.0000001TB", 100_000),
            ("16777215.9990234375T", u64::MAX - (1 << 30) + 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn counts_parse() {
        for (text, count) in [
            ("25M", 25_000_000),
            ("1Mi", 1 << 20),
            ("1e6", 1_000_000),
            ("1.5e+3", 1_500),
            ("2e2K", 200_000),
            ("4096", 4096),
            ("2.5g", 2_500_000_000),
            ("3P", 3_000_000_000_000_000),
            ("1Pi", 1 << 50),
            ("0e9999", 0),
        ] {
            assert_eq!(parse_count(text).unwrap(), count, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for text in ["", "GiB", ".", "1.2.3", "-5", "0x10", "five", "1e", "1 2"] {
            assert!(error(parse_bytes(text)).contains(&format!("'{text}' is not a size")), "{text}");
        }
        assert!(error(parse_bytes("5XB")).contains("unknown unit 'xb'"));
        assert!(error(parse_bytes("3é")).contains("unknown unit"));
        assert!(error(parse_count("25MB")).contains("unknown unit 'mb'"));
        assert!(error(parse_bytes("1.3")).contains("not a whole number"));
        assert!(error(parse_bytes("1e-9999")).contains("not a whole number"));
        for text in ["18446744073709551616", "16777216T", "1e9999", "1e2147483647", "1e20"] {
            assert!(error(parse_bytes(text)).contains("does not fit 64 bits"), "{text}");
        }
        assert!(error(parse_bytes(&"9".repeat(50))).contains("is not a size"));
    }

    #[test]
    fn printed_sizes_are_short_and_parse_back() {
        for (bytes, text) in [
            (0, "0B"),
            (100, "100B"),
            (1 << 10, "1KiB"),
            (1536, "1.5KiB"),
            (32 << 30, "32GiB"),
            (5 << 40, "5TiB"),
            (1 << 50, "1PiB"),
            ((1 << 30) + (1 << 28), "1.25GiB"),
            (4097, "4097B"),
            (12_288 << 10, "12MiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
        for (count, text) in
            [(0, "0"), (999, "999"), (25_000_000, "25M"), (1 << 20, "1Mi"), (12_345, "12345"), (1_050, "1.05K")]
        {
            assert_eq!(format_count(count), text);
        }
        let mut value = 1u64;
        for step in 0..200_000u64 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step) >> (step % 50);
            for value in [value, value << 10, value & !0xfffff, value / 1000 * 1000] {
                assert_eq!(parse_bytes(&format_bytes(value)).unwrap(), value);
                assert_eq!(parse_count(&format_count(value)).unwrap(), value);
            }
        }
    }

    #[test]
    fn configuration_takes_strings_and_integers_and_gives_strings() {
        let sizes: Vec<Bytes> = serde_json::from_str(r#"["32KiB", 4096, "1.5M"]"#).unwrap();
        assert_eq!(sizes, [Bytes(32 << 10), Bytes(4096), Bytes(3 << 19)]);
        assert_eq!(serde_json::to_string(&sizes).unwrap(), r#"["32KiB","4KiB","1.5MiB"]"#);
        for bad in ["-1", "1.5", "true", r#""12X""#] {
            let error = serde_json::from_str::<Bytes>(bad).unwrap_err().to_string();
            assert!(error.contains("32KiB") || error.contains("unknown unit 'x'"), "{error}");
        }
        assert_eq!(format!("{:>6}", Bytes(4096)), "  4KiB");
        assert_eq!("2M".parse::<Bytes>().unwrap(), Bytes(2 << 20));
        let schema = serde_json::to_value(schemars::schema_for!(Bytes)).unwrap();
        assert_eq!(schema["anyOf"][0]["type"], "integer");
    }
}
