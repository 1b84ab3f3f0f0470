//! Parses templates of the Kubernetes dialect.
//!
//! A template is text with actions in braces. An action is a list of steps, each of which is applied to all results of
//! the step before. Source: `k8s.io/client-go/util/jsonpath`, `parser.go`. Its grammar is undocumented; what is
//! accepted here was found by comparison.

use serde_json::{Number, Value};

use super::{JsonPathError, MAX_NESTING};
use crate::messages::quote;

/// A parsed template.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub(super) nodes: Vec<Node>,
}

/// A part of a template.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Text between actions.
    Text(Value),
    /// `{…}`.
    Action(Vec<Step>),
}

impl Node {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.as_str(),
            Self::Action(_) => None,
        }
    }
}

/// A step of an action.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// `.name`, `['name']`: a field.
    Field(String),
    /// `.*`: the entries of a list, the values of a map.
    Wildcard,
    /// An index or a slice: `[0]`, `[-1]`, `[1:3]`, `[*]`.
    Slice(Slice),
    /// `..`: the value and everything in it.
    Descend,
    /// `[a,b]`: the results of each part, one after the other.
    Union(Vec<Vec<Step>>),
    /// `[?(…)]`: the entries of a list for which the condition holds.
    Filter(Filter),
    /// A string, which replaces all results so far.
    Text(Value),
    /// A number or boolean, which replaces each result so far.
    Literal(Value),
    /// `range`: everything after the action, up to its `end`, is evaluated for each of its results.
    Range,
    /// `end`.
    End,
    /// Any other bare word. The evaluation reports it as unknown.
    Word(String),
}

/// The bounds as written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// A single index: the end follows from the start.
    pub(super) is_index: bool,
    pub(super) step: Option<i64>,
}

/// A condition on an entry.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    /// The steps have a result.
    Exists(Vec<Step>),
    /// Each side has one result, and the comparison of both holds.
    Compare { left: Vec<Step>, operator: String, right: Vec<Step> },
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, JsonPathError> {
        let mut parser = Parser { rest: text, nesting: 0 };
        let nodes = parser.nodes().map_err(|error| error.in_text(text))?;
        Ok(Self { nodes })
    }

    pub(super) fn has_no_action(&self) -> bool {
        self.nodes.iter().all(|node| match node {
            Node::Text(_) => true,
            Node::Action(steps) => steps.iter().all(|step| matches!(step, Step::Text(_))) && !steps.is_empty(),
        })
    }

    pub(super) fn outer_text(&self) -> (Option<&str>, Option<&str>) {
        let is_mark = |node: &&Node| matches!(node, Node::Action(steps) if steps.iter().any(|step| matches!(step, Step::Range | Step::End)));
        let first = self.nodes.iter().find(|node| !is_mark(node));
        let last = self.nodes.iter().rev().find(|node| !is_mark(node));
        (first.and_then(Node::as_text), last.and_then(Node::as_text))
    }

    pub(super) fn has_open_range(&self) -> bool {
        let actions = self.nodes.iter().filter_map(|node| match node {
            Node::Action(steps) => Some(steps),
            Node::Text(_) => None,
        });
        let open = actions.flatten().fold(0_usize, |open, step| match step {
            Step::Range => open + 1,
            Step::End => open.saturating_sub(1),
            _ => open,
        });
        open > 0
    }

    pub(super) fn leading_fields(&self) -> Vec<&str> {
        let action = self.nodes.iter().find_map(|node| match node {
            Node::Action(steps) if !steps.iter().any(|step| matches!(step, Step::Text(_))) => Some(steps),
            _ => None,
        });
        let steps = action.into_iter().flatten().skip_while(|step| matches!(step, Step::Range));
        steps
            .map_while(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// A parse error: the message, and the rest of the text from the position on.
struct Problem {
    rest: usize,
    problem: String,
}

impl Problem {
    fn in_text(self, text: &str) -> JsonPathError {
        let before = text.len().saturating_sub(self.rest);
        let position = text.char_indices().take_while(|(index, _)| *index < before).count() + 1;
        JsonPathError::Parse { position, problem: self.problem }
    }

    /// The same error in a longer text, which has `after` more bytes after the parsed part.
    fn with_rest(self, after: usize) -> Self {
        Self { rest: self.rest + after, ..self }
    }
}

type Parsed<T> = Result<T, Problem>;

struct Parser<'a> {
    rest: &'a str,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn problem<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        Err(Problem { rest: self.rest.len(), problem: problem.into() })
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.split_at(c.len_utf8()).1;
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Consumes `length` bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn nodes(&mut self) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        while !self.rest.is_empty() {
            let length = self.rest.find('{').unwrap_or(self.rest.len());
            let text = self.take(length);
            if !text.is_empty() {
                nodes.push(Node::Text(Value::from(text)));
            }
            if self.eat("{") {
                nodes.push(Node::Action(self.action()?));
            }
        }
        Ok(nodes)
    }

    /// The steps up to and including the closing brace.
    fn action(&mut self) -> Parsed<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.eat("}") {
                return Ok(steps);
            }
            if self.eat("[?(") {
                steps.push(Step::Filter(self.filter()?));
                continue;
            }
            if self.rest.starts_with("..") {
                if matches!(steps.last(), Some(Step::Descend)) {
                    return self.problem("two recursive descents in a row");
                }
                self.eat("..");
                steps.push(Step::Descend);
                if self.rest.starts_with(is_word) {
                    steps.push(self.field());
                }
                continue;
            }
            let before = self.rest;
            match self.next() {
                None | Some('\r' | '\n') => {
                    self.rest = before;
                    return self.problem("the action is not closed with `}`");
                }
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(Step::Text(self.quoted(before, quote)?)),
                Some('.') => steps.push(self.field()),
                Some(c) if c == '+' || c == '-' || is_digit(c) => {
                    self.rest = before;
                    steps.push(Step::Literal(self.number()?));
                }
                Some(c) if is_word(c) => {
                    self.rest = before;
                    steps.push(self.word());
                }
                Some(c) => {
                    self.rest = before;
                    return self.problem(format!("unexpected character {}", quote(&c.to_string())));
                }
            }
        }
    }

    /// The name of a field after its dot. A backslash makes the next character part of the name.
    fn field(&mut self) -> Step {
        let mut length = 0;
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            if is_terminator(c) {
                break;
            }
            length += c.len_utf8();
            if c == '\\' {
                length += chars.next().map_or(0, char::len_utf8);
            }
        }
        let name = self.take(length);
        if name == "*" {
            return Step::Wildcard;
        }
        Step::Field(name.replace('\\', ""))
    }

    fn word(&mut self) -> Step {
        let length = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(length) {
            "true" => Step::Literal(Value::Bool(true)),
            "false" => Step::Literal(Value::Bool(false)),
            "range" => Step::Range,
            "end" => Step::End,
            other => Step::Word(other.to_owned()),
        }
    }

    fn number(&mut self) -> Parsed<Value> {
        let signed = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
        let sign = self.rest.len() - signed.len();
        let length = sign + signed.find(|c| c != '.' && !is_digit(c)).unwrap_or(signed.len());
        let before = self.rest;
        let text = self.take(length);
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Value::Number(Number::from(number)));
        }
        // The text has only digits, dots and a sign, so `inf` and `nan` can't be parsed.
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).and_then(Number::from_f64);
        match number {
            Some(number) => Ok(Value::Number(number)),
            None => {
                self.rest = before;
                self.problem(format!("{} is not a number", quote(text)))
            }
        }
    }

    /// A quoted string after its first quote, with which `before` begins.
    fn quoted(&mut self, before: &'a str, delimiter: char) -> Parsed<Value> {
        let mut length = 1;
        let mut last = delimiter;
        loop {
            match self.next() {
                None | Some('\n') => {
                    self.rest = before;
                    return self.problem("the quoted string is not closed");
                }
                Some(c) => {
                    length += c.len_utf8();
                    let is_escaped = last == '\\';
                    last = c;
                    if c == delimiter && !is_escaped {
                        break;
                    }
                }
            }
        }
        let inner = before.get(1..length - 1).unwrap_or_default();
        match unquote(inner, delimiter) {
            Some(text) => Ok(Value::from(text)),
            None => {
                self.rest = before;
                self.problem(format!("{} contains an invalid escape", quote(inner)))
            }
        }
    }

    /// The content of brackets after the first one: a union, a name, an index or a slice.
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        let length = self
            .rest
            .find([']', '\n'])
            .filter(|&length| self.rest.get(length..).is_some_and(|rest| rest.starts_with(']')));
        let Some(length) = length else {
            return self.problem("the brackets are not closed with `]`");
        };
        let inside = self.take(length);
        let end = self.rest.len();
        self.eat("]");
        if inside.contains(',') {
            let mut union = Vec::new();
            let mut after = end + inside.len();
            for part in inside.split(',') {
                after -= part.len();
                let trimmed = part.trim_matches(' ');
                // The part has one closing bracket more than the template.
                union.push(self.nested(&format!("[{trimmed}]"), after.saturating_sub(1))?);
                after = after.saturating_sub(1);
            }
            steps.push(Step::Union(union));
            return Ok(());
        }
        if let Some(name) =
            inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\'')).filter(|name| !name.contains('\''))
        {
            // A quoted name is parsed as a name after a dot, so its dots need backslashes here, too.
            steps.extend(self.nested(&format!(".{name}"), end + 1)?);
            return Ok(());
        }
        match slice(inside) {
            Some(slice) => {
                steps.push(Step::Slice(slice));
                Ok(())
            }
            None => Err(Problem {
                rest: end + inside.len(),
                problem: format!("{} is neither an index, a slice, `*` nor a name in single quotes", quote(inside)),
            }),
        }
    }

    /// A filter after its `[?(`.
    fn filter(&mut self) -> Parsed<Filter> {
        let before = self.rest;
        let mut opening = None;
        let mut is_closed = false;
        let mut last = '(';
        loop {
            let c = match self.next() {
                None | Some('\n') => {
                    self.rest = before;
                    return self.problem("the filter is not closed with `)]`");
                }
                Some(c) => c,
            };
            match (c, opening) {
                ('"' | '\'', None) => opening = Some(c),
                ('"' | '\'', Some(quote)) if c == quote && last != '\\' => is_closed = true,
                // A parenthesis within quotes is part of the string.
                (')', opening) if opening.is_some() == is_closed => break,
                _ => {}
            }
            last = c;
        }
        let end = self.rest.len() + 1;
        let condition = before.get(..before.len() - end).unwrap_or_default();
        if !self.eat("]") {
            return self.problem("the filter is not closed with `)]`");
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let left = condition.find(is_operator).unwrap_or_default();
        let (left, operation) = condition.split_at_checked(left).unwrap_or_default();
        let operator = operation.find(|c| !is_operator(c)).unwrap_or(operation.len());
        let (operator, right) = operation.split_at_checked(operator).unwrap_or_default();
        // A comparison has a value on both sides. The last character of an operator at the end of the text is the right
        // side.
        let (operator, right) = match (operator.char_indices().last(), right.is_empty()) {
            (Some((last, _)), true) => operator.split_at_checked(last).unwrap_or_default(),
            _ => (operator, right),
        };
        if left.is_empty() || operator.is_empty() || right.contains('\n') {
            return Ok(Filter::Exists(self.nested(condition, end)?));
        }
        Ok(Filter::Compare {
            left: self.nested(left, end + right.len() + operator.len())?,
            operator: operator.to_owned(),
            right: self.nested(right, end)?,
        })
    }

    /// The steps of `text`, as if it were in braces; `after` bytes follow it in the whole text.
    fn nested(&mut self, text: &str, after: usize) -> Parsed<Vec<Step>> {
        if self.nesting >= MAX_NESTING {
            return self.problem(format!("limit exceeded: filters and unions are nested more than {MAX_NESTING} deep"));
        }
        let text = format!("{text}}}");
        let mut parser = Parser { rest: &text, nesting: self.nesting + 1 };
        // A brace in the text ends the action. The rest must be a template, too, but is ignored.
        let steps = parser.action().and_then(|steps| parser.nodes().map(|_| steps));
        steps.map_err(|problem| problem.with_rest(after.saturating_sub(1)))
    }
}

/// The slice in `text`: up to three numbers between colons, each of which may be left out.
fn slice(text: &str) -> Option<Slice> {
    if text == "*" {
        return Some(Slice::default());
    }
    let parts: Vec<&str> = text.split(':').collect();
    let mut numbers = [None; 3];
    if parts.len() > numbers.len() {
        return None;
    }
    for (part, number) in parts.iter().zip(&mut numbers) {
        if !part.strip_prefix('-').unwrap_or(part).bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        if !part.is_empty() {
            *number = Some(part.parse().ok()?);
        }
    }
    let [start, end, step] = numbers;
    Some(Slice { start, end, is_index: parts.len() == 1, step })
}

/// `text` with its escapes decoded; `None` where one is invalid. Source: Go, `strconv.UnquoteChar`.
fn unquote(text: &str, delimiter: char) -> Option<String> {
    let mut plain: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == delimiter {
            return None;
        }
        if c != '\\' {
            plain.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = rest.get(c.len_utf8()..)?;
            continue;
        }
        let escape = rest.as_bytes().get(1).copied()?;
        let code = |digits: std::ops::Range<usize>, radix| {
            let digits = rest.get(digits)?;
            digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, radix).ok())?
        };
        let (byte, length) = match escape {
            b'a' => (b'\x07', 2),
            b'b' => (b'\x08', 2),
            b'f' => (b'\x0c', 2),
            b'n' => (b'\n', 2),
            b'r' => (b'\r', 2),
            b't' => (b'\t', 2),
            b'v' => (b'\x0b', 2),
            b'\\' => (b'\\', 2),
            b'x' => (u8::try_from(code(2..4, 16)?).ok()?, 4),
            b'0'..=b'7' => (u8::try_from(code(1..4, 8)?).ok()?, 4),
            quote if char::from(quote) == delimiter => (quote, 2),
            b'u' | b'U' => {
                let length = if escape == b'u' { 6 } else { 10 };
                let c = char::from_u32(code(2..length, 16)?)?;
                plain.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = rest.get(length..)?;
                continue;
            }
            _ => return None,
        };
        plain.push(byte);
        rest = rest.get(length..)?;
    }
    // Escapes can stand for bytes that are not UTF-8, which JSON can't hold.
    String::from_utf8(plain).ok()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphabetic() || is_digit(c)
}
