//! Times as JavaScript's `toISOString` writes them.

const DAY_MS: i64 = 86_400_000;

/// None for what is no time.
pub(crate) fn iso(time_ms: f64) -> Option<String> {
    if !time_ms.is_finite() || time_ms.abs() > 8.64e15 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "within the bounds just looked at, and whole: V8 keeps times so"
    )]
    let time = time_ms as i64;
    let (year, month, day) = civil(time.div_euclid(DAY_MS));
    let of_day = time.rem_euclid(DAY_MS);
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        year if year < 0 => format!("-{:06}", -year),
        year => format!("+{year:06}"),
    };
    Some(format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
    ))
}

/// Year, month and day of a count of days since 1970, in the Gregorian calendar without end or beginning.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from the first of March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::iso;

    #[test]
    fn times_are_written_as_javascript_writes_them() {
        let times = [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (-1.0, "1969-12-31T23:59:59.999Z"),
            (951_782_400_123.0, "2000-02-29T00:00:00.123Z"),
            (8.64e15, "+275760-09-13T00:00:00.000Z"),
            (-8.64e15, "-271821-04-20T00:00:00.000Z"),
            (-62_198_755_200_000.0, "-000001-01-01T00:00:00.000Z"),
        ];
        for (time, text) in times {
            assert_eq!(iso(time).as_deref(), Some(text), "{time}");
        }
        assert_eq!(iso(f64::NAN), None);
    }
}
