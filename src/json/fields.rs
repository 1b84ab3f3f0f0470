//! Selects the parts of a JSON document that are read.

use std::collections::BTreeMap;

use serde_json::Value;

/// The parts of a value that are read.
///
/// An object that is read in part still has all of its members: scalars with their values, and lists and objects that
/// are not read as empty ones. So no stored member appears to be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    whole: bool,
    members: BTreeMap<&'a str, Box<Fields<'a>>>,
    /// The fields of every item of a list, and of every member of an object that is not in `members`.
    each: Option<Box<Fields<'a>>>,
    /// Whether members that are not read are left out.
    is_exact: bool,
    /// The items of a list that are read as a whole: those whose member of this name has one of these values.
    whole_items: Option<(&'static str, Vec<String>)>,
}

static WHOLE: Fields<'static> =
    Fields { whole: true, members: BTreeMap::new(), each: None, is_exact: false, whole_items: None };

impl<'a> Fields<'a> {
    /// The whole value.
    pub fn whole() -> Self {
        WHOLE.clone()
    }

    /// The parts at these paths, each as a whole. A path has the names of members with dots between them, as in the
    /// field masks of Kubewarden's lookups; in a list, a name stands for that member of every item.
    pub fn of(paths: &[&'a str]) -> Self {
        let mut fields = Self::default();
        paths.iter().for_each(|path| fields.at(path).set_whole());
        fields
    }

    /// The fields of the value at the path, mutable.
    pub fn at(&mut self, path: &'a str) -> &mut Self {
        path.split('.').fold(self, Self::member)
    }

    /// The fields of the member `name`, mutable.
    pub fn member(&mut self, name: &'a str) -> &mut Self {
        self.members.entry(name).or_default()
    }

    /// The fields of every item of a list, and of every member of an object that is not named, mutable.
    pub fn each(&mut self) -> &mut Self {
        self.each.get_or_insert_with(Box::default)
    }

    /// Selects the whole value.
    pub fn set_whole(&mut self) {
        self.whole = true;
    }

    /// Selects as a whole those items of a list whose member `key` is one of `values`.
    pub fn set_whole_items(&mut self, key: &'static str, values: Vec<String>) {
        self.whole_items = Some((key, values));
    }

    /// Leaves out the members of an object that are not selected, without empty ones in their place. The object can't
    /// be edited then.
    pub fn set_exact(&mut self) {
        self.is_exact = true;
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether an item of a list has to be read as a whole, judging by the parts that were read.
    pub(super) fn is_whole_item(&self, item: &Value) -> bool {
        self.whole_items.as_ref().is_some_and(|(key, values)| {
            item.get(key).and_then(Value::as_str).is_some_and(|found| values.iter().any(|value| value == found))
        })
    }

    pub(super) fn has_whole_items(&self) -> bool {
        self.whole_items.is_some()
    }

    /// The fields of a member; `None` where it is not read.
    pub(super) fn of_member(&self, name: &str) -> Option<&Self> {
        match (self.members.get(name).map(Box::as_ref), self.of_each()) {
            _ if self.whole => Some(&WHOLE),
            (Some(_), Some(_)) => Some(&WHOLE),
            (named, each) => named.or(each),
        }
    }

    /// The fields of an item of a list; `None` where it is not read.
    pub(super) fn of_item(&self) -> Option<&Self> {
        match (self.whole, self.members.is_empty(), self.of_each()) {
            (true, ..) => Some(&WHOLE),
            // A name in a list stands for that member of every item.
            (_, false, None) => Some(self),
            (_, false, Some(_)) => Some(&WHOLE),
            (_, true, each) => each,
        }
    }

    fn of_each(&self) -> Option<&Self> {
        self.each.as_deref()
    }
}
