//! Which parts of a JSON document are read.

use std::collections::BTreeMap;

use serde_json::Value;

/// Which parts of a value are read.
///
/// Of an object of which only parts are read, all members are there: its scalars as they are, and the lists and objects that are
/// not read as empty ones. So nothing that is stored there looks as if it were absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    whole: bool,
    members: BTreeMap<&'a str, Box<Fields<'a>>>,
    /// Of every item of a list, and of every member of an object that `members` does not have.
    each: Option<Box<Fields<'a>>>,
    /// Whether members that are not read are left out.
    is_exact: bool,
    /// The items of a list that are read as a whole: those of which this member is one of these values.
    whole_items: Option<(&'static str, Vec<String>)>,
}

static WHOLE: Fields<'static> =
    Fields { whole: true, members: BTreeMap::new(), each: None, is_exact: false, whole_items: None };

impl<'a> Fields<'a> {
    /// All of the value.
    pub fn whole() -> Self {
        WHOLE.clone()
    }

    /// The parts that these paths lead to, each as a whole: names of members with dots between them, as in the field masks of
    /// Kubewarden's lookups. In a list, a name is that of a member of every item.
    pub fn of(paths: &[&'a str]) -> Self {
        let mut fields = Self::default();
        paths.iter().for_each(|path| fields.at(path).set_whole());
        fields
    }

    /// What is read of the value that the path of names leads to, to be added to.
    pub fn at(&mut self, path: &'a str) -> &mut Self {
        path.split('.').fold(self, Self::member)
    }

    /// What is read of the member `name`, to be added to.
    pub fn member(&mut self, name: &'a str) -> &mut Self {
        self.members.entry(name).or_default()
    }

    /// What is read of every item of a list, and of every member of an object that is not named, to be added to.
    pub fn each(&mut self) -> &mut Self {
        self.each.get_or_insert_with(Box::default)
    }

    /// Makes it all of the value.
    pub fn set_whole(&mut self) {
        self.whole = true;
    }

    /// Reads those items of a list as a whole of which the member `key` is one of `values`.
    pub fn set_whole_items(&mut self, key: &'static str, values: Vec<String>) {
        self.whole_items = Some((key, values));
    }

    /// Leaves out the members of an object that are not read, in place of saying that they are there. Nothing of it may be edited.
    pub fn set_exact(&mut self) {
        self.is_exact = true;
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether an item of a list, of which parts were read, is read as a whole.
    pub(super) fn is_whole_item(&self, item: &Value) -> bool {
        self.whole_items.as_ref().is_some_and(|(key, values)| {
            item.get(key).and_then(Value::as_str).is_some_and(|found| values.iter().any(|value| value == found))
        })
    }

    pub(super) fn has_whole_items(&self) -> bool {
        self.whole_items.is_some()
    }

    /// What is read of a member; `None` where it is not read.
    pub(super) fn of_member(&self, name: &str) -> Option<&Self> {
        match (self.members.get(name).map(Box::as_ref), self.of_each()) {
            _ if self.whole => Some(&WHOLE),
            (Some(_), Some(_)) => Some(&WHOLE),
            (named, each) => named.or(each),
        }
    }

    /// What is read of an item of a list; `None` where it is not read.
    pub(super) fn of_item(&self) -> Option<&Self> {
        match (self.whole, self.members.is_empty(), self.of_each()) {
            (true, ..) => Some(&WHOLE),
            // Names lead through lists.
            (_, false, None) => Some(self),
            (_, false, Some(_)) => Some(&WHOLE),
            (_, true, each) => each,
        }
    }

    fn of_each(&self) -> Option<&Self> {
        self.each.as_deref()
    }
}
