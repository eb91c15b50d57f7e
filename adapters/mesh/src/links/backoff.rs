//! When to try again: exponential, capped, with jitter, so that peers of a node that comes back do not come in step.

use std::time::Duration;

use super::Rules;

/// The pause after `failures` in a row; `jitter` is from 0 to 1.
pub(super) fn pause(rules: &Rules, failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = rules.first_pause.saturating_mul(1 << doublings).min(rules.longest_pause);
    pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b088_pauses_grow_to_the_cap_and_never_beyond() {
        let rules = Rules::default();
        let pauses: Vec<_> = (1..100).map(|failures| pause(&rules, failures, 1.0)).collect();
        assert_eq!(pauses[0], rules.first_pause);
        assert!(pauses.is_sorted());
        assert_eq!(pauses[98], rules.longest_pause);
        assert_eq!(pause(&rules, 99, 0.0), rules.longest_pause / 2);
    }
}
