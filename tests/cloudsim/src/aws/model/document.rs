//! Parses the XML of AWS and its simulations: elements and text, no mixed content, no custom entities.

/// An element. Attributes are dropped: nothing in these answers depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// The name without a prefix.
    pub name: String,
    /// The child elements in document order.
    pub children: Vec<Element>,
    /// The direct text, decoded and trimmed.
    pub text: String,
}

impl Element {
    /// Parses a document.
    pub fn parse(document: &str) -> Result<Self, String> {
        let mut stack = vec![Self::default()];
        let mut rest = document;
        while let Some(start) = rest.find('<') {
            let (text, tag) = rest.split_at(start);
            if let Some(top) = stack.last_mut() {
                top.text.push_str(&decode(text)?);
            }
            let end = tag.find('>').ok_or_else(|| format!("a tag without end near {:?}", head(tag)))?;
            let inside = tag.get(1..end).unwrap_or_default();
            rest = tag.get(end + 1..).unwrap_or_default();
            if inside.starts_with('?') || inside.starts_with('!') {
                continue;
            }
            if let Some(name) = inside.strip_prefix('/') {
                close(&mut stack, name.trim())?;
                continue;
            }
            let empty = inside.ends_with('/');
            let name = inside.trim_end_matches('/').split_whitespace().next().unwrap_or_default();
            stack.push(Self { name: local(name).to_owned(), ..Self::default() });
            if empty {
                close(&mut stack, name)?;
            }
        }
        match (stack.pop(), stack.is_empty()) {
            (Some(mut document), true) if document.children.len() == 1 => {
                document.children.pop().ok_or_else(|| "an empty document".to_owned())
            }
            (Some(open), false) => Err(format!("<{}> is not closed", open.name)),
            _ => Err("not exactly one element at the top".to_owned()),
        }
    }

    /// The first child with this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The element at a path of names such as `Error/Code`. If several children have the name, the first is used; `*`
    /// is the first child of any name.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/').try_fold(
            self,
            |element, name| {
                if name == "*" { element.children.first() } else { element.child(name) }
            },
        )
    }
}

fn close(stack: &mut Vec<Element>, name: &str) -> Result<(), String> {
    let mut element = stack.pop().unwrap_or_default();
    if element.name != local(name) || stack.is_empty() {
        return Err(format!("</{name}> closes <{}>", element.name));
    }
    element.text = element.text.trim().to_owned();
    if let Some(parent) = stack.last_mut() {
        parent.children.push(element);
    }
    Ok(())
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn head(text: &str) -> String {
    text.chars().take(40).collect()
}

fn decode(text: &str) -> Result<String, String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        let (entity, tail) = after.split_once(';').ok_or_else(|| format!("a bare & near {:?}", head(after)))?;
        let number = entity
            .strip_prefix("#x")
            .map_or_else(|| entity.strip_prefix('#')?.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok());
        decoded.push(match (entity, number.and_then(char::from_u32)) {
            ("amp", _) => '&',
            ("lt", _) => '<',
            ("gt", _) => '>',
            ("quot", _) => '"',
            ("apos", _) => '\'',
            (_, Some(character)) => character,
            _ => return Err(format!("unknown entity &{entity};")),
        });
        rest = tail;
    }
    decoded.push_str(rest);
    Ok(decoded)
}
