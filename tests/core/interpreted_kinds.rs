//! The kinds that Karmada interprets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stateful_failover::interpreted_kinds::{INTERPRETED, Interpretation};
use stateful_failover::settings::InterpretedKind;

/// By apiVersion and kind: health, and the fields that are reflected, `None` for all.
type Table = BTreeMap<(String, String), (bool, Option<BTreeSet<String>>)>;

/// `testdata/facts/interpreted-kinds.json`: what Karmada v1.12 to v1.19 interprets, a line for each version that
/// changes something. The table holds what some version does.
#[test]
fn the_table_is_what_karmada_interprets() {
    let text = std::fs::read_to_string("testdata/facts/interpreted-kinds.json").unwrap();
    let facts: Vec<Value> = serde_json::from_str(&text).unwrap();
    let text = |fact: &Value, key: &str| fact[key].as_str().unwrap().to_owned();
    let mut expected: Table = BTreeMap::new();
    for fact in &facts {
        let kind = (text(fact, "apiVersion"), text(fact, "kind"));
        let (has_health, fields) = expected.entry(kind).or_insert((false, Some(BTreeSet::new())));
        *has_health |= fact["health"].as_bool().unwrap();
        match fact["reflected"].as_array() {
            Some(reflected) => {
                let reflected = reflected.iter().map(|field| field.as_str().unwrap().to_owned());
                if let Some(fields) = fields {
                    fields.extend(reflected);
                }
            }
            None => *fields = None,
        }
    }
    let table: Table = INTERPRETED
        .iter()
        .map(|(api_version, kind, has_health, fields)| {
            let fields: BTreeSet<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            let fields = (!fields.is_empty()).then_some(fields);
            (((*api_version).to_owned(), (*kind).to_owned()), (*has_health, fields))
        })
        .collect();
    assert_eq!(table.len(), INTERPRETED.len(), "a kind is listed twice");
    assert_eq!(table, expected);
}

#[test]
fn the_list_of_the_user_comes_first() {
    let own = |reflected: Option<&[&str]>| {
        let reflected = reflected.map(|fields| fields.iter().map(|field| (*field).to_owned()).collect());
        [InterpretedKind { api_version: "batch/v1".to_owned(), kind: "Job".to_owned(), reflected }]
    };
    let fields = Some(["failed", "reflected"].as_slice());
    for (own, api_version, has_health, reflects) in [
        (&own(None)[..], "batch/v1", true, [true, true, true]),
        (&own(fields), "batch/v1", true, [true, false, true]),
        (&[], "batch/v1", false, [true, true, false]),
        // The same kind in another apiVersion is another kind.
        (&own(None), "batch.volcano.sh/v1alpha1", true, [true, false, false]),
    ] {
        let known = Interpretation::of(api_version, "Job", own);
        assert_eq!(known.has_health, has_health, "{api_version}");
        let found = ["failed", "startTime", "reflected"].map(|field| known.reflects(field));
        assert_eq!(found, reflects, "{api_version} {own:?}");
    }
}
