//! `kubectl stateful-failover`: kubectl finds its plugins by their names.

fn main() -> std::process::ExitCode {
    stateful_failover_cli::main()
}
