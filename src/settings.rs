//! The policy's settings. Every key is optional. All errors are reported at once, each with its path.
//!
//! Paths, patterns and templates are parsed when the settings are read, so every [`Rule`] can be applied.

mod paths;
pub mod reader;
mod restore_rules;
mod workload_match;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::json::{Fields, JsonError, Scanner};
use crate::jsonpath::JsonPath;
use crate::karmada::{self, PurgeMode, Work};
use crate::messages::{chain, listed, quote};
use crate::object_reference::ObjectReference;
use crate::restore::rule::Rule;
use crate::state::{self, StateRule};
use crate::workload_match::WorkloadMatch;
use crate::{Request, Stage};
use reader::{Errors, FieldPath, Object, Problem};

/// What a stage does about its findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Errors deny the request.
    #[default]
    Enforce,
    /// Errors are only warnings.
    Warn,
    /// The stage does nothing.
    Off,
}

const LEVELS: [(&str, Level); 3] = [("Enforce", Level::Enforce), ("Warn", Level::Warn), ("Off", Level::Off)];

/// What `preserve` does about a rule without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissingState {
    /// The eviction is denied, and Karmada retries.
    #[default]
    Block,
    /// The eviction is allowed, and the record says what is missing.
    Proceed,
}

/// What `preserve` does about moves without an eviction task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Moves {
    /// The state is preserved, as for a failover.
    #[default]
    Preserve,
    /// The state is not preserved, and the application starts cold.
    Ignore,
}

/// What `feed` does when it can't read the binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLookupFailure {
    /// The Work is denied, and Karmada retries.
    #[default]
    Reject,
    /// The Work is accepted without the state, with a warning.
    Accept,
}

/// An item of `lintKinds`: a kind that the user interprets by a customization or a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterpretedKind {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// PascalCase.
    pub kind: String,
    /// The fields of the status that are reflected; `None` for all of them.
    pub reflected: Option<Vec<String>>,
}

/// All settings.
#[derive(Debug, Default)]
pub struct Settings {
    /// Of the stage `lint`.
    pub lint: Level,
    /// Of the stage `lint`: kinds that the user interprets.
    pub lint_kinds: Vec<InterpretedKind>,
    /// Of the stage `guard`.
    pub guard: Level,
    /// Of the stage `preserve`.
    pub preserve: PreserveSettings,
    /// Of the stage `feed`.
    pub feed: FeedSettings,
    /// Of the stage `restore`: its rules, in order.
    pub restore: Vec<Rule>,
}

/// Settings of the stage `preserve`.
#[derive(Debug)]
pub struct PreserveSettings {
    /// What to do about a rule without a value.
    pub on_missing_state: OnMissingState,
    /// What to do about moves without an eviction task.
    pub moves: Moves,
    /// How many records a history keeps: 1 to 20.
    pub history_limit: usize,
    /// State rules for workloads whose policy has none.
    pub rules: Vec<WorkloadRules>,
}

impl Default for PreserveSettings {
    fn default() -> Self {
        Self {
            on_missing_state: OnMissingState::default(),
            moves: Moves::default(),
            history_limit: 5,
            rules: Vec::new(),
        }
    }
}

impl PreserveSettings {
    /// The state rules of the first entry that matches `resource`; empty where none matches.
    pub fn rules_for(&self, resource: ObjectReference<'_>) -> &[StateRule] {
        let entry = self.rules.iter().find(|entry| entry.matches.accepts(resource));
        entry.map(|entry| entry.rules.as_slice()).unwrap_or_default()
    }
}

/// State rules for some workloads.
#[derive(Debug)]
pub struct WorkloadRules {
    matches: WorkloadMatch,
    rules: Vec<StateRule>,
}

/// Settings of the stage `feed`.
#[derive(Debug)]
pub struct FeedSettings {
    /// What to do when the binding can't be read.
    pub on_lookup_failure: OnLookupFailure,
    /// Which evictions are fed.
    pub purge_modes: Vec<PurgeMode>,
}

impl Default for FeedSettings {
    fn default() -> Self {
        Self { on_lookup_failure: OnLookupFailure::default(), purge_modes: vec![PurgeMode::Directly] }
    }
}

/// The settings are not valid. Holds every error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", listed(.0))]
pub struct SettingsError(pub Vec<Problem>);

/// The settings of a request can't be used.
#[derive(Debug, Error)]
pub enum RequestSettingsError {
    /// They are not JSON.
    #[error("cannot read the policy's settings")]
    Json(#[from] JsonError),
    /// They are not valid.
    #[error("the policy's settings are not valid")]
    Settings(#[from] SettingsError),
}

impl Settings {
    /// The settings in `json`; null means no settings, all defaults.
    ///
    /// # Errors
    /// [`SettingsError`] with every error that was found, in the order of the table in docs/reference.md.
    pub fn from_json(json: &Value) -> Result<Self, SettingsError> {
        Self::read(json, Errors::new(true))
    }

    /// The settings that a request needs: the engine validated all of them before it served requests. Restore rules are
    /// read for the kinds of the request's objects only, and a pattern is compiled when the first value is matched,
    /// since both would otherwise take longer than most evaluations.
    ///
    /// # Errors
    /// [`RequestSettingsError`], for the parts that are read. A pattern that does not compile is not an error: it
    /// matches nothing.
    pub fn for_request(json: &str, request: &Request<'_>) -> Result<Self, RequestSettingsError> {
        let stage = Stage::of(request);
        let sections: &[&str] = match stage {
            Stage::Lint => &["lint", "lintKinds", "feed"],
            Stage::Preserve => &["guard", "preserve"],
            Stage::Feed => &["feed", "restore"],
            Stage::Restore => &["restore"],
        };
        let mut settings = Map::new();
        let mut scanner = Scanner::new(json);
        if scanner.peek() != Some(b'{') {
            return Ok(Self::read(&serde_json::from_str(json).map_err(JsonError::Value)?, Errors::new(false))?);
        }
        scanner.members(|scanner, member| {
            if !sections.contains(&member.key.as_ref()) {
                return scanner.value().map(drop);
            }
            let section = if member.key == "restore" && scanner.peek() == Some(b'{') {
                restore_rules::for_kinds(scanner, &kinds_of(request))?
            } else {
                scanner.parse()?
            };
            settings.insert(member.key.into_owned(), section);
            Ok(())
        })?;
        scanner.end()?;
        Ok(Self::read(&Value::Object(settings), Errors::new(false))?)
    }

    fn read(json: &Value, mut errors: Errors) -> Result<Self, SettingsError> {
        let root = Object::new(
            json,
            FieldPath::root(),
            &["lint", "lintKinds", "guard", "preserve", "feed", "restore"],
            &mut errors,
        );
        let settings = Self {
            lint: root.choice("lint", &LEVELS, Level::default(), &mut errors),
            lint_kinds: read_lint_kinds(&root, &mut errors),
            guard: root.choice("guard", &LEVELS, Level::default(), &mut errors),
            preserve: read_preserve(&root, &mut errors),
            feed: read_feed(&root, &mut errors),
            restore: restore_rules::read(&root, &mut errors),
        };
        let problems = errors.into_problems();
        if problems.is_empty() { Ok(settings) } else { Err(SettingsError(problems)) }
    }
}

/// Group and kind of the request's object or, where that is a Work, of its manifests.
fn kinds_of(request: &Request<'_>) -> Vec<(String, String)> {
    if Stage::of(request) != Stage::Feed {
        return vec![(request.kind.group.to_string(), request.kind.kind.to_string())];
    }
    // A Work that can't be read is denied later.
    let Ok(Some(work)) = request.object(karmada::work_fields(Fields::default())) else { return Vec::new() };
    let manifests = Work::new(work.value()).manifests().iter().map(ObjectReference::of);
    manifests.map(|reference| (reference.group.to_owned(), reference.kind.to_owned())).collect()
}

fn read_lint_kinds(root: &Object<'_>, errors: &mut Errors) -> Vec<InterpretedKind> {
    let mut kinds = Vec::new();
    for (item, path) in root.list("lintKinds", errors) {
        let item = Object::new(item, path, &["apiVersion", "kind", "reflected"], errors);
        let api_version = item.required_string("apiVersion", errors);
        let kind = item.required_string("kind", errors);
        let reflected = item.get("reflected").map(|_| item.strings("reflected", errors));
        if let (Some(api_version), Some(kind)) = (api_version, kind) {
            kinds.push(InterpretedKind { api_version: api_version.to_owned(), kind: kind.to_owned(), reflected });
        }
    }
    kinds
}

fn read_preserve(root: &Object<'_>, errors: &mut Errors) -> PreserveSettings {
    const MAX_HISTORY_LIMIT: u64 = 20;
    let section = root.object("preserve", &["onMissingState", "moves", "historyLimit", "rules"], errors);
    let mut settings = PreserveSettings::default();
    settings.on_missing_state = section.choice(
        "onMissingState",
        &[("Block", OnMissingState::Block), ("Proceed", OnMissingState::Proceed)],
        settings.on_missing_state,
        errors,
    );
    let moves = [("Preserve", Moves::Preserve), ("Ignore", Moves::Ignore)];
    settings.moves = section.choice("moves", &moves, settings.moves, errors);
    if let Some(limit) = section.get("historyLimit") {
        match limit.as_u64().filter(|limit| (1..=MAX_HISTORY_LIMIT).contains(limit)) {
            Some(limit) => settings.history_limit = limit as usize,
            None => errors.add(
                &section.path_of("historyLimit"),
                format_args!("is {}, expected a whole number from 1 to {MAX_HISTORY_LIMIT}", quote(&limit.to_string())),
            ),
        }
    }
    for (entry, path) in section.list("rules", errors) {
        let entry = Object::new(entry, path, &["match", "rules"], errors);
        let matches = entry.object("match", &["apiGroups", "kinds", "namespaces"], errors);
        let matches = workload_match::read(&matches, errors);
        let rules = read_state_rules(&entry, errors);
        settings.rules.push(WorkloadRules { matches, rules });
    }
    settings
}

fn read_state_rules(entry: &Object<'_>, errors: &mut Errors) -> Vec<StateRule> {
    let items = entry.list("rules", errors);
    if entry.get("rules").is_none_or(|rules| rules.as_array().is_some_and(Vec::is_empty)) {
        errors.add(&entry.path, "`rules` is missing or empty");
    }
    let mut rules: Vec<StateRule> = Vec::new();
    for (item, path) in items {
        let item = Object::new(item, path, &["aliasLabelName", "jsonPath"], errors);
        let alias = item.required_string("aliasLabelName", errors);
        let json_path = item.required_string("jsonPath", errors);
        let alias_path = item.path_of("aliasLabelName");
        if let Some(alias) = alias {
            if let Err(error) = state::check_alias(alias) {
                errors.add(&alias_path, format_args!("{error}; choose another name"));
            } else if rules.iter().any(|rule| rule.alias == alias) {
                errors.add(&alias_path, format_args!("{} is used by an earlier rule", quote(alias)));
            }
        }
        let (Some(alias), Some(json_path)) = (alias, json_path) else {
            continue;
        };
        match JsonPath::from_settings(json_path) {
            Ok(parsed) => rules.push(StateRule::from_parsed(alias.to_owned(), json_path.to_owned(), parsed)),
            Err(error) => errors.add(&item.path_of("jsonPath"), chain(&error)),
        }
    }
    rules
}

fn read_feed(root: &Object<'_>, errors: &mut Errors) -> FeedSettings {
    let section = root.object("feed", &["onLookupFailure", "purgeModes"], errors);
    let mut settings = FeedSettings::default();
    settings.on_lookup_failure = section.choice(
        "onLookupFailure",
        &[("Reject", OnLookupFailure::Reject), ("Accept", OnLookupFailure::Accept)],
        settings.on_lookup_failure,
        errors,
    );
    if section.get("purgeModes").is_some() {
        settings.purge_modes.clear();
    }
    let names: Vec<&str> = PurgeMode::ALL.iter().map(|mode| mode.as_str()).collect();
    for (item, path) in section.list("purgeModes", errors) {
        let Some(name) = reader::as_string(item, &path, errors) else {
            continue;
        };
        match PurgeMode::from_name(name).filter(|_| !name.is_empty()) {
            Some(mode) => settings.purge_modes.push(mode),
            None => errors.add(&path, reader::unknown(name, &names, "purge mode")),
        }
    }
    settings
}
