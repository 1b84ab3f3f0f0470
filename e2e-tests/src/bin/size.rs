//! Prints the size of the module, and what each crate costs in it.
//!
//! Usage: `size MODULE NAMED_MODULE`

use std::fs;

use anyhow::{Context, Result, bail};
use e2e_tests::size::by_crate;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, named] = arguments.as_slice() else {
        bail!("usage: size MODULE NAMED_MODULE");
    };
    println!("{module}: {} bytes", fs::metadata(module).with_context(|| module.clone())?.len());
    let sizes = by_crate(&fs::read(named).with_context(|| named.clone())?)?;
    let mut sizes: Vec<(String, usize)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    for (name, size) in sizes {
        println!("{size:9}  {name}");
    }
    Ok(())
}
