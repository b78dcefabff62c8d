//! Medians and percentiles of a set of durations.

use std::time::Duration;

#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, taken: Duration) {
        self.0.push(taken.as_secs_f64() * 1e3);
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which the given share of the samples lies, in milliseconds; nearest rank.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil().max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among samples"
        )]
        let index = rank as usize - 1;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median_ms(&self) -> f64 {
        self.percentile_ms(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let mut samples = Samples::default();
        for ms in [5, 1, 4, 2, 3] {
            samples.add(Duration::from_millis(ms));
        }
        assert!((samples.median_ms() - 3.0).abs() < 1e-9);
        assert!((samples.percentile_ms(0.95) - 5.0).abs() < 1e-9);
        assert!((samples.percentile_ms(0.0) - 1.0).abs() < 1e-9);
    }
}
