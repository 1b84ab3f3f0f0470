//! RFC 9535 queries, as far as `jsonpath-rust` supports them, within limits.

use jsonpath_rust::parser::model::{
    Comparable, Filter, FilterAtom, FnArg, JpQuery, Segment, Selector, Test, TestFunction,
};
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use super::{Budget, JsonPathError, MAX_VISITS, print};

/// A parsed query.
#[derive(Debug, Clone)]
pub(super) struct Query(JpQuery);

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse_json_path(text).map(Self).map_err(|error| {
            // The parser's own report spans lines: the first one has the position, as `--> 1:5`, the last one what was
            // expected.
            let report = error.to_string();
            let position = report.split_once("--> 1:").and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
            let problem = report.lines().last().unwrap_or_default().trim_start_matches([' ', '=']);
            let problem = format!("not an RFC 9535 query: {problem}");
            JsonPathError::Parse { position: position.unwrap_or(1), problem }
        })
    }

    /// The values that the query selects.
    pub(super) fn select<'a>(&self, document: &'a Value, budget: &mut Budget) -> Result<Vec<&'a Value>, JsonPathError> {
        budget.visit(self.cost(document))?;
        let found = js_path_process(&self.0, document).map_err(|error| JsonPathError::Execute(error.to_string()))?;
        Ok(found.into_iter().map(|found| found.val()).collect())
    }

    pub(super) fn evaluate(&self, document: &Value, budget: &mut Budget) -> Result<(String, bool), JsonPathError> {
        let values = self.select(document, budget)?;
        let mut text = String::new();
        print::results(values.iter().copied().map(Some), &mut text, budget)?;
        Ok((text, matches!(values.as_slice(), [Value::Null])))
    }

    /// The engine can't be interrupted, so the maximum number of values it may visit is counted before: every descent
    /// reaches a value once for each of its ancestors, and a query at the root within a filter visits
    /// the whole document for each filtered value.
    fn cost(&self, document: &Value) -> usize {
        let mut shape = Shape::default();
        shape.add_segments(&self.0.segments);
        let exponent = u32::try_from(shape.descents).unwrap_or(u32::MAX);
        let mut visits: usize = 0;
        let mut values: usize = 0;
        let mut to_do = vec![(document, 1_usize)];
        while let Some((value, depth)) = to_do.pop() {
            values = values.saturating_add(1);
            visits = visits.saturating_add(depth.saturating_pow(exponent));
            if visits > MAX_VISITS {
                break;
            }
            match value {
                Value::Array(items) => to_do.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Object(fields) => to_do.extend(fields.values().map(|item| (item, depth + 1))),
                _ => {}
            }
        }
        for _ in 0..shape.roots {
            visits = visits.saturating_mul(values);
        }
        visits
    }
}

/// What makes a query expensive.
#[derive(Default)]
struct Shape {
    /// Descendant segments, in filters too.
    descents: usize,
    /// Queries within filters that begin at the root and select more than one value.
    roots: usize,
}

impl Shape {
    fn add_segments(&mut self, segments: &[Segment]) {
        for segment in segments {
            match segment {
                Segment::Descendant(inner) => {
                    self.descents += 1;
                    self.add_segments(std::slice::from_ref(inner));
                }
                Segment::Selector(selector) => self.add_selector(selector),
                Segment::Selectors(selectors) => selectors.iter().for_each(|selector| self.add_selector(selector)),
            }
        }
    }

    fn add_selector(&mut self, selector: &Selector) {
        if let Selector::Filter(filter) = selector {
            self.add_filter(filter);
        }
    }

    fn add_filter(&mut self, filter: &Filter) {
        match filter {
            Filter::Or(filters) | Filter::And(filters) => filters.iter().for_each(|filter| self.add_filter(filter)),
            Filter::Atom(FilterAtom::Filter { expr, .. }) => self.add_filter(expr),
            Filter::Atom(FilterAtom::Test { expr, .. }) => self.add_test(expr),
            Filter::Atom(FilterAtom::Comparison(comparison)) => {
                let (left, right) = comparison.vals();
                for side in [left, right] {
                    if let Comparable::Function(function) = side {
                        self.add_function(function);
                    }
                }
            }
        }
    }

    fn add_test(&mut self, test: &Test) {
        match test {
            Test::RelQuery(segments) => self.add_segments(segments),
            Test::AbsQuery(query) => {
                self.roots += 1;
                self.add_segments(&query.segments);
            }
            Test::Function(function) => self.add_function(function),
        }
    }

    fn add_function(&mut self, function: &TestFunction) {
        match function {
            TestFunction::Custom(_, arguments) => arguments.iter().for_each(|argument| self.add_argument(argument)),
            TestFunction::Length(argument) => self.add_argument(argument),
            TestFunction::Value(argument) | TestFunction::Count(argument) => self.add_argument(argument),
            TestFunction::Search(left, right) | TestFunction::Match(left, right) => {
                self.add_argument(left);
                self.add_argument(right);
            }
        }
    }

    fn add_argument(&mut self, argument: &FnArg) {
        match argument {
            FnArg::Literal(_) => {}
            FnArg::Test(test) => self.add_test(test),
            FnArg::Filter(filter) => self.add_filter(filter),
        }
    }
}

#[cfg(test)]
mod tests;
