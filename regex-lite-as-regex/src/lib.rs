//! The interface of the crate `regex`, as far as it is used here, on the engine of `regex-lite`.
pub use regex_lite::*;
