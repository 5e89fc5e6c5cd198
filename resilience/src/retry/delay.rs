//! How long to wait before an attempt is made again. All arithmetic saturates.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::RetryOptions;

/// A pushed-back attempt leaves up to this many per mille later than told, so that all those told the same do not
/// come back at the same moment. Never earlier.
const PUSHBACK_JITTER_PERMILLE: u32 = 100;

/// The wait before retry `n` (from 0): uniform between `min_delay` and the smaller of `max_delay` and
/// `base` x 2^(n+1).
#[must_use]
pub fn back_off(options: &RetryOptions, n: u32, rng: &mut impl Rng) -> Duration {
    let ceiling = ceiling(options, n);
    if ceiling <= options.min_delay { options.min_delay } else { rng.random_range(options.min_delay..=ceiling) }
}

/// The wait that the other side asked for, with a little more; never below `min_delay`.
#[must_use]
pub fn pushed_back(options: &RetryOptions, told: Duration, rng: &mut impl Rng) -> Duration {
    let more = told.saturating_mul(rng.random_range(0..=PUSHBACK_JITTER_PERMILLE)) / 1_000;
    told.saturating_add(more).max(options.min_delay)
}

fn ceiling(options: &RetryOptions, n: u32) -> Duration {
    let doubled = 1_u32.checked_shl(n.saturating_add(1)).unwrap_or(u32::MAX);
    options.base.saturating_mul(doubled).min(options.max_delay)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const OPTIONS: RetryOptions = RetryOptions::attempts(NonZeroU32::MIN);

    fn spread(mut draw: impl FnMut(&mut StdRng) -> Duration) -> (u128, u128) {
        let mut rng = StdRng::seed_from_u64(1);
        let drawn: Vec<_> = (0..4_000).map(|_| draw(&mut rng).as_millis()).collect();
        (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap())
    }

    #[track_caller]
    fn check(n: u32, low: u128, high: u128) {
        let (min, max) = spread(|rng| back_off(&OPTIONS, n, rng));
        assert!(low <= min && max <= high, "retry {n}: {min}..{max}");
        // The whole range is used.
        assert!(min - low < 20 && high - max < 20, "retry {n}: {min}..{max}");
    }

    #[test]
    fn the_first_wait_is_100_to_400_ms_and_each_next_doubles_up_to_5_s() {
        check(0, 100, 400);
        check(1, 100, 800);
        check(2, 100, 1_600);
        check(3, 100, 3_200);
        check(4, 100, 5_000);
        check(30, 100, 5_000);
        check(31, 100, 5_000);
        check(u32::MAX, 100, 5_000);
    }

    #[test]
    fn arithmetic_saturates() {
        let mut rng = StdRng::seed_from_u64(1);
        let wide = RetryOptions { base: Duration::MAX, max_delay: Duration::MAX, min_delay: Duration::MAX, ..OPTIONS };
        assert_eq!(back_off(&wide, 9, &mut rng), Duration::MAX);
        assert_eq!(pushed_back(&wide, Duration::MAX, &mut rng), Duration::MAX);
        let swapped = RetryOptions { min_delay: Duration::from_secs(9), ..OPTIONS };
        assert_eq!(back_off(&swapped, 0, &mut rng), Duration::from_secs(9), "the shortest wait wins");
    }

    #[test]
    fn pushback_is_never_early_and_at_most_a_tenth_late() {
        let (min, max) = spread(|rng| pushed_back(&OPTIONS, Duration::from_secs(7), rng));
        assert!((7_000..7_020).contains(&min) && (7_680..=7_700).contains(&max), "{min}..{max}");
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(pushed_back(&OPTIONS, Duration::ZERO, &mut rng), OPTIONS.min_delay, "told `now`: not in a tight loop");
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let draw = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            (0..8).map(|n| back_off(&OPTIONS, n, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
