//! Runs the module's `wapc_init` and writes a module that starts in the resulting state and has no `wapc_init`.
//!
//! The policy server creates an instance for every request, and most of that time is spent in `wapc_init`, which
//! registers the same three functions each time.
//!
//! Usage: `preinitialize MODULE OUTPUT`

use std::fs;

use anyhow::{Context, Result, anyhow, bail};
use wasmtime_provider::wasmtime::{Config, Engine, Instance, Linker, Module, OptLevel, Store, Val};
use wasmtime_wizer::{InstanceState, SnapshotVal, ValType, Wizer};

const INIT: &str = "wapc_init";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, output] = arguments.as_slice() else {
        bail!("usage: preinitialize MODULE OUTPUT");
    };
    let module = fs::read(module).with_context(|| module.clone())?;
    fs::write(output, preinitialize(&module).map_err(|error| anyhow!("{error:?}"))?).with_context(|| output.clone())
}

fn preinitialize(module: &[u8]) -> wasmtime_provider::wasmtime::Result<Vec<u8>> {
    let mut wizer = Wizer::new();
    wizer.init_func(INIT);
    let (context, instrumented) = wizer.instrument(module)?;
    // Almost nothing of the compiled code is run.
    let engine = Engine::new(Config::new().cranelift_opt_level(OptLevel::None))?;
    let compiled = Module::new(&engine, &instrumented)?;
    let mut linker = Linker::new(&engine);
    linker.define_unknown_imports_as_traps(&compiled)?;
    let mut store = Store::new(&engine, ());
    let instance = linker.instantiate(&mut store, &compiled)?;
    instance.get_typed_func::<(), ()>(&mut store, INIT)?.call(&mut store, ())?;
    pollster::block_on(wizer.snapshot(&context, &mut Initialized { store, instance }))
}

/// The instance after its initialization.
struct Initialized {
    store: Store<()>,
    instance: Instance,
}

impl InstanceState for Initialized {
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        let global = self.instance.get_global(&mut self.store, name).map(|global| global.get(&mut self.store));
        match global {
            Some(Val::I32(value)) => SnapshotVal::I32(value),
            Some(Val::I64(value)) => SnapshotVal::I64(value),
            Some(Val::F32(bits)) => SnapshotVal::F32(bits),
            Some(Val::F64(bits)) => SnapshotVal::F64(bits),
            Some(Val::V128(value)) => SnapshotVal::V128(value.as_u128()),
            other => panic!("global {name} is {other:?}"),
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        let memory = self.instance.get_memory(&mut self.store, name);
        contents(memory.map(|memory| memory.data(&self.store)).unwrap_or_default());
    }
}
