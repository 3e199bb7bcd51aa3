//! The check of a request's form against the model of its operation.

use std::collections::BTreeMap;

use super::{Params, Reference, Service, Shape};

struct Check<'a> {
    model: &'a Service,
    at: String,
    found: Vec<String>,
}

pub(super) fn check(service: &str, model: &Service, params: &Params) -> Vec<String> {
    let text = |name: &str| params.children.get(name).and_then(|node| node.value.as_deref());
    let (action, version) = (text("Action"), text("Version"));
    let Some(action) = action else { return vec![format!("{service}: a request without Action")] };
    let Some(operation) = model.operations.get(action) else {
        return vec![format!("{service}: there is no operation {action}")];
    };
    let mut check = Check { model, at: format!("{service} {action} request"), found: Vec::new() };
    if version != Some(model.metadata.api_version.as_str()) {
        check.say("Version", &format!("is {version:?}, not {:?}", model.metadata.api_version));
    }
    match operation.input.as_ref().and_then(|input| model.shape(input)) {
        Some(shape) => check.structure("", params, shape),
        None if params.children.keys().all(|name| is_frame(name)) => {}
        None => {
            check.say("", &format!("takes no parameters, and has {:?}", params.children.keys().collect::<Vec<_>>()));
        }
    }
    check.found
}

impl Check<'_> {
    fn say(&mut self, path: &str, what: &str) {
        let line = format!("{}: {path} {what}", self.at);
        self.found.push(line);
    }

    fn structure(&mut self, path: &str, node: &Params, shape: &Shape) {
        let names: BTreeMap<String, &Reference> =
            shape.members.iter().map(|(name, member)| (self.name_of(name, member), member)).collect();
        for (name, child) in &node.children {
            if path.is_empty() && is_frame(name) {
                continue;
            }
            let below = join(path, name);
            match names.get(name).and_then(|member| self.model.shape(member)) {
                Some(shape) => self.node(&below, child, shape),
                None => self.say(&below, &format!("is unknown; known here: {}", join_all(names.keys()))),
            }
        }
        for required in &shape.required {
            let name =
                shape.members.get(required).map_or_else(|| required.clone(), |member| self.name_of(required, member));
            if !node.children.contains_key(&name) {
                self.say(&join(path, &name), "is required and absent");
            }
        }
    }

    fn node(&mut self, path: &str, node: &Params, shape: &Shape) {
        if node.twice {
            self.say(path, "is given twice");
        }
        match shape.kind.as_str() {
            "structure" => self.structure(path, node, shape),
            "list" => self.list(path, node, shape),
            // No call of the provider uses maps.
            "map" => {}
            _ => match &node.value {
                Some(value) => {
                    if let Some(wrong) = shape.check_text(value) {
                        self.say(path, &wrong);
                    }
                    if let Some(name) = node.children.keys().next() {
                        self.say(&join(path, name), "is below a plain value");
                    }
                }
                None => self.say(path, "is a plain value, and only names below it are given"),
            },
        }
    }

    fn list(&mut self, path: &str, node: &Params, shape: &Shape) {
        let Some(member) = shape.member.as_deref() else { return };
        let inside = if self.model.is_ec2() || shape.flattened {
            Some((path.to_owned(), node))
        } else {
            let name = member.location_name.as_deref().unwrap_or("member");
            for other in node.children.keys().filter(|key| *key != name) {
                self.say(&join(path, other), &format!("is not the entry name {name:?}"));
            }
            node.children.get(name).map(|child| (join(path, name), child))
        };
        // The SDKs write an empty list as the name alone.
        let Some((path, entries)) = inside else {
            if node.value.as_deref() != Some("") {
                self.say(path, "is a list without entries");
            }
            return;
        };
        let mut numbers: Vec<usize> = Vec::new();
        for (name, child) in &entries.children {
            match (name.parse::<usize>(), self.model.shape(member)) {
                (Ok(number), Some(shape)) => {
                    numbers.push(number);
                    self.node(&join(&path, name), child, shape);
                }
                _ => self.say(&join(&path, name), "is no number of an entry"),
            }
        }
        numbers.sort_unstable();
        if numbers.iter().enumerate().any(|(index, number)| index + 1 != *number) {
            self.say(&path, &format!("has the entries {numbers:?}, not 1 to {}", numbers.len()));
        }
        if let Some(wrong) = shape.check_count(numbers.len()) {
            self.say(&path, &wrong);
        }
    }

    fn name_of(&self, name: &str, member: &Reference) -> String {
        if !self.model.is_ec2() {
            return member.location_name.as_deref().unwrap_or(name).to_owned();
        }
        member
            .query_name
            .clone()
            .or_else(|| member.location_name.as_deref().map(capitalized))
            .unwrap_or_else(|| name.to_owned())
    }
}

/// Whether it is a parameter of every request.
fn is_frame(name: &str) -> bool {
    matches!(name, "Action" | "Version")
}

fn capitalized(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn join_all<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
