//! What each crate costs in the module, read from the build that still has the names of its functions.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use wasmparser::{KnownCustom, Name, Parser, Payload, TypeRef};

/// The name under which everything but code is counted.
pub const DATA: &str = "data";

/// The bytes of each crate in the module. Generic code and code of the standard library is counted for the first other
/// crate in its name, which is mostly the one that uses it.
///
/// # Errors
/// It is not a module, or has no names.
pub fn by_crate(module: &[u8]) -> Result<BTreeMap<String, usize>> {
    let mut names = BTreeMap::new();
    let mut bodies = Vec::new();
    let mut imported = 0;
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.range().len()),
            Payload::DataSection(data) => *sizes.entry(DATA.to_owned()).or_default() += data.range().len(),
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(subsections) = section.as_known() {
                    for subsection in subsections {
                        let Name::Function(functions) = subsection? else { continue };
                        for function in functions {
                            let function = function?;
                            names.insert(function.index, format!("{:#}", rustc_demangle::demangle(function.name)));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for (index, size) in (imported..).zip(bodies) {
        let name = names.get(&index).with_context(|| format!("function {index} has no name"))?;
        *sizes.entry(crate_of(name).to_owned()).or_default() += size;
    }
    Ok(sizes)
}

/// The crate of a function: the first one in its demangled name that is not part of the standard library.
fn crate_of(name: &str) -> &str {
    let paths = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let mut roots =
        paths.filter_map(|path| path.split_once("::")).map(|(root, _)| root).filter(|root| !root.is_empty());
    roots.find(|root| !matches!(*root, "core" | "alloc" | "std")).unwrap_or("std")
}
