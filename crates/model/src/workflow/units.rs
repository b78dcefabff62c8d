//! Durations, sizes and decimal amounts as people write them: always with a unit, never guessed at.

/// The longest duration that can be written: a year.
pub(super) const DURATION_MS_MAX: u64 = 366 * 24 * 3_600_000;

pub(super) const DURATION_FORM: &str = "a duration such as `90s`, `10m` or `1h30m`";
pub(super) const SIZE_FORM: &str = "a size such as `512MiB` or `4GiB`";

/// Reads `90s`, `10m`, `1h30m`, `2d` or `500ms`: whole numbers, each with its unit, large units first.
pub fn duration_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] = [
        ("d", 24 * 3_600_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let (mut rest, mut total, mut units) = (text, 0_u64, &UNITS[..]);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = whole(rest)?;
        let end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let index = units.iter().position(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(units[index].1)?)?;
        (rest, units) = (next, &units[index + 1..]);
    }
    (total <= DURATION_MS_MAX).then_some(total)
}

/// Reads `512MiB`, `1GiB`, `64KiB` or `100B`. Only binary units exist, so that a size means one thing.
pub fn size_bytes(text: &str) -> Option<u64> {
    let (number, unit) = whole(text)?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Writes a duration as [`duration_ms`] reads it.
pub fn write_duration(mut ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ] {
        if ms >= size {
            text.push_str(&format!("{}{unit}", ms / size));
            ms %= size;
        }
    }
    text
}

/// Writes a size as [`size_bytes`] reads it, in the largest unit that is exact.
pub fn write_size(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// A non-negative decimal number as a whole number of its `scale`th parts, if it is exactly that.
pub(super) fn scaled(value: f64, scale: u32) -> Option<u64> {
    let parts = value * f64::from(scale);
    let rounded = parts.round();
    let exact = (parts - rounded).abs() < 1e-6 * parts.abs().max(1.0);
    if !exact || !(0.0..9e15).contains(&rounded) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative and below 2^53, as checked above"
    )]
    Some(rounded as u64)
}

/// Splits off the decimal number at the beginning; more than 15 digits are none.
fn whole(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    if !(1..=15).contains(&end) {
        return None;
    }
    Some((text[..end].parse().ok()?, &text[end..]))
}
