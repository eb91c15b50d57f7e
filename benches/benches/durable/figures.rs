//! Figures of several rounds: their median and their spread.

use std::time::Duration;

#[derive(Default)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// Ratios, round by round.
    pub(crate) fn over(&self, others: &Self) -> Self {
        Self(self.0.iter().zip(&others.0).map(|(one, other)| one / other).collect())
    }

    /// `median (least–most)`.
    pub(crate) fn show(&self, digits: usize) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return "-".to_owned() };
        let median = sorted[sorted.len() / 2];
        format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

/// The value below which the share `q` lies.
pub(crate) fn quantile(values: &[Duration], q: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a short list"
    )]
    let index = ((sorted.len() as f64 - 1.0).max(0.0) * q).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}
