//! A small XML writer: appends to one string, escapes text, and counts listed objects for the ledger.

use std::fmt::{Display, Write};

/// XML under construction. A handler returns the body of the answer; the endpoint adds the frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xml {
    text: String,
    items: u64,
}

impl Xml {
    /// An empty writer.
    pub fn new() -> Self {
        Xml::default()
    }

    /// An empty writer with this capacity.
    pub fn with_capacity(bytes: usize) -> Self {
        Xml { text: String::with_capacity(bytes), items: 0 }
    }

    /// A document with its XML declaration.
    pub fn document() -> Self {
        Xml { text: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(), items: 0 }
    }

    /// The answer of EC2 operations without a result: `<return>true</return>`.
    pub fn done() -> Self {
        let mut xml = Xml::new();
        xml.text("return", "true");
        xml
    }

    /// An opening tag.
    pub fn open(&mut self, name: &str) {
        self.text.push('<');
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An opening tag with a default namespace.
    pub fn open_with(&mut self, name: &str, namespace: &str) {
        // Writing to a string can't fail.
        let _ = write!(self.text, "<{name} xmlns=\"{namespace}\">");
    }

    /// A closing tag.
    pub fn close(&mut self, name: &str) {
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element with the content written by `inside`.
    pub fn elem(&mut self, name: &str, inside: impl FnOnce(&mut Xml)) {
        self.open(name);
        inside(self);
        self.close(name);
    }

    /// An element with escaped text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.open(name);
        self.escape(value);
        self.close(name);
    }

    /// An element with a number, boolean or other value that needs no escaping.
    pub fn value(&mut self, name: &str, value: impl Display) {
        self.open(name);
        // Writing to a string can't fail.
        let _ = write!(self.text, "{value}");
        self.close(name);
    }

    /// An optional element with text.
    pub fn opt(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A list: `<name><item>…</item>…</name>`; `item` is the element name in EC2, `member` in ELB and STS.
    pub fn list<T>(
        &mut self,
        name: &str,
        item: &str,
        values: impl IntoIterator<Item = T>,
        mut inside: impl FnMut(&mut Xml, T),
    ) {
        self.open(name);
        for value in values {
            self.open(item);
            inside(self, value);
            self.close(item);
        }
        self.close(name);
    }

    /// A list of strings.
    pub fn texts<S: AsRef<str>>(&mut self, name: &str, item: &str, values: impl IntoIterator<Item = S>) {
        self.list(name, item, values, |xml, value| xml.escape(value.as_ref()));
    }

    /// Appends text between tags, escaped.
    pub fn escape(&mut self, value: &str) {
        let mut plain = 0;
        for (at, byte) in value.bytes().enumerate() {
            let escaped = match byte {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                b'\r' => "&#xD;",
                // Not allowed in XML 1.0.
                0..=8 | 11 | 12 | 14..=31 => "",
                _ => continue,
            };
            self.text.push_str(value.get(plain..at).unwrap_or_default());
            self.text.push_str(escaped);
            plain = at + 1;
        }
        self.text.push_str(value.get(plain..).unwrap_or_default());
    }

    /// Appends XML without escaping.
    pub fn raw(&mut self, xml: &str) {
        self.text.push_str(xml);
    }

    /// Sets the number of objects in the answer (for the ledger).
    pub fn count(&mut self, items: usize) {
        self.items += u64::try_from(items).unwrap_or(u64::MAX);
    }

    /// The number of objects in the answer.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The written XML.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The written XML.
    pub fn into_string(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_lists_are_nested() {
        let mut xml = Xml::new();
        xml.text("a", "<b>&\u{1}\"ü");
        xml.texts("names", "member", ["x", "y"]);
        xml.opt("none", None);
        xml.value("n", 5);
        assert_eq!(
            xml.as_str(),
            "<a>&lt;b&gt;&amp;&quot;ü</a><names><member>x</member><member>y</member></names><n>5</n>"
        );
    }
}
