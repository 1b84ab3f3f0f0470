//! `stateful-failover`.

fn main() -> std::process::ExitCode {
    stateful_failover_cli::main()
}
