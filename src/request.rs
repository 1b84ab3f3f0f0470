//! The admission request.

use std::borrow::Cow;

use serde_json::Value;
use thiserror::Error;

use crate::json::{self, Document, Fields, JsonError, Scanner};
use crate::object_reference::ObjectReference;

/// Why a request can't be read.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The payload is not JSON, or not an object with the request's fields.
    #[error("cannot read the admission request")]
    Request(#[source] JsonError),
    /// `object` or `oldObject` can't be read (nested too deeply, say).
    #[error("cannot read `request.{field}`")]
    Object {
        /// `object` or `oldObject`.
        field: &'static str,
        /// The parser's error.
        #[source]
        cause: JsonError,
    },
}

impl RequestError {
    pub(crate) fn object(cause: JsonError) -> Self {
        Self::Object { field: "object", cause }
    }
}

/// Group, version and kind of the object.
#[derive(Debug, Default)]
pub struct GroupVersionKind<'a> {
    /// Empty for the core group.
    pub group: Cow<'a, str>,
    /// API version without the group.
    pub version: Cow<'a, str>,
    /// PascalCase.
    pub kind: Cow<'a, str>,
}

/// An AdmissionRequest (`admission.k8s.io/v1`) in the engine's JSON form. Objects stay text until a stage reads them:
/// most requests do not concern this policy.
#[derive(Debug, Default)]
pub struct Request<'a> {
    /// The kind as sent to the webhook.
    pub kind: GroupVersionKind<'a>,
    /// Empty for the object itself, else `status`, `scale`, …
    pub sub_resource: Cow<'a, str>,
    /// Empty on a CREATE with `generateName`.
    pub name: Cow<'a, str>,
    /// Empty for cluster-scoped kinds.
    pub namespace: Cow<'a, str>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: Cow<'a, str>,
    object: Option<&'a str>,
    old_object: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// The request in `json`.
    ///
    /// # Errors
    /// [`RequestError::Request`]. A missing or null field is not an error: it is empty.
    pub fn from_json(json: &'a str) -> Result<Self, RequestError> {
        let mut scanner = Scanner::of_any_depth(json);
        let request = Self::read(&mut scanner).and_then(|request| scanner.end().map(|()| request));
        request.map_err(RequestError::Request)
    }

    pub(crate) fn read(scanner: &mut Scanner<'a>) -> Result<Self, JsonError> {
        let mut request = Self::default();
        scanner.members(|scanner, member| {
            match member.key.as_ref() {
                "kind" if scanner.peek() == Some(b'{') => scanner.members(|scanner, member| {
                    match member.key.as_ref() {
                        "group" => request.kind.group = text(scanner)?,
                        "version" => request.kind.version = text(scanner)?,
                        "kind" => request.kind.kind = text(scanner)?,
                        _ => drop(scanner.value()?),
                    }
                    Ok(())
                })?,
                "kind" => drop(text(scanner)?),
                "subResource" | "sub_resource" => request.sub_resource = text(scanner)?,
                "name" => request.name = text(scanner)?,
                "namespace" => request.namespace = text(scanner)?,
                "operation" => request.operation = text(scanner)?,
                "object" => request.object = Some(scanner.value()?),
                "oldObject" | "old_object" => request.old_object = Some(scanner.value()?),
                _ => drop(scanner.value()?),
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Whether this is a CREATE or UPDATE of an object itself (not of a subresource).
    pub fn is_write(&self) -> bool {
        matches!(self.operation.as_ref(), "CREATE" | "UPDATE") && self.sub_resource.is_empty()
    }

    /// Whether this is a CREATE.
    pub fn is_create(&self) -> bool {
        self.operation == "CREATE"
    }

    /// Whether the object is being deleted. Such objects are never changed nor denied, so that their finalizers can be
    /// removed.
    pub(crate) fn is_terminating(&self) -> bool {
        let Some(object) = self.object else { return false };
        let mut is_terminating = false;
        let metadata = Scanner::of_any_depth(object).members(|scanner, member| {
            if member.key == "metadata" && scanner.peek() == Some(b'{') {
                scanner.members(|scanner, member| {
                    is_terminating |= member.key == "deletionTimestamp" && scanner.peek() != Some(b'n');
                    scanner.value().map(drop)
                })
            } else {
                scanner.value().map(drop)
            }
        });
        // Errors after the metadata do not matter.
        drop(metadata);
        is_terminating
    }

    /// These `fields` of the object that the request wants to store; `None` where there is no object.
    ///
    /// # Errors
    /// [`RequestError::Object`].
    pub fn object(&self, fields: Fields<'a>) -> Result<Option<Document<'a>>, RequestError> {
        let Some(text) = object_text(self.object) else { return Ok(None) };
        Document::read(text, fields).map(Some).map_err(RequestError::object)
    }

    /// These `fields` of the stored object; `None` on a CREATE, whatever the request says.
    ///
    /// # Errors
    /// [`RequestError::Object`].
    pub fn old_object(&self, fields: &Fields<'_>) -> Result<Option<Value>, RequestError> {
        let Some(text) = object_text(self.old_object).filter(|_| !self.is_create()) else { return Ok(None) };
        json::read(text, fields).map(Some).map_err(|cause| RequestError::Object { field: "oldObject", cause })
    }

    /// Kind and name of the object.
    pub fn reference(&self) -> ObjectReference<'_> {
        let GroupVersionKind { group, kind, .. } = &self.kind;
        ObjectReference { group, kind, namespace: &self.namespace, name: &self.name }
    }
}

/// The request and the text of the settings in an engine's payload; without settings, `null`.
///
/// # Errors
/// [`JsonError`].
pub(crate) fn read_payload(payload: &str) -> Result<(Request<'_>, &str), JsonError> {
    let (mut request, mut settings) = (None, "null");
    let mut scanner = Scanner::of_any_depth(payload);
    scanner.members(|scanner, member| {
        match member.key.as_ref() {
            "request" => request = Some(Request::read(scanner)?),
            "settings" => settings = scanner.value()?,
            _ => drop(scanner.value()?),
        }
        Ok(())
    })?;
    scanner.end()?;
    Ok((request.ok_or(JsonError::Missing("request"))?, settings))
}

/// The text, if it is that of an object.
fn object_text(text: Option<&str>) -> Option<&str> {
    text.filter(|text| text.starts_with('{'))
}

/// A string; null is empty.
fn text<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, str>, JsonError> {
    if scanner.peek() == Some(b'n') { scanner.value().map(|_| Cow::default()) } else { scanner.string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_null_fields_are_empty() {
        for json in ["{}", r#"{"kind":null,"operation":null,"object":null,"name":null}"#] {
            let request = Request::from_json(json).unwrap();
            assert_eq!(request.kind.kind, "");
            assert!(!request.is_write());
            assert!(request.object(Fields::whole()).unwrap().is_none());
        }
    }

    #[test]
    fn both_spellings_of_the_engines() {
        let request =
            Request::from_json(r#"{"operation":"UPDATE","sub_resource":"status","old_object":{"a":1}}"#).unwrap();
        assert_eq!(request.sub_resource, "status");
        assert!(request.old_object(&Fields::whole()).unwrap().is_some());
    }

    #[test]
    fn a_create_has_no_stored_object() {
        let request = Request::from_json(r#"{"operation":"CREATE","oldObject":{"a":1}}"#).unwrap();
        assert!(request.old_object(&Fields::whole()).unwrap().is_none());
    }
}
