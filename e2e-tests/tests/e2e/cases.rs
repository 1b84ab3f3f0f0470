//! The corpus of cases, on the native core and on the module.

use e2e_tests::{case, policy};

#[test]
fn all_cases() {
    let wanted = std::env::var("CASE").unwrap_or_default();
    let mut cases = case::all().unwrap();
    cases.retain(|case| case.name.contains(&wanted));
    let mut failed = Vec::new();
    for case in &cases {
        for policy in policy::all() {
            if let Err(error) = case.run(policy) {
                failed.push(format!("{} ({}): {error:#}", case.name, policy.name()));
            }
        }
    }
    println!("{} cases", cases.len());
    assert!(!cases.is_empty());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
