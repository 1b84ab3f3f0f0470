//! Tests of the policy, as native core and as module, through its interface: requests, verdicts and patches. They are
//! one executable, since each one that links the engine takes seconds to build.

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
