//! How many random runs the models make: a few in every test, and as many as `MODEL_RUNS` says (`make model`).

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
