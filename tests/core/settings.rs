//! Settings: valid ones, and the exact messages for errors.

use serde_json::{Value, json};
use stateful_failover::settings::RequestSettingsError;
use stateful_failover::{Request, Settings};

fn errors(settings: &Value) -> Vec<String> {
    match Settings::from_json(settings) {
        Ok(_) => Vec::new(),
        Err(error) => error.0.iter().map(|problem| problem.as_ref().to_owned()).collect(),
    }
}

#[test]
fn every_key_is_optional() {
    for settings in [
        json!(null),
        json!({}),
        json!({"lint": null, "preserve": null, "feed": {}, "restore": {"rules": null}}),
        json!({"lint": "Warn", "guard": "Off", "preserve": {"onMissingState": "Proceed", "historyLimit": 20}}),
        json!({"feed": {"onLookupFailure": "Accept", "purgeModes": ["Immediately", "Graciously", "Never"]}}),
        json!({"preserve": {"rules": [{
            "match": {"apiGroups": [""], "kinds": ["Pod"], "namespaces": ["a-*"]},
            "rules": [{"aliasLabelName": "a", "jsonPath": "$.phase"}, {"aliasLabelName": "b", "jsonPath": "{.podIP}"}],
        }]}}),
    ] {
        assert_eq!(errors(&settings), [] as [&str; 0], "{settings}");
    }
}

#[test]
fn all_errors_are_reported_at_once_with_their_paths() {
    let settings = json!({
        "lnit": "Off",
        "guard": "enforce",
        "preserve": {"onMissingState": 5, "historyLimit": 21, "rules": [{
            "match": {"apiGroups": ["apps/v1"], "kinds": [], "labels": {}},
            "rules": [
                {"aliasLabelName": "karmada.io/managed", "jsonPath": "{.a"},
                {"aliasLabelName": "-x", "jsonPath": "$["},
                {"aliasLabelName": "ok"},
            ],
        }]},
        "feed": {"purgeModes": ["Direct", 7]},
        "restore": [],
    });
    assert_eq!(
        errors(&settings),
        [
            "settings: unknown field `lnit`, did you mean `lint`?",
            "guard: unknown value `enforce`, did you mean `Enforce`?",
            "preserve.onMissingState: is a number, expected a string",
            "preserve.historyLimit: is `21`, expected a whole number from 1 to 20",
            "preserve.rules[0].match: unknown field `labels`, expected `apiGroups`, `kinds`, `namespaces`",
            "preserve.rules[0].match: `kinds` is missing or empty",
            "preserve.rules[0].match.apiGroups[0]: `apps/v1` has a version, write the group alone: `apps`",
            "preserve.rules[0].rules[0].aliasLabelName: `karmada.io/managed` is set by Karmada itself; choose another name",
            "preserve.rules[0].rules[0].jsonPath: does not parse, at character 4: the action is not closed with `}`",
            "preserve.rules[0].rules[1].aliasLabelName: `-x` is not a label name: expected `name` or `dns.prefix/name`, the \
             name of at most 63 letters, digits, `-`, `_`, `.`; choose another name",
            "preserve.rules[0].rules[1].jsonPath: does not parse, at character 3: not an RFC 9535 query: expected selector",
            "preserve.rules[0].rules[2]: `jsonPath` is missing",
            "feed.purgeModes[0]: unknown purge mode `Direct`, did you mean `Directly`?",
            "feed.purgeModes[1]: is a number, expected a string",
            "restore: is a list, expected an object",
        ]
    );
}

#[test]
fn settings_that_are_no_object() {
    for (settings, found) in
        [(json!([]), "a list"), (json!("x"), "a string"), (json!(1), "a number"), (json!(true), "a boolean")]
    {
        assert_eq!(errors(&settings), [format!("settings: is {found}, expected an object")]);
    }
}

/// Rules that the request does not need are not read: the engine has checked the settings before.
#[test]
fn a_request_reads_the_rules_of_its_kind() {
    let settings = json!({"restore": {"rules": [{"name": "x", "match": {"apiGroups": ["apps"], "kinds": ["Deployment"]}, "set": "?"}]}});
    let error = Settings::from_json(&settings).unwrap_err();
    let workload = |group: &str, kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind});
    let work = |group, kind| json!({"spec": {"workload": {"manifests": [workload(group, kind)]}}});
    for (group, kind, object, reads) in [
        ("apps", "Deployment", json!({}), true),
        ("work.karmada.io", "Work", work("apps", "Deployment"), true),
        ("work.karmada.io", "Work", work("apps", "StatefulSet"), false),
        ("apps", "StatefulSet", json!({}), false),
        ("", "Deployment", json!({}), false),
        ("work.karmada.io", "ResourceBinding", json!({}), false),
        ("policy.karmada.io", "PropagationPolicy", json!({}), false),
    ] {
        let text = json!({"kind": {"group": group, "kind": kind}, "operation": "CREATE", "object": object}).to_string();
        let request = Request::from_json(&text).unwrap();
        match Settings::for_request(&settings.to_string(), &request) {
            Err(RequestSettingsError::Settings(found)) if reads => assert_eq!(found, error, "{group} {kind}"),
            read => assert!(read.is_ok() && !reads, "{group} {kind}: {read:?}"),
        }
    }
    let request = Request::from_json(r#"{"kind": {"group": "a", "kind": "B"}}"#).unwrap();
    let read = |settings: &str| Settings::for_request(settings, &request);
    let rules = |matches: &str| format!(r#"{{"restore": {{"rules": [{{"match": {matches}}}]}}}}"#);
    assert!(read(&rules(r#"{"apiGroups": ["a"], "kinds": ["*"]}"#)).is_err());
    assert!(read(&rules(r#"{"apiGroups": "a"}"#)).is_err(), "what is not understood is looked at");
    assert!(matches!(read(r#"{"restore": "#), Err(RequestSettingsError::Json(_))));
    for settings in ["null", "{}", r#"{"restore": null}"#, r#"{"restore": {"rules": null}}"#] {
        assert!(read(settings).unwrap().restore.is_empty(), "{settings}");
    }
}
