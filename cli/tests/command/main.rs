//! The command, against an API server on loopback that serves recorded objects.

mod files;
mod history;
mod rehearse;
mod server;
