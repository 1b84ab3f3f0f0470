//! Runs ResourceInterpreterCustomizations as Karmada does: in Lua 5.1, with the libraries of its sandbox and without
//! the functions that the sandbox removes. Source: `karmada-io/karmada`,
//! `pkg/resourceinterpreter/customized/declarative/luavm/lua.go`, and `pkg/util/lifted/lua` for the strings of v1.13
//! and newer.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value as LuaValue, VmState};
use serde::Deserialize as _;
use serde_json::{Map, Number, Value, json};

use e2e_tests::project;

/// Functions that raise an error in Karmada's sandbox.
const DISABLED: [&str; 14] = [
    "collectgarbage",
    "dofile",
    "getfenv",
    "getmetatable",
    "load",
    "loadfile",
    "loadstring",
    "rawequal",
    "rawget",
    "rawset",
    "setfenv",
    "setmetatable",
    "module",
    "newproxy",
];
/// The same of `string`, from v1.13 on.
const DISABLED_OF_STRING: [&str; 3] = ["gsub", "rep", "dump"];
/// Karmada stops a script after one second, which is many more instructions than this.
const MAX_INSTRUCTIONS: u32 = 1_000_000;

/// The health of an object in Karmada.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// `Healthy`
    Healthy,
    /// `Unhealthy`, which causes a failover.
    Unhealthy,
}

/// The scripts of one customization, by the key under `customizations`.
#[derive(Debug, Clone)]
pub(crate) struct Customization {
    /// The file in deploy/interpreters.
    pub(crate) file: String,
    /// `target.apiVersion`.
    pub(crate) api_version: String,
    /// `target.kind`.
    pub(crate) kind: String,
    scripts: BTreeMap<String, String>,
}

/// All customizations in deploy/interpreters.
///
/// # Errors
/// A file can't be read, or is not a customization.
pub(crate) fn all() -> Result<Vec<Customization>> {
    let mut customizations = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(project("deploy/interpreters"))?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    for entry in files {
        let file = entry.file_name().to_string_lossy().into_owned();
        if file == "kustomization.yaml" {
            continue;
        }
        for document in serde_yaml_ng::Deserializer::from_str(&std::fs::read_to_string(entry.path())?) {
            customizations
                .push(Customization::read(&Value::deserialize(document)?, &file).with_context(|| file.clone())?);
        }
    }
    Ok(customizations)
}

impl Customization {
    fn read(document: &Value, file: &str) -> Result<Self> {
        ensure!(
            document["apiVersion"] == "config.karmada.io/v1alpha1"
                && document["kind"] == "ResourceInterpreterCustomization"
        );
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text is missing");
        let target = &document["spec"]["target"];
        let mut scripts = BTreeMap::new();
        for (operation, rule) in document["spec"]["customizations"].as_object().context("no customizations")? {
            ensure!(
                ["healthInterpretation", "statusReflection", "retention", "statusAggregation"]
                    .contains(&operation.as_str()),
                "unknown operation {operation}"
            );
            scripts.insert(operation.clone(), text(&rule["luaScript"])?);
        }
        Ok(Self {
            file: file.to_owned(),
            api_version: text(&target["apiVersion"])?,
            kind: text(&target["kind"])?,
            scripts,
        })
    }

    /// Whether it is for that object.
    pub(crate) fn is_for(&self, object: &Value) -> bool {
        object["apiVersion"] == *self.api_version && object["kind"] == *self.kind
    }

    /// Whether it has that operation.
    pub(crate) fn has(&self, operation: &str) -> bool {
        self.scripts.contains_key(operation)
    }

    /// The health of an object; `None` where the customization leaves that to Karmada.
    ///
    /// # Errors
    /// The script fails or does not return a boolean. Karmada's health is `Unknown` then.
    pub(crate) fn health(&self, object: &Value) -> Result<Option<Health>> {
        let Some(result) = self.run("healthInterpretation", "InterpretHealth", &[object])? else { return Ok(None) };
        match result {
            Value::Bool(true) => Ok(Some(Health::Healthy)),
            Value::Bool(false) => Ok(Some(Health::Unhealthy)),
            other => bail!("InterpretHealth returned {other}"),
        }
    }

    /// The status that Karmada reflects; `None` where the customization leaves that to Karmada.
    ///
    /// # Errors
    /// The script fails or does not return a table.
    pub(crate) fn reflect(&self, object: &Value) -> Result<Option<Value>> {
        let Some(result) = self.run("statusReflection", "ReflectStatus", &[object])? else { return Ok(None) };
        ensure!(result.is_object(), "ReflectStatus returned {result}");
        Ok(Some(result))
    }

    /// What Karmada writes to the member; `None` where the customization leaves that to Karmada.
    ///
    /// # Errors
    /// The script fails: the Work is not applied then.
    pub(crate) fn retain(&self, desired: &Value, observed: &Value) -> Result<Option<Value>> {
        self.run("retention", "Retain", &[desired, observed])
    }

    /// The template's status; `None` where the customization leaves that to Karmada.
    ///
    /// # Errors
    /// The script fails.
    pub(crate) fn aggregate(&self, desired: &Value, items: &Value) -> Result<Option<Value>> {
        self.run("statusAggregation", "AggregateStatus", &[desired, items])
    }

    fn run(&self, operation: &str, function: &str, arguments: &[&Value]) -> Result<Option<Value>> {
        let Some(script) = self.scripts.get(operation) else { return Ok(None) };
        // mlua's errors are not `Send`, so only their text is returned.
        run(script, function, arguments)
            .map(Some)
            .map_err(|error| anyhow::anyhow!("{}: {function}: {error}", self.file))
    }
}

fn run(script: &str, function: &str, arguments: &[&Value]) -> mlua::Result<Value> {
    let lua = sandbox()?;
    lua.load(script).exec()?;
    let function: Function = lua.globals().get(function)?;
    let arguments =
        arguments.iter().map(|argument| to_lua(&lua, argument)).collect::<mlua::Result<mlua::Variadic<_>>>()?;
    let result: LuaValue = function.call(arguments)?;
    from_lua(&result, &mut Vec::new())
}

fn sandbox() -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS, LuaOptions::default())?;
    let globals = lua.globals();
    let disable = |table: &Table, names: &[&'static str]| -> mlua::Result<()> {
        for &name in names {
            let error = lua.create_function(move |_, ()| -> mlua::Result<()> {
                Err(mlua::Error::RuntimeError(format!("{name} is disabled")))
            })?;
            table.set(name, error)?;
        }
        Ok(())
    };
    disable(&globals, &DISABLED)?;
    disable(&globals.get("string")?, &DISABLED_OF_STRING)?;
    let os: Table = globals.get("os")?;
    for pair in os.clone().pairs::<String, LuaValue>() {
        let (name, _) = pair?;
        if name != "time" && name != "date" {
            os.set(name, LuaValue::Nil)?;
        }
    }
    lua.set_hook(HookTriggers::new().every_nth_instruction(MAX_INSTRUCTIONS), |_, _| -> mlua::Result<VmState> {
        Err(mlua::Error::RuntimeError("the script takes too long".to_owned()))
    })?;
    Ok(lua)
}

/// Converts JSON as Karmada does: without nulls.
fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    Ok(match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(flag) => LuaValue::Boolean(*flag),
        Value::Number(number) => LuaValue::Number(number.as_f64().unwrap_or_default()),
        Value::String(text) => LuaValue::String(lua.create_string(text)?),
        Value::Array(items) => {
            let table = lua.create_table()?;
            for (index, item) in items.iter().enumerate() {
                table.set(index + 1, to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Object(fields) => {
            let table = lua.create_table()?;
            for (key, field) in fields {
                table.set(key.as_str(), to_lua(lua, field)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// Converts back to JSON as Karmada does: empty tables are dropped; tables that contain themselves or have mixed keys
/// are errors.
fn from_lua(value: &LuaValue, above: &mut Vec<*const std::ffi::c_void>) -> mlua::Result<Value> {
    let error = |text: &str| mlua::Error::RuntimeError(text.to_owned());
    Ok(match value {
        LuaValue::Nil => Value::Null,
        LuaValue::Boolean(flag) => Value::Bool(*flag),
        LuaValue::Integer(number) => Value::from(*number),
        LuaValue::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => json!(*number as i64),
        LuaValue::Number(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        LuaValue::String(text) => Value::from(text.to_string_lossy()),
        LuaValue::Table(table) => {
            if above.contains(&table.to_pointer()) {
                return Err(error("cannot encode recursively nested tables"));
            }
            above.push(table.to_pointer());
            let mut fields = Map::new();
            let mut items = Vec::new();
            for pair in table.clone().pairs::<LuaValue, LuaValue>() {
                let (key, field) = pair?;
                let field = from_lua(&field, above)?;
                match key {
                    LuaValue::Integer(_) | LuaValue::Number(_) => items.push(field),
                    LuaValue::String(key) if field != json!({}) && field != json!([]) => {
                        drop(fields.insert(key.to_string_lossy(), field));
                    }
                    LuaValue::String(_) => {}
                    _ => return Err(error("a key is neither a string nor a number")),
                }
            }
            above.pop();
            match (fields.is_empty(), items.is_empty()) {
                (false, false) => return Err(error("a table has mixed keys")),
                (true, false) => Value::from(items),
                _ => Value::Object(fields),
            }
        }
        _ => return Err(error("a value is neither data nor a table")),
    })
}
