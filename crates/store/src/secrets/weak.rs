//! Values that cannot be secrets here. A value is masked wherever it appears, so one that appears
//! everywhere would make logs unreadable, and one that anybody guesses protects nothing.

/// The shortest value that is accepted, in characters.
const MIN_CHARS: usize = 8;
/// A value with fewer different characters than this is a pattern, not a secret.
const MIN_DIFFERENT: usize = 4;

/// Words of eight letters and more that logs are full of, and passwords that everybody tries first.
const COMMON: &str = include_str!("common.txt");

/// Why a value is refused, if it is.
pub(crate) fn weakness(value: &str) -> Option<&'static str> {
    let value = value.trim();
    if value.chars().count() < MIN_CHARS {
        return Some(
            "it has fewer than 8 characters, and masking it would tear holes into every log",
        );
    }
    let mut different: Vec<char> = value.chars().collect();
    different.sort_unstable();
    different.dedup();
    if different.len() < MIN_DIFFERENT {
        return Some("it repeats fewer than 4 different characters");
    }
    if is_run(value) {
        return Some("it only counts up or down");
    }
    if is_common(value) {
        return Some(
            "it is a common word or password, and masking it would tear holes into every log",
        );
    }
    None
}

/// A word of the list, in any case, also with digits or marks around it (`Password123!`).
fn is_common(value: &str) -> bool {
    let lower = value.to_lowercase();
    let bare = lower.trim_matches(|c: char| !c.is_alphabetic());
    COMMON
        .lines()
        .any(|word| word == lower || (word == bare && lower.len() <= bare.len() + 4))
}

/// Whether each character follows the one before by the same step of one: `12345678`, `hgfedcba`.
fn is_run(value: &str) -> bool {
    let codes: Vec<i64> = value.chars().map(|c| i64::from(u32::from(c))).collect();
    [1, -1]
        .iter()
        .any(|step| codes.windows(2).all(|pair| pair[1] - pair[0] == *step))
}

#[cfg(test)]
mod tests {
    use super::weakness;

    #[test]
    fn case_30_short_common_and_patterned_values_are_refused() {
        for weak in [
            "",
            "hunter2",
            "12345678",
            "87654321",
            "abcdefgh",
            "aaaaaaaaaaaa",
            "abababababab",
            "password",
            "Password",
            "PASSWORD1",
            "Password123!",
            "production",
            "localhost",
            "undefined",
            "1q2w3e4r",
            "qwertyuiop",
            "       x      ",
        ] {
            assert!(weakness(weak).is_some(), "{weak:?} was accepted");
        }
    }

    #[test]
    fn r17_real_credentials_are_accepted() {
        for fine in [
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "sk-ant-api03-x9",
            "correct horse battery staple",
            "postgres://app:s3cr3t@db/app",
            "zX9!kQ2#",
            "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n",
        ] {
            assert_eq!(weakness(fine), None, "{fine:?}");
        }
    }
}
