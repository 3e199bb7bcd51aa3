//! The object of a command: `node/worker-1`, `service/default/web`, `routes`.

use ccm_controllers::preview::Scope;
use ccm_provider::{NodeName, ServiceKey};

use crate::exit::Failure;

/// The scope of these words; all if there are none. `node NAME` and `service NAMESPACE/NAME` also work with a slash.
pub(crate) fn scope(words: &[String]) -> Result<Scope, Failure> {
    parse(words, "want node/NAME, service/NAMESPACE/NAME or routes")
}

/// The same for a command that requires one object.
pub(crate) fn object(words: &[String]) -> Result<Scope, Failure> {
    let forms = "want node/NAME or service/NAMESPACE/NAME";
    match parse(words, forms)? {
        Scope::All => Err(Failure::error(format!("which object? {forms}"))),
        Scope::Routes => Err(Failure::error(format!("{:?}: one object at a time; {forms}", words.join(" ")))),
        scope => Ok(scope),
    }
}

fn parse(words: &[String], forms: &str) -> Result<Scope, Failure> {
    let joined = words.join("/");
    let parts: Vec<&str> = joined.split('/').collect();
    let scope = match parts.as_slice() {
        [""] => Scope::All,
        ["routes" | "route"] => Scope::Routes,
        ["node" | "nodes" | "no", name] => Scope::Node(NodeName::from(*name)),
        ["service" | "services" | "svc", namespace, name] => {
            Scope::Service(ServiceKey { namespace: (*namespace).into(), name: (*name).into() })
        }
        ["service" | "services" | "svc", name] => {
            return Err(Failure::error(format!(
                "service {name:?}: the namespace is missing; write service/NAMESPACE/{name}"
            )));
        }
        _ => return Err(Failure::error(format!("{:?}: {forms}", words.join(" ")))),
    };
    if words.len() > 2 || parts.iter().any(|part| part.is_empty()) && scope != Scope::All {
        return Err(Failure::error(format!("{:?}: {forms}", words.join(" "))));
    }
    Ok(scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Scope, String> {
        scope(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).map_err(|failure| failure.message)
    }

    #[test]
    fn an_object_is_named_with_a_slash_or_a_blank() {
        let web = || Scope::Service(ServiceKey { namespace: "default".into(), name: "web".into() });
        assert_eq!(of(&[]), Ok(Scope::All));
        assert_eq!(of(&["routes"]), Ok(Scope::Routes));
        assert_eq!(of(&["node/a.b"]), Ok(Scope::Node("a.b".into())));
        assert_eq!(of(&["node", "a"]), Ok(Scope::Node("a".into())));
        assert_eq!(of(&["svc/default/web"]), Ok(web()));
        assert_eq!(of(&["service", "default/web"]), Ok(web()));
    }

    #[test]
    fn another_word_is_an_error_that_shows_the_forms() {
        for words in [&["pod/x"][..], &["node"], &["node/"], &["service//x"], &["node", "a", "b"], &["a", "b", "c"]] {
            let text = of(words).unwrap_err();
            assert!(text.contains("want node/NAME, service/NAMESPACE/NAME or routes"), "{words:?}: {text}");
        }
        assert!(of(&["service/web"]).unwrap_err().contains("write service/NAMESPACE/web"));
    }
}
