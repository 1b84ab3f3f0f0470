//! `playground-bindgen MODULE FOLDER`: writes the JavaScript around the module, and the module without the descriptions
//! of its functions, into the folder.

use std::path::PathBuf;

use anyhow::{Context, Result};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = "usage: playground-bindgen MODULE FOLDER";
    let (module, folder) = (arguments.next().context(usage)?, arguments.next().context(usage)?);
    Bindgen::new().input_path(module).out_name("core").web(true)?.typescript(true).generate(folder)
}
