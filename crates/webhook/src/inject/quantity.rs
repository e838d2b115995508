//! Kubernetes resource quantities.

use std::fmt;

/// The notation of a quantity's suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Powers of 1000, with `m`, `k`, `M`…
    Decimal,
    /// Powers of 1024, with `Ki`, `Mi`…
    Binary,
    /// Decimal exponent, with `e3`.
    Exponent,
}

/// A quantity (`k8s.io/apimachinery/pkg/api/resource`). `Display` writes the canonical form: equal
/// quantities in the same notation have equal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    /// The value in billionths.
    nanos: i128,
    /// The notation of the input.
    form: Form,
}

/// Billionths in one unit.
const NANO: i128 = 1_000_000_000;

/// The maximum value, as in Kubernetes.
const MAX: i128 = i64::MAX as i128 * NANO;

/// The maximum number of digits. Kubernetes accepts more digits, but no real quantity needs them.
const MAX_DIGITS: usize = 24;

/// Powers of ten by suffix.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Suffixes of the powers of 1024, in order.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Parses a quantity such as `100m`, `1.5Gi` or `2e3`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = unsigned
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || fraction.contains('.') || digits.len() > MAX_DIGITS {
            return None;
        }

        let (form, power, factor) = scale(suffix)?;
        let power = power
            .checked_sub(i32::try_from(fraction.len()).ok()?)?
            .checked_add(9)?;
        let units = digits.parse::<i128>().ok()?.saturating_mul(factor);
        let nanos = shifted(units, power).min(MAX);

        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            form,
        })
    }
}

/// The notation of a suffix, its power of ten and its factor.
fn scale(suffix: &str) -> Option<(Form, i32, i128)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Form::Decimal, *power, 1));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Form::Binary, 0, 1024_i128.pow(u32::try_from(at).ok()? + 1)));
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = power.strip_prefix('+').unwrap_or(power).parse().ok()?;
    (power.unsigned_abs() <= 64).then_some((Form::Exponent, power, 1))
}

/// Multiplies a number by a power of ten, rounding up and capping.
fn shifted(number: i128, power: i32) -> i128 {
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    match (factor, power >= 0) {
        (Some(factor), true) => number.saturating_mul(factor),
        (Some(factor), false) => number / factor + i128::from(number % factor != 0),
        (None, true) => {
            if number == 0 {
                0
            } else {
                MAX
            }
        }
        (None, false) => i128::from(number != 0),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }

        if self.form == Form::Binary && self.nanos.abs() >= 1024 * NANO {
            let mut number = self.nanos / NANO + i128::from(self.nanos % NANO > 0);
            let mut suffix = "";
            for name in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                suffix = name;
            }
            return write!(f, "{number}{suffix}");
        }

        let mut number = self.nanos;
        let mut power = -9;
        while number % 1000 == 0 && power < 18 {
            number /= 1000;
            power += 3;
        }

        match (self.form, DECIMAL.iter().find(|(_, other)| *other == power)) {
            (Form::Exponent, _) if power != 0 => write!(f, "{number}e{power}"),
            (_, Some((suffix, _))) => write!(f, "{number}{suffix}"),
            (_, None) => write!(f, "{number}"),
        }
    }
}

/// The canonical form of a quantity; invalid text is not changed, and the API server rejects it.
pub(super) fn canonical(text: &str) -> String {
    Quantity::parse(text.trim()).map_or_else(|| text.to_owned(), |quantity| quantity.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_is_that_of_kubernetes() {
        for (text, expected) in [
            ("2000m", "2"),
            ("1024Mi", "1Gi"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1.5Gi", "1536Mi"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("0", "0"),
            ("0Mi", "0"),
            ("2e3", "2e3"),
            ("20e2", "2e3"),
            ("1E", "1E"),
            (".5", "500m"),
            ("-5", "-5"),
            ("1n", "1n"),
            ("0.1n", "1n"),
        ] {
            assert_eq!(
                Quantity::parse(text).unwrap().to_string(),
                expected,
                "{text}"
            );
        }

        for text in [
            "",
            "-",
            "1x",
            "1.2.3",
            "Mi",
            "1 Mi",
            "1mi",
            "x1",
            "1e",
            "\n1",
            "1e-2147483648",
            "1e2147483648",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }
}
