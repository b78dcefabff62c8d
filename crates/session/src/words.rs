//! Errors as words for reports.

/// An error and its sources, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        // A transparent wrapper says what its source says.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = error.source();
    }
    text
}
