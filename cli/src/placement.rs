//! The clusters that a placement allows.
//!
//! Source: `karmada-io/karmada` v1.19, `pkg/util/selector.go`, `ClusterMatches`; `pkg/scheduler/framework/plugins`.
//! Taints are ignored: those of a failover do not exist yet.

use serde_json::Value;

/// The clusters that the binding's placement allows, by their names.
pub fn allowed<'a>(binding: &Value, clusters: &'a [Value]) -> Vec<&'a str> {
    let placement = binding.pointer("/spec/placement").unwrap_or(&Value::Null);
    let affinities: Vec<&Value> = match list(placement, "/clusterAffinities") {
        [] => placement.get("clusterAffinity").into_iter().collect(),
        affinities => affinities.iter().collect(),
    };
    let is_allowed =
        |cluster: &&Value| affinities.is_empty() || affinities.iter().any(|affinity| matches(affinity, cluster));
    clusters.iter().filter(is_allowed).map(name).collect()
}

/// Whether the cluster is ready according to Karmada.
pub fn is_ready(cluster: &Value) -> bool {
    let conditions = list(cluster, "/status/conditions");
    conditions.iter().any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
}

/// The cluster's name.
pub fn name(cluster: &Value) -> &str {
    text(cluster, "/metadata/name")
}

fn matches(affinity: &Value, cluster: &Value) -> bool {
    let has = |key: &str| list(affinity, key).iter().any(|item| item.as_str() == Some(name(cluster)));
    let labels = |key: &str| cluster.pointer("/metadata/labels")?.get(key)?.as_str();
    let fields = |key: &str| match key {
        "zone" => {
            cluster.pointer("/spec/zones/0").and_then(Value::as_str).or_else(|| Some(text(cluster, "/spec/zone")))
        }
        key => Some(text(cluster, &format!("/spec/{key}"))),
    };
    let expected = affinity.pointer("/labelSelector/matchLabels").and_then(Value::as_object);
    let expressions = list(affinity, "/labelSelector/matchExpressions");
    !has("/exclude")
        && (list(affinity, "/clusterNames").is_empty() || has("/clusterNames"))
        && expected.into_iter().flatten().all(|(key, value)| labels(key) == value.as_str())
        && expressions.iter().all(|expression| fits(expression, labels))
        && list(affinity, "/fieldSelector/matchExpressions").iter().all(|expression| fits(expression, fields))
}

fn fits<'a>(expression: &Value, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let value = value_of(text(expression, "/key")).filter(|value| !value.is_empty());
    let is_listed = list(expression, "/values").iter().any(|listed| listed.as_str() == value && value.is_some());
    match text(expression, "/operator") {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn affinities() {
        let cluster = |name: &str, region: &str, tier: &str| json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {"region": region, "zones": ["z1"]}});
        let clusters = [cluster("a", "eu", "gold"), cluster("b", "us", "gold"), cluster("c", "eu", "iron")];
        for (placement, expected) in [
            (json!({}), vec!["a", "b", "c"]),
            (json!({"clusterAffinity": {}}), vec!["a", "b", "c"]),
            (json!({"clusterAffinity": {"clusterNames": ["b", "x"]}}), vec!["b"]),
            (json!({"clusterAffinity": {"exclude": ["b"]}}), vec!["a", "c"]),
            (json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}}), vec!["a", "b"]),
            (
                json!({"clusterAffinity": {"labelSelector": {"matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["gold"]}]}}}),
                vec!["c"],
            ),
            (
                json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": [
                    {"key": "region", "operator": "In", "values": ["eu"]}]}}}),
                vec!["a", "c"],
            ),
            (
                json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["z2"]}]}}}),
                vec![],
            ),
            (
                json!({"clusterAffinities": [
                    {"affinityName": "first", "clusterNames": ["a"]}, {"affinityName": "then", "clusterNames": ["c"]}]}),
                vec!["a", "c"],
            ),
        ] {
            assert_eq!(allowed(&json!({"spec": {"placement": placement}}), &clusters), expected, "{placement}");
        }
    }
}
