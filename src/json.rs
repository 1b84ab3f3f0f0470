//! JSON text, of which only what is needed is read, and of which only what changes is written.
//!
//! Admission changes a few places of a large object. [`Document`] reads the parts of an object that [`Fields`] name into a
//! [`serde_json::Value`], steps over the others, and writes the object with changes to that value into its text: what did not change keeps its
//! bytes, the digits of its numbers and the order of its keys included.

mod document;
mod fields;
mod scan;

use thiserror::Error;

pub use document::{Document, NotRead, read};
pub use fields::Fields;
pub(crate) use scan::Scanner;

/// Text that is not JSON, or that can't be read.
#[derive(Debug, Error)]
pub enum JsonError {
    /// Something else stands where a value, a key or a separator has to.
    #[error("expected {expected} at byte {at}")]
    Syntax {
        /// Where, in bytes from 0.
        at: usize,
        /// What has to stand there.
        expected: &'static str,
    },
    /// Lists and objects in more than 127 others.
    #[error("nested more than 127 levels deep")]
    TooDeep,
    /// A scalar, or a part that is read as a whole, is not valid.
    #[error(transparent)]
    Value(serde_json::Error),
    /// A member that has to be there is not.
    #[error("there is no `{0}`")]
    Missing(&'static str),
    /// The text is not what was read.
    #[error("the document changed since it was read")]
    Changed,
}
