//! The admission request, as far as the policy reads it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::json;
use crate::verdict::describe;

/// Why the request could not be read.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The payload is no JSON, or no object with the request's fields.
    #[error("cannot read the admission request")]
    Request(#[source] serde_json::Error),
    /// `object` or `oldObject` can't be read (nested too deeply, say).
    #[error("cannot read `request.{field}`")]
    Object {
        /// `object` or `oldObject`.
        field: &'static str,
        /// What the parser says.
        #[source]
        cause: serde_json::Error,
    },
}

/// Group, version and kind of the object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind<'a> {
    /// Empty for the core group.
    #[serde(borrow, deserialize_with = "text")]
    pub group: Cow<'a, str>,
    /// API version without the group.
    #[serde(borrow, deserialize_with = "text")]
    pub version: Cow<'a, str>,
    /// PascalCase.
    #[serde(borrow, deserialize_with = "text")]
    pub kind: Cow<'a, str>,
}

/// An AdmissionRequest (`admission.k8s.io/v1`) in the engine's JSON form. Objects stay text until a stage reads them:
/// most requests are none of this policy's business.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request<'a> {
    /// The kind as sent to the webhook.
    #[serde(borrow, deserialize_with = "nullable")]
    pub kind: GroupVersionKind<'a>,
    /// Empty for the object itself, else `status`, `scale`, …
    #[serde(borrow, alias = "sub_resource", deserialize_with = "text")]
    pub sub_resource: Cow<'a, str>,
    /// Empty on a CREATE with `generateName`.
    #[serde(borrow, deserialize_with = "text")]
    pub name: Cow<'a, str>,
    /// Empty for cluster-scoped kinds.
    #[serde(borrow, deserialize_with = "text")]
    pub namespace: Cow<'a, str>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[serde(borrow, deserialize_with = "text")]
    pub operation: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow, alias = "old_object")]
    old_object: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// The request in `json`.
    ///
    /// # Errors
    /// [`RequestError::Request`]. A missing or null field is no error, it is empty.
    pub fn from_json(json: &'a str) -> Result<Self, RequestError> {
        serde_json::from_str(json).map_err(RequestError::Request)
    }

    /// Whether this is a CREATE or UPDATE of an object itself (not of a subresource).
    pub fn is_write(&self) -> bool {
        matches!(self.operation.as_ref(), "CREATE" | "UPDATE") && self.sub_resource.is_empty()
    }

    /// Whether this is a CREATE.
    pub fn is_create(&self) -> bool {
        self.operation == "CREATE"
    }

    /// Whether the object is being deleted: its finalizers must be able to go, so nothing may touch it any more, and
    /// whatever else is in it is not even parsed.
    pub fn is_terminating(&self) -> bool {
        // Maps, since a list would do for a struct.
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: BTreeMap<String, Option<IgnoredAny>>,
        }
        let object = self.object.filter(|object| object.get().starts_with('{'));
        let object = object.and_then(|object| serde_json::from_str::<Object>(object.get()).ok());
        object.is_some_and(|object| matches!(object.metadata.get("deletionTimestamp"), Some(Some(_))))
    }

    /// The object as it shall be stored; `None` where the request has none.
    ///
    /// # Errors
    /// [`RequestError::Object`].
    pub fn object(&self) -> Result<Option<Value>, RequestError> {
        parse(self.object, "object")
    }

    /// The stored object; `None` on a CREATE, whatever the request claims.
    ///
    /// # Errors
    /// [`RequestError::Object`].
    pub fn old_object(&self) -> Result<Option<Value>, RequestError> {
        if self.is_create() { Ok(None) } else { parse(self.old_object, "oldObject") }
    }

    /// Kind and name for messages: ``Work `karmada-es-member1/web` ``.
    pub fn describe(&self) -> String {
        let name = if self.name.is_empty() { "(unnamed)" } else { self.name.as_ref() };
        describe(&self.kind.kind, &self.namespace, name)
    }
}

fn parse(raw: Option<&RawValue>, field: &'static str) -> Result<Option<Value>, RequestError> {
    let Some(raw) = raw else { return Ok(None) };
    match json::parse(raw.get()) {
        Ok(Value::Null) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(cause) => Err(RequestError::Object { field, cause }),
    }
}

/// A string, borrowed where it has no escapes; null is empty.
fn text<'de: 'a, 'a, D>(deserializer: D) -> Result<Cow<'a, str>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Option::<Text<'de>>::deserialize(deserializer)?.map(|text| text.0).unwrap_or_default())
}

fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
            assert_eq!(request.object().unwrap(), None);
        }
    }

    #[test]
    fn both_spellings_of_the_engines() {
        let request =
            Request::from_json(r#"{"operation":"UPDATE","sub_resource":"status","old_object":{"a":1}}"#).unwrap();
        assert_eq!(request.sub_resource, "status");
        assert!(request.old_object().unwrap().is_some());
    }

    #[test]
    fn a_create_has_no_stored_object() {
        let request = Request::from_json(r#"{"operation":"CREATE","oldObject":{"a":1}}"#).unwrap();
        assert_eq!(request.old_object().unwrap(), None);
    }
}
