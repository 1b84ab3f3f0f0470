//! The corpus of cases, on the native core and on the module.

use std::collections::BTreeSet;

use e2e_tests::host::Host;
use e2e_tests::{case, policy, project};

#[test]
fn all_cases_have_the_expected_answer() {
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

/// The messages in the tables of docs/reference.md, in which `…` stands for any text.
fn documented(column: &str) -> Vec<String> {
    let reference = std::fs::read_to_string(project("docs/reference.md")).unwrap();
    let table = reference.split_once(&format!("\n| {column} | stage |")).unwrap().1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split(" | ").next().unwrap().trim_start_matches("| ").trim_matches('`').to_owned()).collect()
}

/// Whether `message` is `pattern` with any text in place of `…`.
fn is_like(message: &str, pattern: &str) -> bool {
    let (first, others) = pattern.split_once('…').unwrap_or((pattern, ""));
    let Some(mut rest) = message.strip_prefix(first) else { return false };
    others.split('…').all(|part| {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
        true
    })
}

/// Every message of the corpus is in the reference, and every message in the reference is in the corpus.
#[test]
fn messages_are_documented() {
    // These take a binding with 256 KiB of annotations or 1,000 tasks, or settings that an engine would have rejected.
    const NOT_IN_THE_CORPUS: [&str; 3] =
        ["…no room for its history…", "cannot preserve the state of …", "the policy's settings are not valid: …"];
    let (denials, warnings) = (documented("denial"), documented("warning"));
    let mut found = BTreeSet::from(NOT_IN_THE_CORPUS);
    for case in case::all().unwrap() {
        let Some(request) = &case.request else { continue };
        let answer = case.answer(policy::all()[1], request).unwrap();
        let messages = answer.message.iter().map(|message| (message, &denials));
        for (message, documented) in messages.chain(answer.warnings().iter().map(|warning| (warning, &warnings))) {
            // A warning that is cut can't show how it ends.
            let is_cut = message.ends_with('…');
            let pattern = documented.iter().find(|pattern| {
                let begin = pattern.split_once("; ").filter(|_| is_cut).map_or(pattern.as_str(), |(begin, _)| begin);
                is_like(message, begin)
            });
            found.insert(pattern.unwrap_or_else(|| panic!("{}: {message}", case.name)));
        }
    }
    let documented: BTreeSet<&str> = denials.iter().chain(&warnings).map(String::as_str).collect();
    assert_eq!(found, documented);
}
