//! The policy's metadata, in the custom section of the module that the policy server and `kwctl` read.
//!
//! Source: `kubewarden/adm-controller`, `crates/policy-evaluator/src/policy_metadata.rs`,
//! `crates/kwctl/src/annotate.rs`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use wasm_encoder::{CustomSection, Encode, Section};
use wasmparser::{Parser, Payload};

/// What a module answers to `protocol_version`, and `kwctl annotate` writes into the metadata.
/// Source: `kubewarden/policy-sdk-rust`, `protocol_version_guest`.
pub const PROTOCOL_VERSION: &str = "v1";
/// Name of the section.
pub const SECTION: &str = "io.kubewarden.metadata";
/// Annotation that holds the README.
const USAGE: &str = "io.kubewarden.policy.usage";
const OPERATIONS: [&str; 5] = ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"];

/// The content of `policy-metadata.yml` and, as JSON, of the section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The requests that the policy accepts.
    pub rules: Vec<Rule>,
    /// Whether the policy changes objects.
    pub mutating: bool,
    /// Whether the audit scanner may run it.
    pub background_audit: bool,
    /// `kubewarden-wapc`.
    pub execution_mode: String,
    /// `kubernetes`.
    pub policy_type: String,
    /// The kinds that the policy looks up.
    pub context_aware_resources: Vec<ContextAwareResource>,
    /// The host capabilities that the policy uses.
    pub host_capabilities: Vec<String>,
    /// Added by the annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Title, version, author, …
    pub annotations: BTreeMap<String, String>,
}

/// A rule, with the fields of a rule in a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// `""` is the core group.
    pub api_groups: Vec<String>,
    /// Versions of the groups.
    pub api_versions: Vec<String>,
    /// Resource names (plural).
    pub resources: Vec<String>,
    /// `CREATE`, `UPDATE`, …
    pub operations: Vec<String>,
}

/// A kind that may be looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextAwareResource {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// PascalCase.
    pub kind: String,
}

impl Metadata {
    /// The metadata in `yaml`.
    ///
    /// # Errors
    /// It is not valid metadata, or the policy server would reject it.
    pub fn parse(yaml: &str) -> Result<Self> {
        let metadata: Self = serde_yaml_ng::from_str(yaml)?;
        for (index, rule) in metadata.rules.iter().enumerate() {
            for (field, values) in [
                ("apiGroups", &rule.api_groups),
                ("apiVersions", &rule.api_versions),
                ("resources", &rule.resources),
                ("operations", &rule.operations),
            ] {
                ensure!(!values.is_empty(), "rules[{index}].{field} is empty");
                ensure!(
                    values.len() == 1 || !values.contains(&"*".to_owned()),
                    "rules[{index}].{field}: `*` is not alone"
                );
            }
            for operation in &rule.operations {
                ensure!(OPERATIONS.contains(&operation.as_str()), "rules[{index}].operations: unknown `{operation}`");
            }
        }
        ensure!(!metadata.rules.is_empty(), "rules is empty");
        Ok(metadata)
    }

    /// The metadata with what the annotation adds: the protocol version and the README.
    #[must_use]
    pub fn annotated(mut self, readme: &str) -> Self {
        self.protocol_version = Some(PROTOCOL_VERSION.to_owned());
        self.annotations.insert(USAGE.to_owned(), readme.to_owned());
        self
    }
}

/// `module` with the metadata in its section, which replaces an existing one.
///
/// # Errors
/// It is not a module.
pub fn annotate(module: &[u8], metadata: &Metadata) -> Result<Vec<u8>> {
    let data = serde_json::to_vec(metadata)?;
    let mut annotated = without_section(module)?;
    let section = CustomSection { name: SECTION.into(), data: data.into() };
    annotated.push(section.id());
    section.encode(&mut annotated);
    Ok(annotated)
}

fn without_section(module: &[u8]) -> Result<Vec<u8>> {
    let mut kept = module.to_vec();
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::CustomSection(section) = payload?
            && section.name() == SECTION
        {
            // The section's id and length stand before its range; the length takes as many bytes as it was written
            // with.
            let range = section.range();
            let length = leb128_length(range.len());
            kept.drain(range.start - length - 1..range.end);
        }
    }
    Ok(kept)
}

fn leb128_length(value: usize) -> usize {
    (usize::BITS - value.max(1).leading_zeros()).div_ceil(7) as usize
}

/// The metadata in the section of `module`.
///
/// # Errors
/// It is not a module, or has no such section.
pub fn read(module: &[u8]) -> Result<Metadata> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::CustomSection(section) = payload?
            && section.name() == SECTION
        {
            return Ok(serde_json::from_slice(section.data())?);
        }
    }
    None.context(format!("the module has no section `{SECTION}`"))
}
