//! The check of an answer's XML against the model of its operation.

use super::{COMMON_ERRORS, Element, Service, Shape};

struct Check<'a> {
    model: &'a Service,
    at: String,
    found: Vec<String>,
}

pub(super) fn check(service: &str, model: &Service, operation: &str, status: u16, body: &str) -> Vec<String> {
    let mut check = Check { model, at: format!("{service} {operation} answer"), found: Vec::new() };
    let document = match Element::parse(body) {
        Ok(document) => document,
        Err(error) => {
            check.say("", &format!("is no XML: {error}"));
            return check.found;
        }
    };
    if status == 200 {
        check.success(operation, &document);
    } else {
        check.error(operation, &document);
    }
    check.found
}

impl Check<'_> {
    fn say(&mut self, path: &str, what: &str) {
        let line = format!("{}: {path} {what}", self.at);
        self.found.push(line);
    }

    fn success(&mut self, operation: &str, document: &Element) {
        let expected = format!("{operation}Response");
        if document.name != expected {
            self.say("", &format!("is <{}>, not <{expected}>", document.name));
        }
        let id = if self.model.is_ec2() { "requestId" } else { "ResponseMetadata/RequestId" };
        if document.at(id).is_none_or(|id| id.text.is_empty()) {
            self.say(id, "is absent");
        }
        let Some(output) = self.model.operations.get(operation).and_then(|operation| operation.output.as_ref()) else {
            for child in document.children.iter().filter(|child| !is_frame(&child.name)) {
                // EC2 answers <return>true</return> if there is no result.
                if child.name != "return" {
                    self.say(&child.name, "is in the answer of an operation without output");
                }
            }
            return;
        };
        let Some(shape) = self.model.shape(output) else { return };
        let inside = match &output.result_wrapper {
            Some(wrapper) => match document.child(wrapper) {
                Some(inside) => inside,
                None => return self.say(wrapper, "is absent"),
            },
            None => document,
        };
        self.structure("", inside, shape);
    }

    fn error(&mut self, operation: &str, document: &Element) {
        let path = if self.model.is_ec2() { "Errors/Error" } else { "Error" };
        let expected = if self.model.is_ec2() { "Response" } else { "ErrorResponse" };
        if document.name != expected {
            self.say("", &format!("is <{}>, not <{expected}>", document.name));
        }
        let Some(code) = document.at(&format!("{path}/Code")).filter(|code| !code.text.is_empty()) else {
            return self.say(&format!("{path}/Code"), "is absent");
        };
        if document.at(&format!("{path}/Message")).is_none() {
            self.say(&format!("{path}/Message"), "is absent");
        }
        // The model of EC2 declares no errors.
        let Some(operation) = self.model.operations.get(operation).filter(|_| !self.model.is_ec2()) else { return };
        let mut declared = operation.errors.iter().filter_map(|error| {
            let code = self.model.shape(error)?.error.as_ref().and_then(|error| error.code.clone());
            Some(code.unwrap_or_else(|| error.shape.clone()))
        });
        if !COMMON_ERRORS.contains(&code.text.as_str()) && !declared.any(|declared| declared == code.text) {
            self.say(&format!("{path}/Code"), &format!("is {:?}, which the operation does not declare", code.text));
        }
    }

    fn structure(&mut self, path: &str, element: &Element, shape: &Shape) {
        for child in &element.children {
            if path.is_empty() && is_frame(&child.name) {
                continue;
            }
            let below = format!("{path}/{}", child.name);
            let member = shape
                .members
                .iter()
                .find(|(name, member)| member.location_name.as_ref().unwrap_or(name) == &child.name);
            match member.and_then(|(_, member)| self.model.shape(member)) {
                Some(shape) => self.element(&below, child, shape),
                None => self.say(&below, "is unknown"),
            }
            if element.children.iter().filter(|other| other.name == child.name).count() > 1 {
                self.say(&below, "is there more than once");
            }
        }
        for required in &shape.required {
            let name = shape.members.get(required).and_then(|member| member.location_name.as_ref()).unwrap_or(required);
            if element.child(name).is_none() {
                self.say(&format!("{path}/{name}"), "is required and absent");
            }
        }
    }

    fn element(&mut self, path: &str, element: &Element, shape: &Shape) {
        match shape.kind.as_str() {
            "structure" => self.structure(path, element, shape),
            "list" => {
                let Some(member) = shape.member.as_deref() else { return };
                let name = member.location_name.as_deref().unwrap_or("member");
                if let Some(wrong) = shape.check_count(element.children.len()).filter(|_| !element.children.is_empty())
                {
                    self.say(path, &wrong);
                }
                let Some(shape) = self.model.shape(member) else { return };
                for (index, child) in element.children.iter().enumerate() {
                    let below = format!("{path}/{index}");
                    if child.name != name {
                        self.say(&below, &format!("is <{}>, not <{name}>", child.name));
                    }
                    self.element(&below, child, shape);
                }
            }
            "map" => {}
            _ if !element.children.is_empty() => self.say(path, "is a plain value, and there are elements in it"),
            _ => {
                // Constraints apply to requests; answers of the real service violate them (an empty path).
                if let Some(wrong) = shape.check_text(&element.text).filter(|_| !element.text.is_empty()) {
                    self.say(path, &wrong);
                }
            }
        }
    }
}

/// Whether it is an element of every answer.
fn is_frame(name: &str) -> bool {
    matches!(name, "requestId" | "ResponseMetadata")
}
