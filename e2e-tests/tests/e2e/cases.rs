//! The corpus of cases, on the native core and on the module.

use e2e_tests::host::Host;
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
    assert!(!cases.is_empty(), "no case has {wanted:?} in its name");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Karmada's cluster-scoped kinds have the same schemas and get the same answers.
#[test]
fn cluster_scoped_kinds_are_treated_alike() {
    let mut count = 0;
    for case in case::all().unwrap() {
        let Some(request) = case.request.filter(|request| {
            ["PropagationPolicy", "ResourceBinding"].contains(&request["kind"]["kind"].as_str().unwrap_or_default())
        }) else {
            continue;
        };
        let mut of_cluster = request.clone();
        of_cluster["kind"]["kind"] = format!("Cluster{}", request["kind"]["kind"].as_str().unwrap()).into();
        let [namespaced, of_cluster] = [request, of_cluster].map(|request| {
            let (answer, _) = policy::evaluate(&request, &case.settings, Host::default);
            (answer.accepted, answer.patch(&request["object"]), answer.warnings, answer.audit_annotations)
        });
        assert_eq!(namespaced, of_cluster, "{}", case.name);
        count += 1;
    }
    assert!(count >= 100, "{count} cases");
}
