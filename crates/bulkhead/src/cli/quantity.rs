//! Sizes, times and CPU shares as people write them: `512MiB`, `60s`, `1.5`.

use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// A time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Millis(pub(crate) u64);

/// Thousandths of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) u32);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("kB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("TB", 1_000_000_000_000),
            ("B", 1),
        ];
        scaled(text, &units)
            .map(Self)
            .ok_or_else(|| "expected a size with its unit, such as 512MiB or 2GB".to_owned())
    }
}

impl FromStr for Millis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
        scaled(text, &units)
            .map(Self)
            .ok_or_else(|| "expected a time with its unit, such as 90s or 10m".to_owned())
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, &[("", 1_000)])
            .and_then(|milli| u32::try_from(milli).ok())
            .map(Self)
            .ok_or_else(|| "expected a number of CPUs, such as 2 or 0.5".to_owned())
    }
}

/// A positive decimal number (up to three places) followed by exactly one of the units.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 3 {
        return None;
    }
    let thousandths: u64 = format!("{fraction:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    let value = whole
        .checked_mul(*factor)?
        .checked_add(thousandths.checked_mul(*factor)? / 1_000)?;
    (value > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{Cpus, Millis, Size};

    #[test]
    fn section_6_quantities_are_read_with_their_units() {
        assert_eq!("512MiB".parse(), Ok(Size(512 << 20)));
        assert_eq!("1.5GiB".parse(), Ok(Size(3 << 29)));
        assert_eq!("2 GB".parse(), Ok(Size(2_000_000_000)));
        assert_eq!("60s".parse(), Ok(Millis(60_000)));
        assert_eq!("1.5h".parse(), Ok(Millis(5_400_000)));
        assert_eq!("0.25".parse(), Ok(Cpus(250)));
        assert_eq!("2".parse(), Ok(Cpus(2_000)));
    }

    #[test]
    fn section_6_what_is_not_a_quantity_is_refused() {
        for text in [
            "",
            "512",
            "MiB",
            "-1MiB",
            "0MiB",
            "1.MiB",
            "1.2345MiB",
            "1e9B",
            "99999999999TiB",
            "1mib",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
        assert!("60".parse::<Millis>().is_err());
        assert!("0".parse::<Cpus>().is_err());
        assert!("99999999".parse::<Cpus>().is_err());
    }
}
