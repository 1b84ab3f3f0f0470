//! What kubectl's JSONPath prints, for every vector. The vectors were recorded from kubectl itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use stateful_failover::jsonpath::JsonPath;

#[derive(Deserialize)]
struct Vectors {
    statuses: BTreeMap<String, Value>,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    status: String,
    json_path: String,
    kubectl: Outcome,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    Value(String),
    Error(String),
}

fn outcome(json_path: &str, status: &Value) -> Outcome {
    match JsonPath::template(json_path).and_then(|json_path| json_path.print(status)) {
        Ok(text) => Outcome::Value(text),
        Err(error) if error.is_parse() => Outcome::Error("parse".to_owned()),
        Err(_) => Outcome::Error("execute".to_owned()),
    }
}

/// Vectors from which the policy deliberately differs, each with the expected value and the reason.
const WRONG: [(&str, &str, &str); 1] = [(
    "flink",
    "x:{.jobStatus.savepointInfo.*}-post",
    // A wildcard goes through a Go map, whose order changes from run to run; here it is sorted. (Every other vector
    // with a wildcard over a map was recorded with a result of one order only.)
    r#"x:null [{"location":"s3://b/sp-1","timeStamp":1},{"location":"s3://b/sp-2","timeStamp":2}]-post"#,
)];

#[test]
fn templates_print_what_kubectl_prints() {
    let mut vectors: Vectors = serde_json::from_str(include_str!("../../testdata/vectors/jsonpath.json")).unwrap();
    // The file has the status `database` twice, once under the name `deployment`. The vector that prints the whole
    // status `deployment` shows which document kubectl was really run on.
    let whole = vectors.vectors.iter().find(|vector| vector.status == "deployment" && vector.json_path == "{@}");
    let Outcome::Value(whole) = &whole.unwrap().kubectl else { panic!("kubectl prints the whole status") };
    let whole = serde_json::from_str(whole).unwrap();
    vectors.statuses.insert("deployment".to_owned(), whole);

    let mut differing = Vec::new();
    for Vector { status, json_path, kubectl } in &vectors.vectors {
        let wrong =
            WRONG.iter().find(|(wrong_status, wrong_path, _)| wrong_status == status && wrong_path == json_path);
        let right = wrong.map_or_else(|| kubectl.clone(), |(.., right)| Outcome::Value((*right).to_owned()));
        let ours = outcome(json_path, &vectors.statuses[status]);
        if ours != right {
            differing.push(format!("{status} {json_path:?}: {ours:?}, kubectl: {right:?}"));
        }
    }
    let count = |error: Option<&str>| {
        let is_it = |vector: &&Vector| match &vector.kubectl {
            Outcome::Value(_) => error.is_none(),
            Outcome::Error(kind) => error == Some(kind),
        };
        vectors.vectors.iter().filter(is_it).count()
    };
    println!(
        "{} vectors as kubectl ({} values, {} execute errors, {} parse errors), {} held to be wrong, {} differ",
        vectors.vectors.len() - WRONG.len() - differing.len(),
        count(None),
        count(Some("execute")),
        count(Some("parse")),
        WRONG.len(),
        differing.len(),
    );
    assert_eq!(vectors.vectors.len(), 2360);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
