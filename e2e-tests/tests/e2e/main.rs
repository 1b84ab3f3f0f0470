//! The policy, core and module, at its edge: requests in, verdicts and patches out. One executable, since each that links the
//! engine takes seconds to build.

mod cases;
mod documents;
mod examples;
mod feed;
mod flink_checkpoints;
mod hostile_input;
mod install;
mod interpreter;
mod interpreters;
mod kwctl;
mod lint;
mod match_conditions;
mod module;
mod preserve;
mod recordings;
mod rehearsal;
mod restore;
mod restore_in_works;
