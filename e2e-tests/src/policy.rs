//! The policy behind one trait, so that every test runs on the native core and on the module.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use stateful_failover::Settings;
use stateful_failover::guest::respond;
use wapc::WapcHost;
use wasmtime_provider::{ResourceLimits, WasmtimeEngineProviderBuilder, WasmtimeEngineProviderPre};

use crate::host::Host;
use crate::project;

/// The policy's answer to a request. Source: `kubewarden/policy-sdk-rust`, `ValidationResponse`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Answer {
    /// Whether the request is accepted.
    pub accepted: bool,
    /// Why the request is denied.
    #[serde(default)]
    pub message: Option<String>,
    /// Status code of a denial.
    #[serde(default)]
    pub code: Option<u16>,
    /// The changed object.
    #[serde(default)]
    pub mutated_object: Option<Value>,
    /// What each stage did, by its name.
    #[serde(default)]
    pub audit_annotations: Option<BTreeMap<String, String>>,
    /// Warnings for the client.
    #[serde(default)]
    pub warnings: Option<Vec<String>>,
}

impl Answer {
    /// Checks that the message and the warnings follow the convention in CONTRIBUTING.md.
    ///
    /// # Errors
    /// The first one that breaks it, and how.
    pub fn check_messages(&self) -> Result<()> {
        /// The maximum in the Kubernetes documentation on admission webhooks, in characters.
        const MAX_WARNING: usize = 120;
        for warning in self.warnings() {
            ensure!(warning.chars().count() <= MAX_WARNING, "longer than {MAX_WARNING} characters: {warning}");
            check_line(warning)?;
        }
        if let Some(message) = &self.message {
            check_message(message)?;
            ensure!(names_object(message), "names no object: {message}");
            ensure!(self.code == Some(422), "{message}: code {:?}", self.code);
        }
        Ok(())
    }

    /// The answer where no policy runs.
    pub fn untouched() -> Self {
        Self {
            accepted: true,
            message: None,
            code: None,
            mutated_object: None,
            audit_annotations: None,
            warnings: None,
        }
    }

    /// The JSON patch that the policy server makes of the answer: the difference between the object and the mutated
    /// one. Source: `kubewarden/adm-controller`, `crates/policy-evaluator/src/admission_response.rs`.
    pub fn patch(&self, object: &Value) -> json_patch::Patch {
        match &self.mutated_object {
            Some(mutated) => json_patch::diff(object, mutated),
            None => json_patch::Patch::default(),
        }
    }

    /// `object` with the patch applied.
    ///
    /// # Errors
    /// The patch does not apply.
    pub fn apply(&self, object: &Value) -> Result<Value> {
        let mut patched = object.clone();
        json_patch::patch(&mut patched, &self.patch(object))?;
        Ok(patched)
    }

    /// The warnings.
    pub fn warnings(&self) -> &[String] {
        self.warnings.as_deref().unwrap_or_default()
    }
}

/// Checks that a message follows the convention in CONTRIBUTING.md: one line without a period at its end, of at most 400
/// characters. Only a list of findings that had to be cut, which ends with how many more there are, is longer.
///
/// # Errors
/// How it breaks the convention.
pub fn check_message(message: &str) -> Result<()> {
    const MAX: usize = 400;
    let is_cut = message.contains("; and ") && message.contains(" more");
    ensure!(message.chars().count() <= MAX || is_cut, "longer than {MAX} characters: {message}");
    check_line(message)
}

fn check_line(text: &str) -> Result<()> {
    ensure!(!text.ends_with('.') && !text.contains(['\n', '\r']), "a period at the end, or a line break: {text}");
    Ok(())
}

/// Whether a message names an object, as Kind `namespace/name`.
fn names_object(message: &str) -> bool {
    let before_quotes = message.split('`').step_by(2);
    before_quotes
        .filter_map(|text| text.strip_suffix(' ')?.rsplit(|char: char| !char.is_alphanumeric()).next())
        .any(|word| word.starts_with(char::is_uppercase))
}

/// An implementation of the policy.
pub trait Policy {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// Decides an AdmissionRequest.
    ///
    /// # Errors
    /// The policy trapped, or its answer is not a valid one.
    fn validate(&self, request: &Value, settings: &Value, host: &Arc<Host>) -> Result<Answer>;

    /// Checks settings. Returns what is wrong with them, if anything.
    ///
    /// # Errors
    /// The policy trapped.
    fn validate_settings(&self, settings: &Value) -> Result<Option<String>>;
}

/// The answer of the native core and of the module, which must be equal and idempotent, and the module's host.
///
/// # Panics
/// The answers differ, one is missing, or the changed object is changed again.
pub fn evaluate(request: &Value, settings: &Value, host: impl Fn() -> Host) -> (Answer, Arc<Host>) {
    let [native, module] = all().map(|policy| {
        let now = Arc::new(host());
        let answer = policy.validate(request, settings, &now).expect("an answer");
        answer.check_messages().expect("messages as in CONTRIBUTING.md");
        if answer.accepted && answer.mutated_object.is_some() {
            let mut again = request.clone();
            again["object"] = answer.apply(&request["object"]).expect("the patch applies");
            let second = policy.validate(&again, settings, &Arc::new(host())).expect("an answer");
            assert!(
                second.accepted && second.mutated_object.is_none(),
                "{}: not idempotent: {second:?}",
                policy.name()
            );
        }
        (answer, now)
    });
    assert_eq!(native.0, module.0, "native core and module");
    module
}

/// The core, called as a library.
pub struct Native;

impl Policy for Native {
    fn name(&self) -> &'static str {
        "native core"
    }

    fn validate(&self, request: &Value, settings: &Value, host: &Arc<Host>) -> Result<Answer> {
        let payload = json!({"request": request, "settings": settings}).to_string();
        let verdict = stateful_failover::decide(payload.as_bytes(), &host.as_ref());
        verdict.notes.iter().for_each(|note| host.note(note));
        let response = respond(verdict).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(serde_json::from_slice(&response)?)
    }

    fn validate_settings(&self, settings: &Value) -> Result<Option<String>> {
        Ok(Settings::from_json(settings).err().map(|error| error.to_string()))
    }
}

/// The memory limit of an instance in all tests, in bytes. The policy server itself sets no limit.
const MAX_MEMORY: usize = 64 * 1024 * 1024;

/// The module in the engine, with a fresh instance for each call, as in the policy server.
pub struct Module {
    prepared: WasmtimeEngineProviderPre,
}

impl Module {
    /// The module that `make build` makes; `POLICY_WASM` names another one. It is compiled once in a process.
    ///
    /// # Panics
    /// There is no module, or it can't be compiled.
    pub fn built() -> &'static Self {
        static MODULE: OnceLock<Module> = OnceLock::new();
        MODULE.get_or_init(|| {
            let path = std::env::var_os("POLICY_WASM").map_or_else(|| project("policy.wasm"), PathBuf::from);
            let module = std::fs::read(&path).with_context(|| format!("{}; run `make build`", path.display()));
            module.and_then(|module| Self::load(&module)).unwrap_or_else(|error| panic!("{error:#}"))
        })
    }

    /// Compiles a module, or takes the compiled one from `target/wasmtime-cache`: the engine is not optimised in tests
    /// and needs 16 s to compile the policy.
    ///
    /// # Errors
    /// It is not a module, or imports functions that the engine does not have.
    pub fn load(module: &[u8]) -> Result<Self> {
        let limits = ResourceLimits { max_memory_size: Some(MAX_MEMORY), max_table_elements: None };
        let prepared = WasmtimeEngineProviderBuilder::new()
            .module_bytes(module)
            .enable_cache(Some(&project("target").canonicalize()?.join("wasmtime-cache")))
            .enable_resource_limits(limits)
            .build_pre()?;
        Ok(Self { prepared })
    }

    /// Calls a function of a fresh instance.
    ///
    /// # Errors
    /// The function returned an error, or trapped.
    pub fn call(&self, function: &str, payload: &[u8], host: &Arc<Host>) -> Result<Vec<u8>> {
        let host = Arc::clone(host);
        let callback = move |_: u64, binding: &str, namespace: &str, operation: &str, payload: &[u8]| {
            host.call(binding, namespace, operation, payload).map_err(Into::into)
        };
        let engine = self.prepared.rehydrate(None).map_err(|error| anyhow!("{error}"))?;
        let instance = WapcHost::new(Box::new(engine), Some(Box::new(callback)))?;
        Ok(instance.call(function, payload)?)
    }
}

impl Policy for Module {
    fn name(&self) -> &'static str {
        "module"
    }

    fn validate(&self, request: &Value, settings: &Value, host: &Arc<Host>) -> Result<Answer> {
        let payload = json!({"request": request, "settings": settings}).to_string();
        Ok(serde_json::from_slice(&self.call("validate", payload.as_bytes(), host)?)?)
    }

    fn validate_settings(&self, settings: &Value) -> Result<Option<String>> {
        #[derive(Deserialize)]
        struct Response {
            valid: bool,
            message: Option<String>,
        }
        let answer = self.call("validate_settings", settings.to_string().as_bytes(), &Arc::default())?;
        let Response { valid, message } = serde_json::from_slice(&answer)?;
        match (valid, message) {
            (true, None) => Ok(None),
            (false, Some(message)) => Ok(Some(message)),
            other => bail!("inconsistent answer: {other:?}"),
        }
    }
}

/// Both implementations.
pub fn all() -> [&'static dyn Policy; 2] {
    [&Native, Module::built()]
}
