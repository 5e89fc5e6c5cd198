//! Typed values of the configuration: periods `"45s"`, sizes `"10KiB"`, secrets, words, one text or several.
//!
//! **Invariant:** a value carries its unit, and none of them can say "unlimited". Each type knows its own JSON Schema,
//! whose `x-kind` tells the checks, the typing of variables and the generated reference what it is.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Longest period that any setting may have: a day, like the longest deadline.
pub const PERIOD_MAX: Duration = Duration::from_millis(ambit_core::limit::DEADLINE_MS_MAX);
/// Largest size that any setting may have, in bytes: what fits a process of ordinary size.
pub const SIZE_MAX: u64 = 1 << 30;

/// A length of time longer than nothing, at most [`PERIOD_MAX`], in whole milliseconds: `"150ms"`, `"1.5s"`, `"2m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A length of time that may be nothing: `"0ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait(pub Duration);

/// A number of bytes, at least one, at most [`SIZE_MAX`]: `"512B"`, `"10KiB"`, `"1MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A secret, already fetched from where its reference points. Prints as `***`.
#[derive(Clone)]
pub struct Secret(pub SecretString);

/// One text or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Several(pub Vec<String>);

/// Any JSON value, kept as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Anything(pub serde_json::Value);

impl Period {
    /// Milliseconds, never zero.
    #[must_use]
    pub fn ms(self) -> u64 {
        millis(self.0)
    }

    /// Reads `"45s"`.
    ///
    /// # Errors
    /// Says what is wrong with the text, for a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        let length = length(text)?;
        if length.is_zero() { Err("must be longer than nothing".into()) } else { Ok(Self(length)) }
    }
}

impl Wait {
    /// Milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        millis(self.0)
    }

    /// Reads `"0ms"` or `"2s"`.
    ///
    /// # Errors
    /// Says what is wrong with the text, for a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        length(text).map(Self)
    }
}

impl Size {
    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Reads `"10KiB"`.
    ///
    /// # Errors
    /// Says what is wrong with the text, for a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (digits, unit) = split(text)?;
        let factor: u64 = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "KB" | "kB" | "K" | "k" | "kb" => return Err(format!("`{unit}` is no unit here: write `{digits}KiB` (1,024 bytes each)")),
            "MB" | "M" | "m" | "mb" => return Err(format!("`{unit}` is no unit here: write `{digits}MiB` (1,048,576 bytes each)")),
            "" => return Err(format!("the unit is missing: write `{digits}B` or `{digits}KiB`")),
            other => return Err(format!("`{other}` is no unit of size")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("`{digits}` is no whole number"))?;
        match number.checked_mul(factor) {
            Some(0) => Err("must be at least one byte".into()),
            Some(bytes) if bytes <= SIZE_MAX => Ok(Self(bytes)),
            Some(_) | None => Err(format!("is more than the {} that any size may be", Self(SIZE_MAX))),
        }
    }
}

/// Splits a number from its unit.
fn split(text: &str) -> Result<(&str, &str), String> {
    if ["unlimited", "infinite", "infinity", "inf", "none", "never", "off"].contains(&text.to_ascii_lowercase().as_str()) {
        return Err(format!("`{text}` is not a value: everything in Ambit has a bound"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if end == 0 {
        return Err("does not begin with a number".into());
    }
    Ok(text.split_at(end))
}

/// Reads a length of time in whole milliseconds.
fn length(text: &str) -> Result<Duration, String> {
    let (digits, unit) = split(text)?;
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => return Err(format!("the unit is missing: write `{digits}s` or `{digits}ms`")),
        other => return Err(format!("`{other}` is no unit of time")),
    };
    let not_whole = || format!("`{text}` is no whole number of milliseconds");
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u64 = whole.parse().map_err(|_| format!("`{digits}` is no number"))?;
    let mut ms = whole.checked_mul(factor);
    if !fraction.is_empty() {
        // At most nine digits, so that the product below cannot overflow: 10^9 x 86.4 x 10^6 < 2^64.
        let scale =
            10_u64.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX)).filter(|s| *s <= 1_000_000_000).ok_or_else(not_whole)?;
        let part: u64 = fraction.parse().map_err(|_| format!("`{digits}` is no number"))?;
        if !(part * factor).is_multiple_of(scale) {
            return Err(not_whole());
        }
        ms = ms.and_then(|ms| ms.checked_add(part * factor / scale));
    } else if digits.contains('.') {
        return Err(format!("`{digits}` is no number"));
    }
    match ms.map(Duration::from_millis) {
        Some(length) if length <= PERIOD_MAX => Ok(length),
        Some(_) | None => Err(format!("is longer than the {} that any setting may last", Period(PERIOD_MAX))),
    }
}

/// Milliseconds of a period, which are known to fit.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ms();
        match [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
            .into_iter()
            .find(|(unit, _)| ms != 0 && ms.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", ms / unit),
            // 1500 ms reads better as a number of milliseconds than as a fraction.
            None => write!(f, "{ms}ms"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Period(self.0).fmt(f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(bits, _)| self.0.is_multiple_of(1 << bits) && self.0 != 0) {
            Some((bits, name)) => write!(f, "{}{name}", self.0 >> bits),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(SecretString::from(String::deserialize(d)?)))
    }
}

impl<'de> Deserialize<'de> for Several {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Several;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Several, E> {
                Ok(Several(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Several, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Several(texts))
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(d).map(Self)
    }
}

/// Gives a type an inlined schema.
macro_rules! schema {
    ($name:ident, $schema:tt) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(Period, { "type": "string", "x-kind": "period", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$" });
schema!(Wait, { "type": "string", "x-kind": "wait", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$" });
schema!(Size, { "type": "string", "x-kind": "size", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" });
schema!(Secret, { "type": "string", "x-kind": "secret" });
schema!(Several, { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }], "x-kind": "several" });
schema!(Anything, { "type": "object", "x-kind": "any" });

/// Declares an enum whose variants are words in the configuration. Numbers are no words (figment would take an index).
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// Its word in the configuration.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                match text.as_str() {
                    $($text => Ok(Self::$variant),)+
                    other => Err(serde::de::Error::unknown_variant(other, &[$($text),+])),
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text),+] })
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: fmt::Display>(parse: impl Fn(&str) -> Result<T, String>, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let got = parse(text).map_or_else(|e| format!("error: {e}"), |v| v.to_string());
            assert_eq!(&got, expected, "{text}");
        }
    }

    #[test]
    fn a_period_is_a_number_with_its_unit() {
        check(
            Period::parse,
            &[
                ("45s", "45s"),
                ("1500ms", "1500ms"),
                ("1.5s", "1500ms"),
                ("0.25m", "15s"),
                ("120s", "2m"),
                ("24h", "1d"),
                ("1d", "1d"),
                ("86400001ms", "error: is longer than the 1d that any setting may last"),
                ("99999999999999999999s", "error: `99999999999999999999` is no number"),
                ("184467440737095516d", "error: is longer than the 1d that any setting may last"),
                ("0s", "error: must be longer than nothing"),
                ("0.0001s", "error: `0.0001s` is no whole number of milliseconds"),
                ("0.0000000000001d", "error: `0.0000000000001d` is no whole number of milliseconds"),
                ("1.s", "error: `1.` is no number"),
                ("1.2.3s", "error: `1.2.3` is no number"),
                ("45", "error: the unit is missing: write `45s` or `45ms`"),
                ("45 s", "error: ` s` is no unit of time"),
                ("-1s", "error: does not begin with a number"),
                ("", "error: does not begin with a number"),
                ("Unlimited", "error: `Unlimited` is not a value: everything in Ambit has a bound"),
            ],
        );
        check(Wait::parse, &[("0ms", "0ms"), ("0s", "0ms"), ("2s", "2s")]);
    }

    #[test]
    fn a_size_is_a_whole_number_of_bytes_with_its_unit() {
        check(
            Size::parse,
            &[
                ("10KiB", "10KiB"),
                ("10240B", "10KiB"),
                ("1MiB", "1MiB"),
                ("1GiB", "1GiB"),
                ("1073741825B", "error: is more than the 1GiB that any size may be"),
                ("18446744073709551615GiB", "error: is more than the 1GiB that any size may be"),
                ("0B", "error: must be at least one byte"),
                ("1.5KiB", "error: `1.5` is no whole number"),
                ("10KB", "error: `KB` is no unit here: write `10KiB` (1,024 bytes each)"),
                ("10", "error: the unit is missing: write `10B` or `10KiB`"),
                ("none", "error: `none` is not a value: everything in Ambit has a bound"),
            ],
        );
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", Secret("hunter2".to_owned().into())), "***");
    }
}
