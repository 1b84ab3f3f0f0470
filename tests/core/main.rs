//! Tests of the core: its JSONPath dialects against their sources, and the laws of its stages.

mod differential;
mod failover_model;
mod hostile_fuzz;
mod interpreted_kinds;
mod jsonpath;
mod jsonpath_vectors;
mod model;
mod move_model;
mod restore_laws;
mod settings;
mod workload_model;
