//! Reads only the needed parts of JSON text, and writes only what changes into it.
//!
//! Admission changes a few places of a large object. [`Document`] reads the parts of an object that [`Fields`] name
//! into a [`serde_json::Value`], steps over the others, and writes the changes of that value into the text. What did
//! not change keeps its bytes, including the digits of numbers and the order of keys.

mod document;
mod fields;
mod scan;

use thiserror::Error;

pub use document::{Document, NotRead, read};
pub use fields::Fields;
pub(crate) use scan::Scanner;

/// Why JSON text can't be read or edited.
#[derive(Debug, Error)]
pub enum JsonError {
    /// A value, a key or a separator is missing.
    #[error("expected {expected} at byte {at}")]
    Syntax {
        /// Where, in bytes from 0.
        at: usize,
        /// What is expected there.
        expected: &'static str,
    },
    /// Lists and objects are nested more than 127 deep.
    #[error("nested more than 127 levels deep")]
    TooDeep,
    /// A scalar, or a part that is read as a whole, is not valid.
    #[error(transparent)]
    Value(serde_json::Error),
    /// A required member is missing.
    #[error("there is no `{0}`")]
    Missing(&'static str),
    /// The text differs from what was read.
    #[error("the document changed since it was read")]
    Changed,
}
