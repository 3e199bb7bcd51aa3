//! YAML and JSON with the line of every key. Parsed like kubectl does: YAML 1.1 booleans, merge keys, concatenated JSON
//! objects. A document that cannot be parsed does not affect the following ones.

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};
use serde::de::IgnoredAny;
use serde_json::Value as Json;

#[cfg(test)]
mod tests;

/// The maximum number of values in one file: nested aliases can multiply them.
const VALUES: usize = 1_000_000;

#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The line, starting at 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The line of the key.
    pub(super) line: usize,
    pub(super) value: Node,
    /// From `<<`: a key of the map itself takes precedence.
    merged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) line: usize,
    pub(super) message: String,
}

#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// The documents that could be parsed, each with its number, starting at 1.
    pub(super) documents: Vec<(usize, Node)>,
    pub(super) broken: Vec<Broken>,
}

/// Parses a text with any number of documents.
pub(super) fn parse(text: &str) -> Parsed {
    // Concatenated files have byte order marks inside.
    let text = text.replace("\n\u{feff}", "\n");
    let (mut parsed, mut number, mut made) = (Parsed::default(), 0, 0);
    for (before, piece) in pieces(&text) {
        let mut reader = Reader { parser: Parser::new_from_str(piece), before, parsed, number, made };
        reader.documents();
        Reader { parsed, number, made, .. } = reader;
    }
    parsed
}

/// Texts to parse one by one, each with the number of lines before it: YAML as a whole, JSON object by object, because
/// YAML requires a separator between documents. The text after the last object is the last piece.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let json = text.trim_start_matches('\u{feff}');
    let mut objects = serde_json::Deserializer::from_str(json).into_iter::<IgnoredAny>();
    let (mut found, mut from, mut lines) = (Vec::new(), 0, 0);
    if json.trim_start().starts_with('{') {
        while let Some(Ok(_)) = objects.next() {
            let end = objects.byte_offset();
            let Some(piece) = json.get(from..end) else { break };
            found.push((lines, piece));
            lines += piece.matches('\n').count();
            from = end;
        }
    }
    match json.get(from..).filter(|rest| !rest.trim().is_empty()) {
        _ if found.is_empty() => vec![(0, text)],
        Some(rest) => {
            found.push((lines, rest));
            found
        }
        None => found,
    }
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The keys of a map; empty for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        if let Kind::Map(entries) = &self.kind { entries } else { &[] }
    }

    /// The items of a list; empty for other values.
    pub(super) fn items(&self) -> &[Self] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    pub(super) fn json(&self) -> Json {
        match &self.kind {
            Kind::Null => Json::Null,
            Kind::Bool(value) => Json::Bool(*value),
            Kind::Number(number) => Json::Number(number.clone()),
            Kind::Text(text) => Json::String(text.clone()),
            Kind::List(items) => items.iter().map(Self::json).collect(),
            Kind::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.value.json())).collect(),
        }
    }

    /// The line of the value at a path such as `spec.ports[1].port` or `a["b.c"]`, or of its nearest existing ancestor.
    pub(super) fn line_of(&self, path: &str) -> usize {
        let (mut node, mut line, mut rest) = (self, self.line, path);
        while let Some((segment, after)) = segment(rest) {
            let found = match &node.kind {
                Kind::Map(_) => node.entry(&segment).map(|entry| (entry.line, &entry.value)),
                Kind::List(items) => {
                    segment.parse::<usize>().ok().and_then(|at| items.get(at)).map(|item| (item.line, item))
                }
                _ => None,
            };
            let Some(found) = found else { return line };
            (line, node) = found;
            rest = after;
        }
        line
    }

    fn count(&self) -> usize {
        let children = match &self.kind {
            Kind::List(items) => items.iter().map(Self::count).sum(),
            Kind::Map(entries) => entries.iter().map(|entry| entry.value.count()).sum(),
            _ => 0,
        };
        children + 1
    }
}

/// The first segment of a path, without quotes, and the rest.
fn segment(path: &str) -> Option<(Cow<'_, str>, &str)> {
    if path.is_empty() {
        return None;
    }
    if let Some(quoted) = path.strip_prefix('[').filter(|rest| rest.starts_with('"')) {
        // Paths use Rust's escapes; those of JSON cover the ones in real keys.
        let mut texts = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        let key = texts.next()?.ok()?;
        let rest = quoted.get(texts.byte_offset()..)?.strip_prefix(']')?;
        return Some((Cow::Owned(key), rest.strip_prefix('.').unwrap_or(rest)));
    }
    if let Some(index) = path.strip_prefix('[') {
        let (index, rest) = index.split_once(']')?;
        return Some((Cow::Borrowed(index), rest.strip_prefix('.').unwrap_or(rest)));
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    Some((Cow::Borrowed(name), rest.strip_prefix('.').unwrap_or(rest)))
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The number of lines before the text.
    before: usize,
    parsed: Parsed,
    number: usize,
    /// The number of values created so far.
    made: usize,
}

struct Open {
    line: usize,
    anchor: usize,
    /// `None`: a list.
    entries: Option<Vec<Entry>>,
    /// The index of the entry with each key.
    known: BTreeMap<String, usize>,
    items: Vec<Node>,
    /// The key of the next value.
    key: Option<(String, usize, bool)>,
}

impl Reader<'_> {
    fn documents(&mut self) {
        loop {
            match self.document() {
                Ok(true) => {}
                Ok(false) => return,
                Err(broken) => {
                    self.parsed.broken.push(broken);
                    if self.made > VALUES || !self.parser.proceed_next_document().unwrap_or(false) {
                        return;
                    }
                }
            }
        }
    }

    /// Parses up to the end of a document; false at the end of the input.
    fn document(&mut self) -> Result<bool, Broken> {
        let mut open: Vec<Open> = Vec::new();
        let mut anchors: BTreeMap<usize, Node> = BTreeMap::new();
        let mut root = None;
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event.map_err(|error| self.syntax(&error))?;
            let line = self.before + span.start.line();
            let (node, anchor) = match event {
                Event::DocumentStart(..) => {
                    self.number += 1;
                    continue;
                }
                Event::DocumentEnd => {
                    self.parsed.documents.extend(root.map(|node| (self.number, node)));
                    return Ok(true);
                }
                Event::MappingStart(_, anchor, _) => {
                    open.push(Open::new(line, anchor, Some(Vec::new())));
                    continue;
                }
                Event::SequenceStart(_, anchor, _) => {
                    open.push(Open::new(line, anchor, None));
                    continue;
                }
                Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                    Some(ended) => ended.end(),
                    None => continue,
                },
                Event::Scalar(ref text, style, anchor, _) => {
                    let is_text = event.tag().is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                    let plain = style == ScalarStyle::Plain && !is_text;
                    let kind = if plain { resolve(text) } else { Kind::Text(text.to_string()) };
                    if let Some(map) = open.last_mut().filter(|open| open.entries.is_some() && open.key.is_none()) {
                        let key = text.to_string();
                        let merge = plain && key == "<<";
                        map.key = Some((key, line, merge));
                        anchors.insert(anchor, Node { line, kind: Kind::Text(text.to_string()) });
                        continue;
                    }
                    (Node { line, kind }, anchor)
                }
                Event::Alias(anchor) => {
                    let node = anchors.get(&anchor).cloned().unwrap_or(Node { line, kind: Kind::Null });
                    self.made += node.count();
                    (node, 0)
                }
                _ => continue,
            };
            self.made += 1;
            if self.made > VALUES {
                return Err(Broken { line, message: format!("more than {VALUES} values: aliases multiply here") });
            }
            if anchor != 0 {
                anchors.insert(anchor, node.clone());
            }
            match open.last_mut() {
                Some(parent) => parent.add(node, line, &mut self.parsed.broken)?,
                None => root = Some(node),
            }
        }
        Ok(false)
    }

    fn syntax(&self, error: &ScanError) -> Broken {
        Broken { line: self.before + error.marker().line(), message: format!("cannot be read: {}", error.info()) }
    }
}

impl Open {
    fn new(line: usize, anchor: usize, entries: Option<Vec<Entry>>) -> Self {
        Self { line, anchor, entries, known: BTreeMap::new(), items: Vec::new(), key: None }
    }

    /// `at`: the line where the node's event starts.
    fn add(&mut self, node: Node, at: usize, broken: &mut Vec<Broken>) -> Result<(), Broken> {
        let Some(entries) = &mut self.entries else {
            self.items.push(node);
            return Ok(());
        };
        let Some((key, line, merge)) = self.key.take() else {
            // A key may be an alias.
            let Some(text) = node.text() else {
                return Err(Broken { line: at, message: "a key must be a text".to_owned() });
            };
            self.key = Some((text.to_owned(), at, false));
            return Ok(());
        };
        if merge {
            let maps = if let Kind::List(items) = &node.kind { items.iter().collect() } else { vec![&node] };
            for entry in maps.into_iter().flat_map(Node::entries) {
                if !self.known.contains_key(&entry.key) {
                    self.known.insert(entry.key.clone(), entries.len());
                    entries.push(Entry { merged: true, ..entry.clone() });
                }
            }
            return Ok(());
        }
        let at = *self.known.entry(key.clone()).or_insert(entries.len());
        let entry = Entry { key, line, value: node, merged: false };
        match entries.get_mut(at) {
            None => entries.push(entry),
            Some(earlier) => {
                if !earlier.merged {
                    let message = format!("duplicate key {:?}; the first one is at line {}", entry.key, earlier.line);
                    broken.push(Broken { line, message });
                }
                *earlier = entry;
            }
        }
        Ok(())
    }

    fn end(self) -> (Node, usize) {
        let kind = match self.entries {
            Some(entries) => Kind::Map(entries),
            None => Kind::List(self.items),
        };
        (Node { line: self.line, kind }, self.anchor)
    }
}

/// The type of a plain scalar in kubectl. Source: `go.yaml.in/yaml/v2` `resolve.go`.
fn resolve(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => return Kind::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Kind::Bool(false);
        }
        _ => {}
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.chars().any(|c| c.is_ascii_digit());
    if number && let Some(number) = integer(&text.replace('_', "")) {
        return Kind::Number(number.into());
    }
    let float = || text.replace('_', "").parse::<f64>().ok().and_then(serde_json::Number::from_f64);
    match number.then(float).flatten() {
        Some(number) => Kind::Number(number),
        None => Kind::Text(text.to_owned()),
    }
}

/// Decimal, `0x`, `0b`, `0o`, and octal after a leading 0.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let radix = |prefix: &str, radix| digits.strip_prefix(prefix).map(|digits| i64::from_str_radix(digits, radix).ok());
    let octal = || if digits.len() > 1 { radix("0", 8).flatten() } else { None };
    let prefixed = radix("0x", 16).or_else(|| radix("0b", 2)).or_else(|| radix("0o", 8));
    let value = match prefixed {
        Some(value) => value,
        None => octal().or_else(|| digits.parse().ok()),
    }?;
    Some(if negative { -value } else { value })
}
