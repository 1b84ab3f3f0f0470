//! The number of random runs of the models: 600 by default, else `MODEL_RUNS` (`make model`).

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs `law` on random input and fails with the smallest input that breaks it.
pub(crate) fn hold<S: Strategy>(input: S, runs: u32, law: impl Fn(S::Value))
where
    S::Value: std::fmt::Debug + Clone,
{
    let cases = std::env::var("MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(runs);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_local_rejects: u32::MAX, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&input, |input| {
        law(input);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
