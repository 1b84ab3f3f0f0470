//! Reads and checks the restore rules of the settings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Map, Value};

use super::paths;
use super::reader::{self, Errors, Object, as_string};
use super::workload_match;
use crate::collected;
use crate::json::{JsonError, Scanner};
use crate::messages::{chain, quote};
use crate::metadata::type_name;
use crate::restore::path::{Path, Segment};
use crate::restore::rule::{As, Condition, Content, Edit, Expectation, Mode, OnUpdate, Rule};
use crate::restore::variable::{BUILT_INS, Otherwise, Pattern, Source, Template, Variable, is_identifier};
use crate::workload_match::ALL;

/// Maximum number of paths of all rules together.
const MAX_PATHS: usize = 2000;

/// Reads the section `restore`, with null in place of every rule that matches none of these groups and kinds.
///
/// # Errors
/// [`JsonError`].
pub(super) fn for_kinds(scanner: &mut Scanner<'_>, kinds: &[(String, String)]) -> Result<Value, JsonError> {
    let mut section = Map::new();
    scanner.members(|scanner, member| {
        let value = if member.key == "rules" && scanner.peek() == Some(b'[') {
            let mut rules = Vec::new();
            scanner.items(|scanner| {
                scanner.peek();
                let start = scanner.at();
                rules.push(if is_for_any(scanner, kinds)? { scanner.parse_from(start)? } else { Value::Null });
                Ok(())
            })?;
            Value::Array(rules)
        } else {
            scanner.parse()?
        };
        section.insert(member.key.into_owned(), value);
        Ok(())
    })?;
    Ok(Value::Object(section))
}

/// Whether the next rule matches one of these groups and kinds. A rule without kinds counts as a match, so that its
/// error is reported.
fn is_for_any(scanner: &mut Scanner<'_>, kinds: &[(String, String)]) -> Result<bool, JsonError> {
    let (mut api_groups, mut rule_kinds) = (None, None);
    if scanner.peek() != Some(b'{') {
        return scanner.value().map(|_| true);
    }
    scanner.members(|scanner, member| {
        if member.key != "match" || scanner.peek() != Some(b'{') {
            return scanner.value().map(drop);
        }
        scanner.members(|scanner, member| {
            let names = match member.key.as_ref() {
                "apiGroups" => &mut api_groups,
                "kinds" => &mut rule_kinds,
                _ => return scanner.value().map(drop),
            };
            *names = read_names(scanner)?;
            Ok(())
        })
    })?;
    let has = |names: &Option<Vec<Cow<'_, str>>>, name: &str| {
        names.as_ref().is_none_or(|names| names.iter().any(|known| known == name || known == ALL))
    };
    Ok(kinds.iter().any(|(group, kind)| has(&api_groups, group) && has(&rule_kinds, kind)))
}

/// The strings in a list; `None` for any other value.
fn read_names<'t>(scanner: &mut Scanner<'t>) -> Result<Option<Vec<Cow<'t, str>>>, JsonError> {
    if scanner.peek() != Some(b'[') {
        return scanner.value().map(|_| None);
    }
    let mut names = Vec::new();
    scanner.items(|scanner| {
        match scanner.peek() {
            Some(b'"') => names.push(scanner.string()?),
            _ => drop(scanner.value()?),
        }
        Ok(())
    })?;
    Ok(Some(names))
}

/// Reads `restore.rules`.
pub(super) fn read(root: &Object<'_>, errors: &mut Errors) -> Vec<Rule> {
    let section = root.object("restore", &["rules"], errors);
    let mut rules: Vec<Rule> = Vec::new();
    for (item, path) in section.list("rules", errors) {
        // The request does not need this rule.
        if item.is_null() && !errors.is_thorough {
            continue;
        }
        let Some(rule) = read_rule(item, path.clone(), errors) else { continue };
        if rules.iter().any(|earlier| earlier.name == rule.name) {
            errors.add(&path.field("name"), format_args!("{} is the name of an earlier rule", quote(&rule.name)));
        }
        if errors.is_thorough {
            for earlier in &rules {
                check_created_entries(&rule, earlier, &path, errors);
                check_created_entries(earlier, &rule, &path, errors);
            }
        }
        rules.push(rule);
        let paths: usize = rules.iter().map(|rule| rule.remove.len() + rule.set.len()).sum();
        if paths > MAX_PATHS {
            errors.add(&section.path_of("rules"), format_args!("have more than {MAX_PATHS} paths in all; remove some"));
            break;
        }
    }
    rules
}

/// The rule at `path` in the settings; `None` where it has errors.
fn read_rule(value: &Value, path: reader::FieldPath, errors: &mut Errors) -> Option<Rule> {
    const FIELDS: [&str; 6] = ["name", "match", "vars", "remove", "set", "onUpdate"];
    const MATCH: [&str; 5] = ["apiGroups", "kinds", "namespaces", "labelSelector", "conditions"];
    let before = errors.count();
    let rule = Object::new(value, path, &FIELDS, errors);
    let name = rule.required_string("name", errors).unwrap_or_default().to_owned();
    let matches = rule.object("match", &MATCH, errors);
    let workloads = workload_match::read(&matches, errors);
    let label_selector = read_label_selector(&matches, errors);
    let conditions = read_conditions(&matches, errors);
    let variables = read_variables(&rule, errors);
    let known: Vec<&str> = variables.keys().map(String::as_str).collect();
    let remove = read_remove(&rule, errors);
    let set = read_set(&rule, &known, errors);
    if remove.is_empty() && set.is_empty() && errors.count() == before {
        errors.add(&rule.path, "has neither `set` nor `remove`: the rule does nothing");
    }
    let choices = [("Keep", OnUpdate::Keep), ("Apply", OnUpdate::Apply), ("Ignore", OnUpdate::Ignore)];
    let on_update = rule.choice("onUpdate", &choices, OnUpdate::Keep, errors);
    let at = rule.path;
    let mut rule = Rule { name, workloads, label_selector, conditions, variables, remove, set, on_update };
    if errors.is_thorough {
        check_paths(&rule, &at, errors);
        check_created_entries(&rule, &rule, &at, errors);
    }
    rule.exclude_value_from();
    (errors.count() == before).then_some(rule)
}

fn read_label_selector(matches: &Object<'_>, errors: &mut Errors) -> LabelSelector {
    let section = matches.object("labelSelector", &["matchLabels", "matchExpressions"], errors);
    let mut selector = LabelSelector::default();
    let entries = section.entries("matchLabels", errors).into_iter();
    let labels: BTreeMap<String, String> = collected(
        entries.filter_map(|(key, value, path)| Some((key.to_owned(), as_string(value, &path, errors)?.to_owned()))),
    );
    selector.match_labels = Some(labels);
    let mut requirements = Vec::new();
    for (item, path) in section.list("matchExpressions", errors) {
        let item = Object::new(item, path, &["key", "operator", "values"], errors);
        let key = item.required_string("key", errors).unwrap_or_default().to_owned();
        const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
        let operator = item.required_string("operator", errors).unwrap_or_default().to_owned();
        if !operator.is_empty() && !OPERATORS.contains(&operator.as_str()) {
            errors.add(&item.path_of("operator"), reader::unknown(&operator, &OPERATORS, "operator"));
        }
        let values = item.strings("values", errors);
        match operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.add(&item.path, format_args!("operator `{operator}` needs `values`"))
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.add(&item.path_of("values"), format_args!("operator `{operator}` takes no values; remove them"));
            }
            _ => {}
        }
        requirements.push(LabelSelectorRequirement { key, operator, values: Some(values) });
    }
    selector.match_expressions = Some(requirements);
    selector
}

fn read_conditions(matches: &Object<'_>, errors: &mut Errors) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (item, path) in matches.list("conditions", errors) {
        let item = Object::new(item, path, &["path", "segments", "exists", "equals"], errors);
        let path = read_path(&item, errors);
        let expectation = match (item.get("exists"), item.get_even_null("equals")) {
            (Some(Value::Bool(exists)), None) => Some(Expectation::Exists(*exists)),
            (None, Some(value)) => Some(Expectation::Equals(value.clone())),
            (Some(_), Some(_)) => {
                errors.add(&item.path, "has both `exists` and `equals`, expected one of them");
                None
            }
            (Some(other), None) => {
                errors.add(&item.path_of("exists"), format_args!("is {}, expected true or false", type_name(other)));
                None
            }
            (None, None) => {
                errors.add(&item.path, "has neither `exists` nor `equals`");
                None
            }
        };
        if let (Some(path), Some(expectation)) = (path, expectation) {
            conditions.push(Condition { path, expectation });
        }
    }
    conditions
}

fn read_variables(rule: &Object<'_>, errors: &mut Errors) -> BTreeMap<String, Variable> {
    let entries = rule.entries("vars", errors);
    // The name and key of a ConfigMap may use state variables, but not values of other ConfigMaps.
    let from_state: Vec<&str> =
        entries.iter().filter(|(_, value, _)| value.get("state").is_some()).map(|(name, ..)| *name).collect();
    let mut variables = BTreeMap::new();
    for (name, value, path) in entries {
        if BUILT_INS.contains(&name) {
            errors.add(&path, format_args!("{} is built in; choose another name", quote(name)));
        } else if !is_identifier(name) {
            errors.add(
                &path,
                format_args!(
                    "{} is not a variable name; use letters, digits and `_`, not starting with a digit",
                    quote(name)
                ),
            );
        }
        const FIELDS: [&str; 7] = ["state", "configMap", "field", "pattern", "reject", "onMissing", "onInvalid"];
        let variable = Object::new(value, path, &FIELDS, errors);
        let source = read_source(&variable, &from_state, errors);
        let pattern = variable.string("pattern", errors).map_or(Pattern::LabelValue, Pattern::regex);
        if errors.is_thorough
            && let Err(error) = pattern.check()
        {
            errors.add(&variable.path_of("pattern"), format_args!("does not compile: {error}"));
        }
        let choices = [("Skip", Otherwise::Skip), ("Reject", Otherwise::Reject)];
        let reject = variable.strings("reject", errors);
        let on_missing = variable.choice("onMissing", &choices, Otherwise::Skip, errors);
        let on_invalid = variable.choice("onInvalid", &choices, Otherwise::Reject, errors);
        // A variable without a source still counts as declared, so that templates that use it are not reported too.
        let source = source.unwrap_or_else(|| Source::State(String::new()));
        variables.insert(name.to_owned(), Variable { source, pattern, reject, on_missing, on_invalid });
    }
    variables
}

fn read_source(variable: &Object<'_>, from_state: &[&str], errors: &mut Errors) -> Option<Source> {
    match one_of(variable, &["state", "configMap", "field"], errors)? {
        "state" => variable.required_string("state", errors).map(|alias| Source::State(alias.to_owned())),
        "field" => {
            let path = variable.string("field", errors)?;
            match Path::parse(path) {
                Ok(path) if path.segments().contains(&Segment::Every) => {
                    errors.add(&variable.path_of("field"), "leads to several fields by `[*]`; name one");
                    None
                }
                path => {
                    path.map(Source::Field).map_err(|error| errors.add(&variable.path_of("field"), chain(&error))).ok()
                }
            }
        }
        _ => {
            let section = variable.object("configMap", &["namespace", "name", "key"], errors);
            let mut template = |key| {
                let text = section.required_string(key, errors)?;
                let template = Template::parse(text, from_state);
                template.map_err(|error| errors.add(&section.path_of(key), error)).ok()
            };
            let (namespace, name, key) = (template("namespace"), template("name"), template("key"));
            Some(Source::ConfigMap { namespace: namespace?, name: name?, key: key? })
        }
    }
}

/// The one of several fields that is given. It is an error where none or more than one is given.
fn one_of(item: &Object<'_>, fields: &[&'static str], errors: &mut Errors) -> Option<&'static str> {
    let given: Vec<&'static str> = fields.iter().copied().filter(|field| item.get_even_null(field).is_some()).collect();
    match given.as_slice() {
        [field] => Some(field),
        [] => {
            let (last, others) = fields.split_last()?;
            let fields = others.join("`, `");
            errors.add(&item.path, format_args!("has none of `{fields}` and `{last}`, expected one of them"));
            None
        }
        given => {
            errors.add(&item.path, format_args!("has `{}`, expected one of them", given.join("` and `")));
            None
        }
    }
}

fn read_remove(rule: &Object<'_>, errors: &mut Errors) -> Vec<Path> {
    let mut removed = Vec::new();
    for (item, at) in rule.list("remove", errors) {
        let Some(text) = as_string(item, &at, errors) else {
            continue;
        };
        if text.ends_with("/-") {
            errors.add(&at, "`-` means append and cannot be removed");
            continue;
        }
        let checked = |path: &Path| {
            paths::check_target(path)
                .and_then(|()| paths::check_selectors(path, None))
                .and_then(|()| paths::check_removed(path))
        };
        match Path::parse(text) {
            Ok(path) => match checked(&path) {
                Ok(()) => removed.push(path),
                Err(error) => errors.add(&at, error),
            },
            Err(error) => errors.add(&at, error),
        }
    }
    removed
}

fn read_set(rule: &Object<'_>, known: &[&str], errors: &mut Errors) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (item, at) in rule.list("set", errors) {
        const FIELDS: [&str; 7] = ["path", "segments", "value", "template", "valueFrom", "mode", "separator"];
        let item = Object::new(item, at, &FIELDS, errors);
        let appends = item.get("path").and_then(Value::as_str).is_some_and(|path| path.ends_with("/-"));
        let path = read_path(&item, errors);
        let path_field = item.path_of(if item.get("segments").is_some() { "segments" } else { "path" });
        if let Some(Err(error)) = path.as_ref().map(paths::check_target) {
            errors.add(&path_field, error);
        }
        let content = read_content(&item, known, errors);
        if let (Some(path), Some(content)) = (&path, &content) {
            // Templates and variables never give an entry with fields.
            let value = match content {
                Content::Value(value) => value,
                Content::Template(_) | Content::ValueFrom(..) => &Value::Bool(true),
            };
            if let Err(error) = paths::check_selectors(path, Some(value)) {
                errors.add(&path_field, error);
            }
        }
        let mode = read_mode(&item, appends, content.as_ref(), errors);
        if let (Some(path), Some(content)) = (path, content) {
            edits.push(Edit { path, content, mode });
        }
    }
    edits
}

/// `mode` and `separator`. `appends`: the path ends with `-`.
fn read_mode(item: &Object<'_>, appends: bool, content: Option<&Content>, errors: &mut Errors) -> Mode {
    #[derive(Clone, Copy, PartialEq)]
    enum Name {
        Replace,
        IfAbsent,
        Append,
    }
    let choices = [("Replace", Name::Replace), ("IfAbsent", Name::IfAbsent), ("Append", Name::Append)];
    let default = if appends { Name::Append } else { Name::Replace };
    let mode = match item.choice("mode", &choices, default, errors) {
        Name::Replace => Mode::Replace,
        Name::IfAbsent => Mode::IfAbsent,
        Name::Append => Mode::Append,
    };
    if appends && mode != Mode::Append {
        errors.add(&item.path_of("mode"), "the path ends with `-`, which appends");
    }
    let Some(separator) = item.string("separator", errors) else { return mode };
    let problem = if mode != Mode::Append || appends {
        "is for `mode: Append` to a string only"
    } else if separator.is_empty() {
        "is empty"
    } else if matches!(content, Some(Content::Value(value)) if !value.is_string()) {
        errors.add(&item.path_of("value"), "must be a string to be appended to a string");
        return mode;
    } else {
        return Mode::AppendText(separator.to_owned());
    };
    errors.add(&item.path_of("separator"), problem);
    mode
}

fn read_content(item: &Object<'_>, known: &[&str], errors: &mut Errors) -> Option<Content> {
    match one_of(item, &["value", "template", "valueFrom"], errors)? {
        "value" => match item.get("value") {
            Some(value) => Some(Content::Value(value.clone())),
            None => {
                errors.add(&item.path_of("value"), "is null; write `remove` to take a field away");
                None
            }
        },
        "template" => {
            let path = item.path_of("template");
            match item.get_even_null("template") {
                Some(Value::String(text)) => match Template::parse(text, known) {
                    Ok(template) => Some(Content::Template(template)),
                    Err(error) => {
                        errors.add(&path, chain(&error));
                        None
                    }
                },
                Some(Value::Object(_)) => {
                    errors.add(
                        &path,
                        "is an object, expected a string; quote the template: in YAML, {name} without quotes is a map",
                    );
                    None
                }
                other => {
                    let found = other.map_or("missing", type_name);
                    errors.add(&path, format_args!("is {found}, expected a string; quote it, or write `value`"));
                    None
                }
            }
        }
        _ => {
            let section = item.object("valueFrom", &["var", "as"], errors);
            let variable = section.required_string("var", errors)?;
            if !known.contains(&variable) && !BUILT_INS.contains(&variable) {
                errors.add(&section.path_of("var"), reader::unknown(variable, known, "variable"));
                return None;
            }
            let choices = [("String", As::String), ("Integer", As::Integer), ("Boolean", As::Boolean)];
            let as_type = section.choice("as", &choices, As::String, errors);
            Some(Content::ValueFrom(variable.to_owned(), as_type))
        }
    }
}

/// The path in `path` (without the `-` of an append) or in `segments`.
fn read_path(item: &Object<'_>, errors: &mut Errors) -> Option<Path> {
    let field = one_of(item, &["path", "segments"], errors)?;
    let path = match field {
        "path" => {
            let text = item.required_string("path", errors)?;
            Path::parse(text.strip_suffix("/-").filter(|list| !list.is_empty()).unwrap_or(text))
        }
        _ => Path::of_keys(item.strings("segments", errors)),
    };
    path.map_err(|error| errors.add(&item.path_of(field), error)).ok()
}

/// Checks that a rule does not write a place twice, nor a part of a value that it writes: applying the rule again would
/// give another result.
fn check_paths(rule: &Rule, at: &reader::FieldPath, errors: &mut Errors) {
    let removed = rule.remove.iter().map(|path| (path, None));
    let paths: Vec<(&Path, Option<&Mode>)> =
        removed.chain(rule.set.iter().map(|edit| (&edit.path, Some(&edit.mode)))).collect();
    for (index, (path, mode)) in paths.iter().enumerate() {
        for (earlier, earlier_mode) in paths.iter().take(index) {
            let appends = |mode: &Option<&Mode>| *mode == Some(&Mode::Append);
            let is_twice = path.may_cover(earlier) && earlier.may_cover(path);
            let overlap = match (appends(mode), appends(earlier_mode)) {
                // A rule may append to one list several times.
                (true, true) => is_twice && path != earlier,
                (true, false) => path.appends_into(earlier),
                (false, true) => earlier.appends_into(path),
                // A rule may set a part of a value that it removes.
                (false, false) if earlier_mode.is_none() && mode.is_some() && earlier.contains(path) => false,
                (false, false) => path.may_cover(earlier) || earlier.may_cover(path),
            };
            let quoted = quote(&path.to_string());
            if overlap && is_twice {
                errors.add(at, format_args!("{quoted} is named twice; a rule writes a path once"));
            } else if overlap {
                let earlier = quote(&earlier.to_string());
                errors.add(at, format_args!("{quoted} and {earlier} overlap; write only one of them"));
            }
        }
    }
    for edit in rule.set.iter().filter(|edit| rule.is_below_removed(edit)) {
        let removed = rule.remove.iter().filter(|removed| removed.contains(&edit.path));
        let depth = removed.map(|removed| removed.segments().len()).min().unwrap_or_default();
        if edit.path.segments().iter().skip(depth).any(|segment| *segment == Segment::Every) {
            let path = quote(&edit.path.to_string());
            errors.add(
                at,
                format_args!("{path} has a `[*]` below a removed path, where nothing is left; name the entry"),
            );
        }
    }
}

/// Checks that no `[*]` or index may mean an entry that another path creates: the result would depend on the order of
/// the edits.
fn check_created_entries(rule: &Rule, creator: &Rule, at: &reader::FieldPath, errors: &mut Errors) {
    if !rule.workloads.may_meet(&creator.workloads) {
        return;
    }
    for path in rule.remove.iter().chain(rule.set.iter().map(|edit| &edit.path)) {
        if let Some(edit) = creator.set.iter().find(|edit| path.meets_entry_of(&edit.path, edit.mode == Mode::Append)) {
            let (path, created) = (quote(&path.to_string()), quote(&edit.path.to_string()));
            let owner = match std::ptr::eq(rule, creator) {
                true => String::new(),
                false => format!(" of rule {}", quote(&creator.name)),
            };
            errors.add(
                at,
                format_args!(
                    "{path} may lead to the entry that {created}{owner} creates; select the entries with `[key=value]`"
                ),
            );
        }
    }
}
