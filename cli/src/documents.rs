//! Reads YAML files with several documents, folders, and standard input, with the position of each value.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode as _, MarkedYaml, YamlData};
use serde::Deserialize as _;
use serde_json::Value;

use crate::failure::Failure;

/// One document of a file.
#[derive(Debug)]
pub struct Document {
    /// The file, `-` for the standard input.
    pub file: String,
    /// The document.
    pub value: Value,
    places: MarkedYaml<'static>,
}

/// A position in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Document {
    /// The position of the value at a path such as `spec.failover.cluster.statePreservation.rules[0].jsonPath`, or of
    /// its nearest existing parent.
    pub fn place(&self, path: &str) -> Place {
        let mut node = &self.places;
        let mut place = node.span.start;
        for step in path.split(['.', '[']).map(|step| step.trim_end_matches(']')) {
            let below = match &node.data {
                YamlData::Mapping(fields) => fields
                    .iter()
                    .find(|(key, _)| key.data.as_str() == Some(step))
                    .map(|(key, value)| (key.span.start, value)),
                YamlData::Sequence(items) => {
                    step.parse().ok().and_then(|index: usize| items.get(index)).map(|item| (item.span.start, item))
                }
                _ => None,
            };
            let Some((at, below)) = below else { break };
            (place, node) = (at, below);
        }
        Place { line: place.line(), column: place.col() + 1 }
    }
}

/// All documents of the files and of the YAML files in folders, in the order of their names.
///
/// # Errors
/// A file can't be read, or is not YAML.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path)? {
            documents.extend(parse(&file.display().to_string(), &text(&file)?)?);
        }
    }
    Ok(documents)
}

/// The values of all documents.
///
/// # Errors
/// As [`read`].
pub fn values(path: &Path) -> Result<Vec<Value>, Failure> {
    let documents = read(&[path.to_owned()])?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let remedy = "name a file or folder that exists and can be read";
    if path.as_os_str() == "-" || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let entries = fs::read_dir(path).map_err(|error| Failure::file(path, &error, remedy))?;
    for entry in entries {
        let file = entry.map_err(|error| Failure::file(path, &error, remedy))?.path();
        if file.is_dir() {
            files.extend(self::files(&file)?);
        } else if file
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
        {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The text of a file, or of the standard input.
///
/// # Errors
/// It can't be read.
pub fn text(path: &Path) -> Result<String, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    read.map_err(|error| Failure::file(path, &error, "name a file or folder that exists and can be read"))
}

/// The documents in `text`, without empty ones.
///
/// # Errors
/// It is not YAML.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let no_yaml = |error: String| Failure::new(format!("{file}: {error}"), "correct the YAML there");
    let places = MarkedYaml::load_from_str(text).map_err(|error| no_yaml(error.to_string()))?;
    let values = serde_yaml_ng::Deserializer::from_str(text)
        .map(Value::deserialize)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| no_yaml(error.to_string()))?;
    if places.len() != values.len() {
        return Err(no_yaml("its documents can't be told apart".to_owned()));
    }
    let documents = values.into_iter().zip(places).filter(|(value, _)| !value.is_null());
    Ok(documents.map(|(value, places)| Document { file: file.to_owned(), value, places }).collect())
}
