//! The object of a command: `node/worker-1`, `service/default/web`, `service/web`, `routes`.

use ccm_controllers::preview::Scope;
use ccm_provider::flag::FlagValues;
use ccm_provider::{NodeName, ServiceKey};

use super::kubeconfig;
use crate::exit::Failure;

/// The scope of these words; all if there are none. `node NAME` and `service NAMESPACE/NAME` also work with a slash.
pub(crate) fn scope(words: &[String], values: &FlagValues) -> Result<Scope, Failure> {
    parse(words, "expected node/NAME, service/NAMESPACE/NAME or routes", &Namespace::of(values))
}

/// The namespace of a Service that is named without one.
struct Namespace {
    /// `--namespace`
    asked: Option<String>,
    default: String,
}

impl Namespace {
    fn of(values: &FlagValues) -> Self {
        Self { asked: kubeconfig::namespace_asked(values), default: kubeconfig::namespace(values) }
    }
}

/// The same for a command that requires one object.
pub(crate) fn object(words: &[String], values: &FlagValues) -> Result<Scope, Failure> {
    let forms = "expected node/NAME or service/NAMESPACE/NAME";
    match parse(words, forms, &Namespace::of(values))? {
        Scope::All => Err(Failure::error(forms.to_owned())),
        Scope::Routes => Err(Failure::error(format!("{:?}: one object at a time; {forms}", words.join(" ")))),
        scope => Ok(scope),
    }
}

fn parse(words: &[String], forms: &str, namespaces: &Namespace) -> Result<Scope, Failure> {
    let joined = words.join("/");
    let parts: Vec<&str> = joined.split('/').collect();
    let scope = match parts.as_slice() {
        [""] => Scope::All,
        ["routes" | "route"] => Scope::Routes,
        ["node" | "nodes" | "no", name] => Scope::Node(NodeName::from(*name)),
        ["service" | "services" | "svc", namespace, name] => {
            if let Some(asked) = namespaces.asked.as_ref().filter(|asked| asked != namespace) {
                let text = format!("{joined:?} and --namespace={asked} contradict each other: leave one of them out");
                return Err(Failure::error(text));
            }
            Scope::Service(ServiceKey { namespace: (*namespace).into(), name: (*name).into() })
        }
        ["service" | "services" | "svc", name] => {
            Scope::Service(ServiceKey { namespace: namespaces.default.as_str().into(), name: (*name).into() })
        }
        [name] if !["node", "nodes", "no", "service", "services", "svc"].contains(name) => {
            let text = format!(
                "{name:?}: of which kind? node/{name}, or service/{name} for the Service in the namespace {}; -n names another",
                namespaces.default
            );
            return Err(Failure::error(text));
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
        within(words, None)
    }

    fn within(words: &[&str], asked: Option<&str>) -> Result<Scope, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let asked = asked.map(str::to_owned);
        let default = asked.clone().unwrap_or_else(|| "default".to_owned());
        let forms = "expected node/NAME, service/NAMESPACE/NAME or routes";
        parse(&words, forms, &Namespace { asked, default }).map_err(|failure| failure.message)
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
        assert_eq!(of(&["svc/web"]), Ok(web()));
        assert_eq!(of(&["svc", "web"]), Ok(web()));
        let shop = Scope::Service(ServiceKey { namespace: "shop".into(), name: "web".into() });
        assert_eq!(within(&["svc/web"], Some("shop")), Ok(shop.clone()));
        assert_eq!(within(&["svc/shop/web"], Some("shop")), Ok(shop));
        let error = within(&["svc/default/web"], Some("shop")).unwrap_err();
        assert!(error.contains("--namespace=shop contradict each other"), "{error}");
    }

    #[test]
    fn a_bare_name_is_an_error_that_shows_how_to_write_it_with_each_kind() {
        let text = within(&["web"], Some("shop")).unwrap_err();
        assert!(text.contains("node/web, or service/web for the Service in the namespace shop"), "{text}");
    }

    #[test]
    fn another_word_is_an_error_that_shows_the_forms() {
        for words in [&["pod/x"][..], &["node"], &["node/"], &["service//x"], &["node", "a", "b"], &["a", "b", "c"]] {
            let text = of(words).unwrap_err();
            assert!(text.contains("expected node/NAME, service/NAMESPACE/NAME or routes"), "{words:?}: {text}");
        }
    }
}
