//! What is written beside the code is held against it: manifests, metadata, and every YAML block in the documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use e2e_tests::policy::{Module, Policy};
use e2e_tests::project;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MutatingWebhookConfiguration, RuleWithOperations};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use publish::policy_metadata::{ContextAwareResource, Metadata, Rule};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn metadata() -> Metadata {
    Metadata::parse(&fs::read_to_string(project("policy-metadata.yml")).unwrap()).unwrap()
}

/// The documents of a YAML file.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(|document| Value::deserialize(document).unwrap_or_else(|error| panic!("{error}: {text}"))).collect()
}

fn read(path: &str) -> Vec<Value> {
    documents(&fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}")))
}

fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(project(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(path.strip_prefix(project("")).unwrap().to_str().unwrap(), extensions));
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The YAML blocks of the README and of docs/, with the file that each is in.
fn yaml_blocks() -> Vec<(PathBuf, Vec<Value>)> {
    let mut pages = files("docs", &["md"]);
    pages.push(project("README.md"));
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            blocks.push((page.clone(), documents(block.split("```").next().unwrap())));
        }
    }
    blocks
}

/// The settings in a document: it is settings, or a policy that has them.
fn settings(document: &Value) -> Vec<Value> {
    if document.get("restore").is_some() || document.get("feed").is_some() || document.get("preserve").is_some() {
        return vec![document.clone()];
    }
    let of_crd = document.pointer("/spec/settings").cloned();
    let of_server =
        document.as_object().into_iter().flatten().filter_map(|(_, policy)| policy.get("settings").cloned());
    of_crd.into_iter().chain(of_server).collect()
}

#[test]
fn all_settings_are_valid_in_the_module() {
    let mut count = 0;
    let examples = files("examples", &["yaml"]).into_iter().chain(files("deploy", &["yaml", "yml"]));
    let from_files = examples.map(|path| (path.clone(), documents(&fs::read_to_string(path).unwrap())));
    for (path, documents) in from_files.chain(yaml_blocks()) {
        for settings in documents.iter().flat_map(settings) {
            assert_eq!(Module::built().validate_settings(&settings).unwrap(), None, "{}", path.display());
            count += 1;
        }
    }
    println!("{count} settings");
    assert!(count > 25);
}

/// Every PropagationPolicy that is shown passes the stage lint without a finding.
#[test]
fn all_propagation_policies_are_sound() {
    let mut count = 0;
    for (page, documents) in yaml_blocks() {
        for policy in documents.iter().filter(|document| document["kind"] == "PropagationPolicy") {
            let request = json!({"kind": {"group": "policy.karmada.io", "kind": "PropagationPolicy"}, "operation": "CREATE", "object": policy});
            let answer = Module::built().validate(&request, &json!({}), &Arc::default()).unwrap();
            assert!(answer.accepted && answer.warnings().is_empty(), "{}: {answer:?}", page.display());
            count += 1;
        }
    }
    assert!(count > 0);
}

/// Parses `document` into `T`, which has to know all of its fields: k8s-openapi passes over those that it does not
/// know, and an API server too.
fn parse<T: DeserializeOwned + Serialize>(document: &Value) {
    let parsed: T = serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{error}: {document}"));
    if let Some(path) = missing(document, &serde_json::to_value(parsed).unwrap()) {
        panic!("{path} is not a field of {}", document["kind"]);
    }
}

/// The first field of `document` that `parsed` does not have.
fn missing(document: &Value, parsed: &Value) -> Option<String> {
    match (document, parsed) {
        (Value::Object(fields), Value::Object(known)) => {
            fields.iter().find_map(|(name, value)| match known.get(name) {
                Some(known) => missing(value, known).map(|path| format!("/{name}{path}")),
                None => Some(format!("/{name}")),
            })
        }
        (Value::Array(items), Value::Array(known)) => {
            items.iter().zip(known).find_map(|(item, known)| missing(item, known).map(|path| format!("/-{path}")))
        }
        _ => None,
    }
}

#[test]
#[should_panic(expected = "/spec/selektor is not a field of \"Service\"")]
fn unknown_fields_are_found() {
    parse::<Service>(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"selektor": {}}}));
}

/// What a policy is to Kubewarden's controller. Source: the CustomResourceDefinition `clusteradmissionpolicies` of
/// 1.36.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterAdmissionPolicy {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: ClusterAdmissionPolicySpec,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterAdmissionPolicySpec {
    #[serde(default)]
    policy_server: Option<String>,
    module: String,
    #[serde(default)]
    mode: Option<String>,
    mutating: bool,
    #[serde(default)]
    failure_policy: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<u8>,
    #[serde(default)]
    timeout_eval_seconds: Option<u8>,
    #[serde(default)]
    background_audit: Option<bool>,
    rules: Vec<RuleWithOperations>,
    #[serde(default)]
    match_conditions: Vec<MatchCondition>,
    #[serde(default)]
    namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    context_aware_resources: Vec<ContextAwareResource>,
    settings: Value,
}

/// A policy of a standalone policy server, which passes over keys that it does not know.
/// Source: `kubewarden/adm-controller`, `crates/policy-server/src/config.rs` of 1.36.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ServerPolicy {
    module: String,
    policy_mode: String,
    allowed_to_mutate: bool,
    host_capabilities: Vec<String>,
    context_aware_resources: Vec<ContextAwareResource>,
    timeout_eval_seconds: u8,
    settings: Value,
}

/// Every document in deploy/ is of a type that is known here; those that k8s-openapi has parse into it.
#[test]
fn manifests_are_what_they_claim() {
    for path in files("deploy", &["yaml"]) {
        // make-webhook.sh fills the CA in.
        let text = fs::read_to_string(&path).unwrap().replace("@CA_BUNDLE@", "Cg==");
        for document in documents(&text) {
            match document["kind"].as_str().unwrap_or_default() {
                "MutatingWebhookConfiguration" => parse::<MutatingWebhookConfiguration>(&document),
                "Deployment" => parse::<Deployment>(&document),
                "Service" => parse::<Service>(&document),
                "Secret" => parse::<Secret>(&document),
                "ServiceAccount" => parse::<ServiceAccount>(&document),
                "NetworkPolicy" => parse::<NetworkPolicy>(&document),
                "PodDisruptionBudget" => parse::<PodDisruptionBudget>(&document),
                "Namespace" => parse::<Namespace>(&document),
                "Role" => parse::<Role>(&document),
                "RoleBinding" => parse::<RoleBinding>(&document),
                "ClusterRole" => parse::<ClusterRole>(&document),
                "ClusterRoleBinding" => parse::<ClusterRoleBinding>(&document),
                "Kustomization" => kustomization(path.parent().unwrap(), &document),
                "ClusterAdmissionPolicy" => parse::<ClusterAdmissionPolicy>(&document),
                "ConfigMap" => parse::<ConfigMap>(&document),
                "CronJob" => parse::<CronJob>(&document),
                "ResourceInterpreterCustomization" => customization(&document),
                // Of cert-manager.
                "Issuer" | "Certificate" => {}
                other => panic!("{}: unknown kind `{other}`", path.display()),
            }
        }
    }
    for (page, documents) in yaml_blocks() {
        for policy in documents.iter().filter(|document| document["kind"] == "ClusterAdmissionPolicy") {
            println!("{}", page.display());
            parse::<ClusterAdmissionPolicy>(policy);
        }
    }
    for policy in read("deploy/control-plane/policy-server/policies.yml")[0].as_object().unwrap().values() {
        parse::<ServerPolicy>(policy);
    }
}

/// Karmada's API, which no crate has: one target, and of each customization the script.
fn customization(document: &Value) {
    assert_eq!(document["apiVersion"], "config.karmada.io/v1alpha1");
    let name = document["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("stateful-failover-"), "{name}");
    let spec = document["spec"].as_object().unwrap();
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["customizations", "target"], "{name}");
    let target = spec["target"].as_object().unwrap();
    assert_eq!(target.keys().collect::<Vec<_>>(), ["apiVersion", "kind"], "{name}");
    let customizations = spec["customizations"].as_object().unwrap();
    assert!(!customizations.is_empty(), "{name}");
    for (operation, customization) in customizations {
        let operations = ["healthInterpretation", "statusReflection", "statusAggregation", "retention"];
        assert!(operations.contains(&operation.as_str()), "{name}: {operation}");
        let fields = customization.as_object().unwrap();
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["luaScript"], "{name}: {operation}");
        assert!(fields["luaScript"].is_string(), "{name}: {operation}");
    }
}

fn kustomization(folder: &Path, document: &Value) {
    for resource in document["resources"].as_array().unwrap() {
        let resource = folder
            .join(resource.as_str().unwrap())
            .canonicalize()
            .unwrap_or_else(|error| panic!("{resource}: {error}"));
        // Kustomize refuses a base that its overlay is in.
        assert!(!folder.canonicalize().unwrap().starts_with(&resource), "{}", resource.display());
    }
    // The patches of an overlay add to what is there.
    for patch in document["patches"].as_array().into_iter().flatten() {
        let server = read("deploy/control-plane/policy-server/policy-server.yaml");
        let deployment = server.into_iter().find(|document| document["kind"] == patch["target"]["kind"]).unwrap();
        assert_eq!(deployment["metadata"]["name"], patch["target"]["name"]);
        let patch: json_patch::Patch =
            serde_json::from_value(documents(patch["patch"].as_str().unwrap()).remove(0)).unwrap();
        let mut patched = deployment;
        json_patch::patch(&mut patched, &patch).unwrap();
        parse::<Deployment>(&patched);
        let pod = &patched["spec"]["template"]["spec"];
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            assert!(pod["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
        }
    }
    for generator in document["configMapGenerator"].as_array().into_iter().flatten() {
        for file in generator["files"].as_array().unwrap() {
            assert!(folder.join(file.as_str().unwrap()).exists(), "{file}");
        }
    }
}

fn rules(rules: &Value) -> Vec<Rule> {
    serde_json::from_value(rules.clone()).unwrap()
}

/// The rules of the control plane are those of the metadata for Karmada's groups; the members' are among the others.
#[test]
fn rules_are_those_of_the_metadata() {
    let is_karmada = |rule: &&Rule| rule.api_groups.iter().all(|group| group.ends_with(".karmada.io"));
    let metadata = metadata();
    let karmada: Vec<Rule> = metadata.rules.iter().filter(is_karmada).cloned().collect();
    let webhook = &read("deploy/control-plane/karmada/webhook.yaml")[0]["webhooks"][0];
    assert_eq!(rules(&webhook["rules"]), karmada);
    assert_eq!(webhook["reinvocationPolicy"], json!("IfNeeded"));
    let shown = yaml_blocks().into_iter().flat_map(|(_, documents)| documents);
    let policies = read("deploy/member/policy.yaml")
        .into_iter()
        .chain(shown.filter(|document| document["kind"] == "ClusterAdmissionPolicy"));
    for policy in policies {
        assert_eq!(policy["spec"]["mutating"], json!(true));
        assert!(policy.pointer("/spec/namespaceSelector/matchLabels").is_none(), "Kubewarden's controller drops them");
        for rule in rules(&policy["spec"]["rules"]) {
            let covers = |known: &Rule| {
                known.api_groups == rule.api_groups
                    && known.operations == rule.operations
                    && rule.resources.iter().all(|resource| known.resources.contains(resource))
                    && rule.api_versions.iter().all(|version| known.api_versions.contains(version))
            };
            assert!(metadata.rules.iter().any(covers), "{rule:?}");
        }
        for resource in policy["spec"]["contextAwareResources"].as_array().unwrap() {
            assert!(metadata.context_aware_resources.contains(&serde_json::from_value(resource.clone()).unwrap()));
        }
    }
    let server = &read("deploy/control-plane/policy-server/policies.yml")[0]["stateful-failover"];
    assert_eq!(server["hostCapabilities"], json!(metadata.host_capabilities));
    assert_eq!(server["allowedToMutate"], json!(true));
    for resource in server["contextAwareResources"].as_array().unwrap() {
        assert!(metadata.context_aware_resources.contains(&serde_json::from_value(resource.clone()).unwrap()));
    }
}

/// Whoever installs the examples has the rules for it: each kind in examples/ is in the metadata.
#[test]
fn the_metadata_has_the_groups_of_all_examples() {
    let metadata = metadata();
    for path in files("examples", &["yaml"]).into_iter().filter(|path| path.ends_with("settings.yaml")) {
        for document in documents(&fs::read_to_string(&path).unwrap()) {
            for group in document["restore"]["rules"][0]["match"]["apiGroups"].as_array().unwrap() {
                let is_known =
                    metadata.rules.iter().any(|rule| rule.api_groups.contains(&group.as_str().unwrap().to_owned()));
                assert!(is_known, "{}: {group}", path.display());
            }
        }
    }
}

/// One version and one image, wherever they are written.
#[test]
fn artifact_hub_package() {
    let metadata = metadata();
    let annotation = |name: &str| metadata.annotations[&format!("io.kubewarden.policy.{name}")].clone();
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("{}:v{version}", annotation("ociUrl"));
    let package = &read("artifacthub-pkg.yml")[0];
    assert_eq!(annotation("version"), version);
    assert_eq!(package["version"], json!(version));
    assert_eq!(package["name"], json!(annotation("title")));
    assert_eq!(package["displayName"], json!(metadata.annotations["io.artifacthub.displayName"]));
    assert_eq!(package["description"], json!(annotation("description")));
    assert_eq!(package["license"], json!(annotation("license")));
    assert_eq!(package["homeURL"], json!(annotation("url")));
    assert_eq!(package["containersImages"], json!([{"name": "policy", "image": image}]));
    assert_eq!(
        package["links"][0]["url"],
        json!(format!("{}/releases/download/v{version}/policy.wasm", annotation("source")))
    );
    let keywords: Vec<&str> = metadata.annotations["io.artifacthub.keywords"].split(", ").collect();
    assert_eq!(package["keywords"], json!(keywords));
    assert_eq!(package["annotations"]["kubewarden/mutation"], json!("true"));
    assert_eq!(package["annotations"]["kubewarden/resources"], json!(metadata.annotations["io.artifacthub.resources"]));
    let embedded = |key: &str| documents(package["annotations"][key].as_str().unwrap()).remove(0);
    assert_eq!(rules(&embedded("kubewarden/rules")), metadata.rules);
    assert_eq!(
        embedded("kubewarden/contextAwareResources"),
        serde_json::to_value(&metadata.context_aware_resources).unwrap()
    );
    let install = package["install"].as_str().unwrap();
    assert!(install.contains(&format!("kwctl pull {image}")) && install.contains(&format!("registry://{image}")));
    // The release writes both over, by the beginning of their lines.
    let lines = fs::read_to_string(project("artifacthub-pkg.yml")).unwrap();
    for key in ["digest: ", "createdAt: "] {
        assert_eq!(lines.lines().filter(|line| line.starts_with(key)).count(), 1, "{key}");
    }
    let (name, mail) = annotation("author")
        .split_once(" <")
        .map(|(name, mail)| (name.to_owned(), mail.trim_end_matches('>').to_owned()))
        .unwrap();
    assert_eq!(package["maintainers"], json!([{"name": name, "email": mail}]));
    let repository = &read("artifacthub-repo.yml")[0];
    assert_eq!(repository["owners"], json!([{"name": name, "email": mail}]));

    let module = format!("registry://{image}");
    assert_eq!(read("deploy/member/policy.yaml")[0]["spec"]["module"], json!(module));
    assert_eq!(
        read("deploy/control-plane/policy-server/policies.yml")[0]["stateful-failover"]["module"],
        json!(module)
    );
}

/// Actions are pinned by commit, with the version beside it.
#[test]
fn workflows_pin_their_actions() {
    for path in files(".github/workflows", &["yml"]) {
        let text = fs::read_to_string(&path).unwrap();
        documents(&text);
        for line in text.lines().filter(|line| line.contains("uses: ")) {
            let (_, pin) = line.split_once('@').unwrap_or_else(|| panic!("{line}"));
            let (commit, version) = pin.split_once(" # v").unwrap_or_else(|| panic!("{line}"));
            assert!(
                commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()) && !version.is_empty(),
                "{line}"
            );
        }
    }
}
