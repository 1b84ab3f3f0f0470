//! Evaluates templates.
//!
//! client-go differs from RFC 9535: a field that no value has is an error, bounds are checked, values of different
//! types can't be compared, and `range` repeats a part of the template. Source: `k8s.io/client-go/util/jsonpath`,
//! `jsonpath.go`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use serde_json::{Number, Value};

use super::print;
use super::template::{Filter, Node, Slice, Step, Template};
use super::{Budget, JsonPathError};
use crate::messages::quote;
use crate::metadata::type_name;

/// A value of the document or of the template, or a placeholder where a `range` has no values.
type Item<'a> = Option<Cow<'a, Value>>;

/// A failed evaluation, with the values that it had found before. A filter that only tests for existence uses them.
struct Failure<'a> {
    items: Vec<Item<'a>>,
    error: JsonPathError,
    is_limit: bool,
}

impl<'a> Failure<'a> {
    fn new(items: Vec<Item<'a>>, error: impl Into<String>) -> Self {
        Self { items, error: JsonPathError::Execute(error.into()), is_limit: false }
    }
}

type Evaluated<'a> = Result<Vec<Item<'a>>, Failure<'a>>;

impl Template {
    /// The text, and whether it is the null of a single action's single result.
    pub(super) fn evaluate(&self, document: &Value, budget: &mut Budget) -> Result<(String, bool), JsonPathError> {
        let mut evaluation = Evaluation {
            nodes: &self.nodes,
            budget,
            text: String::new(),
            is_null: false,
            begun: 0,
            open: 0,
            ended: 0,
            last_end: None,
        };
        evaluation.run(0, Some(Cow::Borrowed(document))).map_err(|failure| failure.error)?;
        Ok((evaluation.text, evaluation.is_null && self.nodes.len() == 1))
    }
}

/// The state of one evaluation. The counters are those of client-go, since its treatment of ranges depends on them.
struct Evaluation<'a, 'b> {
    nodes: &'a [Node],
    budget: &'b mut Budget,
    /// The text printed so far.
    text: String,
    /// Whether the last action had a single result, which was null.
    is_null: bool,
    /// Ranges that were found but not evaluated yet.
    begun: usize,
    /// Ranges that are being evaluated.
    open: usize,
    /// Ends that were found but not reached yet.
    ended: usize,
    /// The node that ended a range last.
    last_end: Option<usize>,
}

impl<'a> Evaluation<'a, '_> {
    /// Prints the results of each node from `first` on, up to the end of the current range.
    fn run(&mut self, first: usize, current: Item<'a>) -> Result<(), Failure<'a>> {
        let mut index = first;
        while let Some(node) = self.nodes.get(index) {
            // A range that is not closed repeats everything after it, and so does every range in it.
            self.visit(1)?;
            let items = match node {
                Node::Text(text) => vec![Some(Cow::Borrowed(text))],
                Node::Action(steps) => self.steps(vec![current.clone()], steps)?,
            };
            if self.ended > 0 && self.ended <= self.open {
                self.ended -= 1;
                self.last_end = Some(index);
                break;
            }
            if self.begun > 0 {
                self.begun -= 1;
                self.open += 1;
                if items.is_empty() {
                    // Evaluated once without output, to find its end.
                    let printed = self.text.len();
                    self.run(index + 1, None)?;
                    self.text.truncate(printed);
                }
                for item in items {
                    // Within a range, null is not a value.
                    let item = item.filter(|value| !value.is_null());
                    self.run(index + 1, item)?;
                }
                self.open -= 1;
                index = self.last_end.filter(|&end| end > index).unwrap_or(index) + 1;
                continue;
            }
            self.is_null = matches!(items.as_slice(), [None] | [Some(Cow::Borrowed(Value::Null))]);
            let printed = print::results(items.iter().map(Option::as_deref), &mut self.text, self.budget);
            printed.map_err(|error| Failure { items: Vec::new(), error, is_limit: true })?;
            index += 1;
        }
        Ok(())
    }

    fn steps(&mut self, items: Vec<Item<'a>>, steps: &'a [Step]) -> Evaluated<'a> {
        steps.iter().try_fold(items, |items, step| self.step(items, step))
    }

    fn step(&mut self, items: Vec<Item<'a>>, step: &'a Step) -> Evaluated<'a> {
        self.visit(items.len())?;
        match step {
            Step::Text(text) => Ok(vec![Some(Cow::Borrowed(text))]),
            Step::Literal(value) => Ok(items.iter().map(|_| Some(Cow::Borrowed(value))).collect()),
            Step::Field(name) => field(items, name),
            Step::Wildcard => self.children_of_all(items),
            Step::Slice(slice) => self.slice(items, slice),
            Step::Descend => self.descend(items),
            Step::Union(parts) => self.union(items, parts),
            Step::Filter(filter) => self.filter(items, filter),
            Step::Range => {
                self.begun += 1;
                Ok(items)
            }
            Step::End if self.open > 0 => {
                self.ended += 1;
                Ok(Vec::new())
            }
            Step::End => Err(Failure::new(Vec::new(), "`end` without a `range`")),
            Step::Word(word) => {
                Err(Failure::new(items, format!("unknown keyword {}, expected `range` or `end`", quote(word))))
            }
        }
    }

    fn visit(&mut self, count: usize) -> Result<(), Failure<'a>> {
        self.budget.visit(count).map_err(|error| Failure { items: Vec::new(), error, is_limit: true })
    }

    fn children_of_all(&mut self, items: Vec<Item<'a>>) -> Evaluated<'a> {
        let mut found = Vec::new();
        for value in items.into_iter().flatten() {
            found.extend(self.children(value)?);
        }
        Ok(found)
    }

    /// The entries of a list, the values of a map, the bytes of a string.
    fn children(&mut self, value: Cow<'a, Value>) -> Evaluated<'a> {
        if let Value::String(text) = value.as_ref() {
            self.visit(text.len())?;
            return Ok(text.bytes().map(|byte| Some(Cow::Owned(Value::from(byte)))).collect());
        }
        let children = entries(value);
        self.visit(children.len())?;
        Ok(children)
    }

    fn descend(&mut self, items: Vec<Item<'a>>) -> Evaluated<'a> {
        let mut found = Vec::new();
        // Depth first, in the order of the document. Only values with entries are found.
        let mut to_do: Vec<Item<'a>> = items.into_iter().rev().collect();
        while let Some(item) = to_do.pop() {
            let Some(value) = item else { continue };
            let children = self.children(value.clone())?;
            if !children.is_empty() {
                found.push(Some(value));
                to_do.extend(children.into_iter().rev());
            }
        }
        Ok(found)
    }

    fn slice(&mut self, items: Vec<Item<'a>>, slice: &Slice) -> Evaluated<'a> {
        let mut found = Vec::new();
        for item in &items {
            let list = match item.as_deref() {
                Some(Value::Null) => continue,
                Some(Value::Array(list)) => list,
                Some(other) => {
                    let error = format!("{} is not a list", type_name(other));
                    return Err(Failure::new(items, error));
                }
                None => return Err(Failure::new(items, "there is no list")),
            };
            match slice.bounds(list.len()) {
                Ok(None) => return Ok(found),
                Ok(Some((range, step))) => {
                    let entries = item.clone().map(entries).unwrap_or_default();
                    let selected = entries.into_iter().take(range.end).skip(range.start).step_by(step);
                    let before = found.len();
                    found.extend(selected);
                    self.visit(found.len() - before)?;
                }
                Err(error) => return Err(Failure::new(items, error)),
            }
        }
        Ok(found)
    }

    fn union(&mut self, items: Vec<Item<'a>>, parts: &'a [Vec<Step>]) -> Evaluated<'a> {
        let mut found = Vec::new();
        for part in parts {
            match self.steps(items.clone(), part) {
                Ok(more) => found.extend(more),
                Err(failure) => return Err(Failure { items, ..failure }),
            }
        }
        Ok(found)
    }

    fn filter(&mut self, items: Vec<Item<'a>>, filter: &'a Filter) -> Evaluated<'a> {
        let mut found = Vec::new();
        for item in &items {
            let entries = match item {
                Some(list) if list.is_array() => entries(list.clone()),
                other => {
                    let what = other.as_deref().map_or("nothing", type_name);
                    let error = format!("{what} is not a list and can't be filtered");
                    return Err(Failure::new(items, error));
                }
            };
            self.visit(entries.len())?;
            for entry in entries {
                match self.holds(entry.clone(), filter) {
                    Ok(true) => found.push(entry),
                    Ok(false) => {}
                    Err(failure) => return Err(Failure { items, ..failure }),
                }
            }
        }
        Ok(found)
    }

    fn holds(&mut self, entry: Item<'a>, filter: &'a Filter) -> Result<bool, Failure<'a>> {
        match filter {
            Filter::Exists(steps) => match self.steps(vec![entry], steps) {
                Ok(items) => Ok(!items.is_empty()),
                Err(failure) if failure.is_limit => Err(failure),
                Err(failure) => Ok(!failure.items.is_empty()),
            },
            Filter::Compare { left, operator, right } => {
                let Some(left) = self.only(entry.clone(), left)? else {
                    return Ok(false);
                };
                let Some(right) = self.only(entry, right)? else {
                    return Ok(false);
                };
                compare(&left, operator, &right).map_err(|error| Failure::new(Vec::new(), error))
            }
        }
    }

    /// The one value of a comparison's side; `None` where there is none.
    fn only(&mut self, entry: Item<'a>, steps: &'a [Step]) -> Result<Option<Cow<'a, Value>>, Failure<'a>> {
        let mut items = self.steps(vec![entry], steps)?;
        match items.len() {
            0 => Ok(None),
            1 => Ok(Some(items.pop().flatten().unwrap_or(Cow::Owned(Value::Null)))),
            _ => Err(Failure::new(items, "only single values can be compared")),
        }
    }
}

impl Slice {
    /// The indexes of the slice in a list of `length` entries and the step between them, `None` where it is empty.
    fn bounds(&self, length: usize) -> Result<Option<(Range<usize>, usize)>, String> {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let from_end = |bound: i64| {
            if bound < 0 { bound.saturating_add(length) } else { bound }
        };
        let start = self.start.unwrap_or(0);
        let end = match (self.is_index, self.end) {
            (true, _) => start.saturating_add(1),
            (false, end) => end.unwrap_or(length),
        };
        let end = if self.is_index && end == 0 { length } else { from_end(end) };
        let start = from_end(start);
        if start == end {
            return Ok(None);
        }
        let out_of_bounds = |index: i64| Err(format!("index {index} is out of bounds, the list has {length} entries"));
        if start >= length || start < 0 {
            return out_of_bounds(start);
        }
        if end > length || end < 0 {
            return out_of_bounds(end.saturating_sub(1));
        }
        if start > end {
            return Err(format!("the slice starts at {start}, after its end {end}"));
        }
        match self.step {
            Some(step) if step <= 0 => Err("the step of a slice must be greater than 0".to_owned()),
            step => {
                // All three were checked to be positive and not greater than a length.
                let index = |index: i64| usize::try_from(index).unwrap_or(usize::MAX);
                Ok(Some((index(start)..index(end), index(step.unwrap_or(1)))))
            }
        }
    }
}

/// The field of each value that has it; one of them must.
fn field<'a>(items: Vec<Item<'a>>, name: &str) -> Evaluated<'a> {
    if items.is_empty() {
        return Ok(items);
    }
    let fields = items.into_iter().flatten().filter_map(|value| match value {
        Cow::Borrowed(Value::Object(fields)) => fields.get(name),
        // The evaluation itself creates scalars only.
        Cow::Borrowed(_) | Cow::Owned(_) => None,
    });
    let found: Vec<Item<'a>> = fields.map(|field| Some(Cow::Borrowed(field))).collect();
    if found.is_empty() {
        return Err(Failure::new(found, format!("{} is not found", quote(name))));
    }
    Ok(found)
}

/// The entries of a list or the values of a map.
fn entries(value: Cow<'_, Value>) -> Vec<Item<'_>> {
    match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(|item| Some(Cow::Borrowed(item))).collect(),
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(|field| Some(Cow::Borrowed(field))).collect(),
        Cow::Borrowed(_) | Cow::Owned(_) => Vec::new(),
    }
}

/// A value that can be compared. Source: `client-go/third_party/forked/golang/template/funcs.go`, `basicKind`.
enum Basic<'a> {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(&'a str),
}

impl<'a> Basic<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(Self::Bool(*flag)),
            Value::Number(number) => Self::number(number),
            Value::String(text) => Some(Self::Text(text)),
            _ => None,
        }
    }

    /// kubectl decodes numbers that fit into 64 bits as integers and all others as floats.
    fn number(number: &Number) -> Option<Self> {
        if print::is_integer(number)
            && let Some(integer) = number.as_i64()
        {
            return Some(Self::Integer(integer));
        }
        number.as_f64().map(Self::Float)
    }
}

fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, String> {
    let basic = |value| Basic::of(value).ok_or_else(|| format!("{} can't be compared", type_name(value)));
    let is_equality = matches!(operator, "==" | "!=");
    if !is_equality && !matches!(operator, "<" | ">" | "<=" | ">=") {
        return Err(format!("{} is not an operator of filters", quote(operator)));
    }
    let ordering = match (basic(left)?, basic(right)?) {
        (Basic::Bool(left), Basic::Bool(right)) if is_equality => Some(left.cmp(&right)),
        (Basic::Bool(_), Basic::Bool(_)) => return Err("booleans have no order".to_owned()),
        (Basic::Integer(left), Basic::Integer(right)) => Some(left.cmp(&right)),
        (Basic::Float(left), Basic::Float(right)) => left.partial_cmp(&right),
        (Basic::Text(left), Basic::Text(right)) => Some(left.cmp(right)),
        _ => {
            return Err(format!("incompatible types for comparison: {} and {}", described(left), described(right)));
        }
    };
    Ok(match operator {
        "==" => ordering == Some(Ordering::Equal),
        "!=" => ordering != Some(Ordering::Equal),
        "<" => ordering == Some(Ordering::Less),
        ">" => ordering == Some(Ordering::Greater),
        "<=" => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        _ => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn described(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if print::is_integer(number) => "an integer",
        Value::Number(_) => "a number with a fraction or exponent",
        other => type_name(other),
    }
}
