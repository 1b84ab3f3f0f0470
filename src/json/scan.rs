//! A cursor over JSON text that finds where values begin and end. It decodes only the values that the caller asks for.

use std::borrow::Cow;

use serde_json::Value;

use super::JsonError;

/// Maximum nesting of lists and objects, as in `serde_json`.
const MAX_DEPTH: usize = 127;

/// A position in JSON text.
#[derive(Clone)]
pub(crate) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    max_depth: usize,
}

impl<'t> Scanner<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0, max_depth: MAX_DEPTH }
    }

    /// A cursor that steps over values of any nesting.
    pub(crate) fn of_any_depth(text: &'t str) -> Self {
        Self { max_depth: usize::MAX, ..Self::new(text) }
    }

    /// The position of the cursor, in bytes.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The text from one position to another.
    pub(super) fn span(&self, from: usize, to: usize) -> &'t str {
        self.text.get(from..to).unwrap_or_default()
    }

    /// The first byte of the next token.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Steps over `byte`, if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn error(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, expected }
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.error("the end")) }
    }

    /// Steps over the next value and returns its text.
    pub(crate) fn value(&mut self) -> Result<&'t str, JsonError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => self.skip_string()?,
            Some(b'{' | b'[') => self.skip_nested()?,
            Some(_) => self.skip_scalar()?,
            None => return Err(self.error("a value")),
        }
        Ok(self.span(start, self.at))
    }

    /// Reads the next value as a whole.
    pub(crate) fn parse(&mut self) -> Result<Value, JsonError> {
        self.peek();
        let start = self.at;
        self.value()?;
        self.parse_from(start)
    }

    /// Reads the value that the cursor has stepped over since `start`.
    pub(crate) fn parse_from(&self, start: usize) -> Result<Value, JsonError> {
        serde_json::from_str(self.span(start, self.at)).map_err(JsonError::Value)
    }

    /// Calls `visit` for every member of the next value, an object, with the cursor at the member's value, which
    /// `visit` steps over.
    pub(crate) fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, Member<'t>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.expect(b'{', "an object")?;
        self.descend()?;
        if !self.take(b'}') {
            loop {
                self.peek();
                let start = self.at;
                let key = self.string()?;
                self.expect(b':', "`:`")?;
                visit(self, Member { start, key })?;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b'}', "`,` or `}`")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Calls `visit` for every item of the next value, a list, with the cursor at the item, which `visit` steps over.
    pub(crate) fn items(&mut self, mut visit: impl FnMut(&mut Self) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.expect(b'[', "a list")?;
        self.descend()?;
        if !self.take(b']') {
            loop {
                visit(self)?;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b']', "`,` or `]`")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Decodes the next value, which is a string.
    pub(crate) fn string(&mut self) -> Result<Cow<'t, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a string"));
        }
        let start = self.at;
        self.skip_string()?;
        decode(self.span(start, self.at))
    }

    fn descend(&mut self) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth > self.max_depth { Err(JsonError::TooDeep) } else { Ok(()) }
    }

    /// Steps over the list or object that begins here.
    fn skip_nested(&mut self) -> Result<(), JsonError> {
        let outside = self.depth;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => self.descend()?,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == outside {
                        self.at += 1;
                        return Ok(());
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
        Err(self.error("the end of a list or an object"))
    }

    /// Steps over the string that begins here.
    fn skip_string(&mut self) -> Result<(), JsonError> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            self.at = bytes.get(self.at..).map_or(self.at, |rest| self.at + plain(rest));
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.error("the end of a string")),
            }
        }
    }

    fn skip_scalar(&mut self) -> Result<(), JsonError> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t');
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        self.at += length;
        if length == 0 { Err(self.error("a value")) } else { Ok(()) }
    }
}

/// A member of an object.
pub(crate) struct Member<'t> {
    /// Where its key begins.
    pub(super) start: usize,
    /// Its key, decoded.
    pub(crate) key: Cow<'t, str>,
}

/// The text of a JSON string with its quotes.
fn decode(quoted: &str) -> Result<Cow<'_, str>, JsonError> {
    let inner = quoted.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(quoted);
    if inner.bytes().all(|byte| byte >= b' ' && byte != b'\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(quoted).map(Cow::Owned).map_err(JsonError::Value)
}

/// How many bytes of `bytes` come before the first quote or backslash, rounded down to a multiple of eight where that
/// is further away: eight at a time, since most of a large object is in its strings.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut length = 0;
    while let Some(chunk) = bytes.get(length..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let found = zero_bytes(word ^ (ONES * u64::from(b'"'))) | zero_bytes(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return length + found.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length
}
