//! Selects the rules for each input and locates the findings.

use std::collections::BTreeSet;

use ccm_controllers::service::lint::{self as core, Class};
use ccm_kit::gcfg;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, Lint, Service, Severity};

use super::source::Source;
use super::tree::{self, Broken, Node};
use super::{object, spelling};

/// The rules that apply to all clouds.
const CORE: &str = "core";
const TEMPLATE: &str = "a template cannot be checked; render it first: helm template … | ccm lint -";

/// Checks of providers, by name.
#[derive(Clone, Default)]
pub(super) struct Linters<'a> {
    pub(super) all: Vec<(&'static str, &'a dyn Lint)>,
    /// Whether the user selected the cloud. If not, a provider's findings count only for its own keys.
    pub(super) chosen: bool,
    /// The classes that the program's controllers handle.
    pub(super) classes: Vec<Class>,
}

/// A finding and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// `None`: the object is in the cluster.
    pub(super) file: Option<String>,
    pub(super) line: Option<usize>,
    /// The document number in the file, starting at 1.
    pub(super) document: Option<usize>,
    /// `service default/web`; empty for a finding about a file.
    pub(super) object: String,
    /// The origin of the rule: `core`, or a provider.
    pub(super) rules: &'static str,
    pub(super) finding: Finding,
}

impl Found {
    fn new(rules: &'static str, finding: Finding) -> Self {
        Self { file: None, line: None, document: None, object: String::new(), rules, finding }
    }
}

#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) found: Vec<Found>,
    pub(super) files: usize,
    pub(super) services: usize,
    /// The number of objects that are not Services.
    pub(super) skipped: usize,
}

impl Looked {
    pub(super) fn at_source(&mut self, source: &Source, linters: &Linters<'_>) {
        self.files += 1;
        let parsed = tree::parse(&source.text);
        let file = || Some(source.name.clone());
        let broken = of_text(&source.text, parsed.broken);
        let mut found: Vec<Found> = broken
            .into_iter()
            .map(|(line, finding)| Found { file: file(), line: Some(line), ..Found::new(CORE, finding) })
            .collect();
        for (number, document) in &parsed.documents {
            let (services, others) = object::services(document);
            self.services += services.len();
            self.skipped += others;
            for node in services {
                let mut wrong = Vec::new();
                let service = object::read(node, &mut wrong);
                let (filled_in, mut findings): (Vec<_>, Vec<_>) = of_service(&service, wrong, linters)
                    .into_iter()
                    .partition(|(_, finding)| is_filled_in(&service, finding));
                if let Some((_, first)) = filled_in.into_iter().next() {
                    findings.push((CORE, Finding::new(Severity::Info, first.key, TEMPLATE)));
                }
                found.extend(findings.into_iter().map(|(rules, finding)| Found {
                    file: file(),
                    line: Some(line(node, &finding.key)),
                    document: Some(*number),
                    object: name(&service),
                    ..Found::new(rules, finding)
                }));
            }
        }
        self.add(found);
    }

    pub(super) fn at_service(&mut self, service: &Service, linters: &Linters<'_>) {
        self.services += 1;
        let findings = of_service(service, Vec::new(), linters);
        let at = |(rules, finding)| Found { object: name(service), ..Found::new(rules, finding) };
        self.found.extend(findings.into_iter().map(at));
    }

    /// Checks a file of `--cloud-config`.
    pub(super) fn at_config(&mut self, source: &Source, provider: &'static str, lint: &dyn Lint) {
        self.files += 1;
        let at = |finding| {
            let line = config_line(&source.text, &finding);
            let finding = Finding { message: without_line(finding.message, line), ..finding };
            Found { file: Some(source.name.clone()), line, ..Found::new(provider, finding) }
        };
        self.add(lint.config(&source.text).into_iter().map(at).collect());
    }

    /// Adds the findings of a file in line order.
    fn add(&mut self, mut found: Vec<Found>) {
        found.sort_by_key(|found| (found.line, std::cmp::Reverse(found.finding.severity)));
        self.found.append(&mut found);
    }

    pub(super) fn worst(&self) -> Option<Severity> {
        self.found.iter().map(|found| found.finding.severity).max()
    }
}

/// Syntax errors of a text. A template is not an error: it cannot be parsed before it is rendered.
fn of_text(text: &str, broken: Vec<Broken>) -> Vec<(usize, Finding)> {
    if let Some(template) = broken.iter().find(|broken| is_template(text, broken.line)) {
        return vec![(template.line, Finding::new(Severity::Info, "", TEMPLATE))];
    }
    broken.into_iter().map(|broken| (broken.line, Finding::new(Severity::Error, "", broken.message))).collect()
}

/// Whether the document that cannot be parsed at this line is a template before that line.
fn is_template(text: &str, line: usize) -> bool {
    let mut found = false;
    for line in text.lines().take(line) {
        found = !line.starts_with("---") && (found || acts(line));
    }
    found
}

/// Whether a line has a template action outside quotes and comments.
fn acts(line: &str) -> bool {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) => quote = quote.filter(|_| c != open),
            None if c == '#' && before.is_whitespace() => return false,
            None if matches!(c, '"' | '\'') && !before.is_alphanumeric() => quote = Some(c),
            None if line.get(at..).is_some_and(|rest| rest.starts_with("{{")) => return true,
            None => {}
        }
        before = c;
    }
    false
}

/// Whether a finding concerns a value that a template fills in: in quotes it is valid YAML.
fn is_filled_in(service: &Service, finding: &Finding) -> bool {
    let has_braces = |text: &str| text.contains("{{") || text.contains("}}");
    let value = finding.value.as_ref().or_else(|| service.metadata.annotations.get(&finding.key));
    has_braces(&finding.message) || value.is_some_and(|value| has_braces(value))
}

/// `service default/web`; without the namespace if the file sets none.
fn name(service: &Service) -> String {
    let meta = &service.metadata;
    match (meta.namespace.is_empty(), meta.name.is_empty()) {
        (_, true) => "service without a name".to_owned(),
        (true, _) => format!("service {}", meta.name),
        (false, _) => format!("service {}", service.key()),
    }
}

/// The findings of all rules, after those in `wrong`, whose keys are not checked again.
pub(super) fn of_service(
    service: &Service,
    wrong: Vec<Finding>,
    linters: &Linters<'_>,
) -> Vec<(&'static str, Finding)> {
    let known_wrong: BTreeSet<String> = wrong.iter().map(|finding| finding.key.clone()).collect();
    let is_new = |finding: &Finding| !known_wrong.contains(&finding.key);
    let mut all: Vec<(&'static str, Finding)> = wrong.into_iter().map(|finding| (CORE, finding)).collect();
    let mut add = |rules: &'static str, findings: Vec<Finding>| {
        for finding in findings.into_iter().filter(is_new) {
            if !all.iter().any(|(_, known)| *known == finding || rules != CORE && is_same_mistake(known, &finding)) {
                all.push((rules, finding));
            }
        }
    };
    let needs_node_ports = !linters.chosen || linters.all.iter().all(|(_, lint)| lint.needs_node_ports());
    add(CORE, core::lint(service, &linters.classes, needs_node_ports));
    // Providers ignore Services of other types.
    for (provider, lint) in linters.all.iter().filter(|_| service.is_load_balancer()) {
        let mut findings = lint.service(service);
        // The cloud of the Service is unknown, so only the provider's own annotations count.
        findings.retain(|finding| linters.chosen || is_of_a_cloud(service, &finding.key));
        add(provider, findings);
    }
    // Drop infos about keys that also have an error or a warning.
    let wrong: BTreeSet<String> =
        all.iter().filter(|(_, f)| f.severity > Severity::Info).map(|(_, f)| f.key.clone()).collect();
    // A provider names `spec.ports[]` for a finding about all ports.
    let is_idle = |key: &str| wrong.iter().any(|wrong| wrong.split("[]").next() == Some(key));
    all.retain(|(_, finding)| finding.severity > Severity::Info || !is_idle(&finding.key));
    let reported: BTreeSet<String> = all.iter().map(|(_, finding)| finding.key.clone()).collect();
    let misspelt = spelling::lint(service).into_iter().filter(|finding| !reported.contains(&finding.key));
    all.extend(misspelt.map(|finding| (CORE, finding)));
    all
}

/// Whether a provider repeats a known error in other words: for the same key or the list that contains it.
fn is_same_mistake(known: &Finding, finding: &Finding) -> bool {
    let both = known.severity == Severity::Error && finding.severity == Severity::Error;
    both && known.key.strip_prefix(&finding.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
}

fn is_of_a_cloud(service: &Service, key: &str) -> bool {
    key != ANNOTATION_SOURCE_RANGES && service.metadata.annotations.contains_key(key)
}

/// The line of an annotation or of a field of a Service.
fn line(object: &Node, key: &str) -> usize {
    let annotation = object.get("metadata").and_then(|meta| meta.get("annotations")?.entry(key));
    annotation.map_or_else(|| object.line_of(key), |entry| entry.line)
}

/// The message without its leading `line N: `, which is printed separately.
fn without_line(message: String, line: Option<usize>) -> String {
    let rest = line.and_then(|line| message.strip_prefix(&format!("line {line}: ")));
    rest.map(str::to_owned).unwrap_or(message)
}

/// The line in a cloud config: the one that starts the message, that of a `[Section] Key`, or that of a path.
fn config_line(text: &str, finding: &Finding) -> Option<usize> {
    let Finding { key, message, .. } = finding;
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    if let Some(line) = message.strip_prefix("line ").and_then(number) {
        return Some(line);
    }
    if key.starts_with('[') {
        return gcfg_line(text, finding);
    }
    let parsed = tree::parse(text);
    if let Some((_, root)) =
        parsed.documents.first().filter(|(_, root)| root.line_of(key) > root.line || root.entry(key).is_some())
    {
        return Some(root.line_of(key));
    }
    let reported = message.split("line ").skip(1).find_map(number);
    reported.or_else(|| parsed.broken.first().map(|broken| broken.line).filter(|_| parsed.documents.is_empty()))
}

/// The entry with the value in the finding, else the last entry of the key, else the header.
fn gcfg_line(text: &str, finding: &Finding) -> Option<usize> {
    let (header, key) = finding.key.strip_prefix('[')?.split_once(']')?;
    let key = key.trim();
    // A section without its required name is treated as one with an empty name.
    let (name, subsection) = match header.split_once(' ') {
        Some((name, quoted)) => (name, serde_json::from_str::<String>(quoted).ok()?),
        None => (header, String::new()),
    };
    let document = gcfg::parse(text).ok()?;
    let sections = document
        .sections
        .iter()
        .filter(|section| section.name.eq_ignore_ascii_case(name))
        .filter(|section| section.subsection.as_deref().unwrap_or_default() == subsection);
    let (mut header, mut of_key, mut of_value) = (None, None, None);
    for section in sections {
        header = header.or(Some(section.at.line));
        for entry in section.entries.iter().filter(|entry| entry.key.eq_ignore_ascii_case(key)) {
            of_key = Some(entry.at.line);
            if entry.value.is_some() && entry.value == finding.value {
                of_value = of_value.or(of_key);
            }
        }
    }
    of_value.or(of_key).or(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cloud that has the same errors in every Service and in every cloud config: keys and messages.
    struct Fixed(&'static [(&'static str, &'static str)]);

    impl Lint for Fixed {
        fn service(&self, _: &Service) -> Vec<Finding> {
            self.0.iter().map(|(key, message)| Finding::new(Severity::Error, *key, *message)).collect()
        }

        fn config(&self, _: &str) -> Vec<Finding> {
            self.service(&Service::default())
        }
    }

    /// A cloud that rejects one word in its own annotation and one field.
    struct Picky;

    impl Lint for Picky {
        fn service(&self, service: &Service) -> Vec<Finding> {
            let own = service.metadata.annotations.get("picky.example.com/size");
            let own = own.filter(|size| *size == "huge").map(|size| Finding {
                value: Some(size.clone()),
                ..Finding::new(Severity::Error, "picky.example.com/size", "too much")
            });
            own.into_iter().chain([Finding::new(Severity::Error, "spec.type", "no balancers here")]).collect()
        }

        fn config(&self, _: &str) -> Vec<Finding> {
            Vec::new()
        }
    }

    /// A cloud whose load balancers send to the ports of the Service.
    struct Direct;

    impl Lint for Direct {
        fn service(&self, _: &Service) -> Vec<Finding> {
            Vec::new()
        }

        fn needs_node_ports(&self) -> bool {
            false
        }

        fn config(&self, _: &str) -> Vec<Finding> {
            Vec::new()
        }
    }

    fn found(text: &str, linters: &Linters<'_>) -> Vec<Found> {
        let mut looked = Looked::default();
        looked.at_source(&Source { name: "f".into(), text: text.into() }, linters);
        looked.found
    }

    fn look(text: &str, chosen: bool) -> Vec<String> {
        let line =
            |f: &Found| format!("{} {} {} {}", f.line.unwrap(), f.document.unwrap_or_default(), f.rules, f.finding);
        let linters = Linters { all: vec![("picky", &Picky)], chosen, classes: Vec::new() };
        found(text, &linters).iter().map(line).collect()
    }

    #[test]
    fn findings_have_the_line_of_their_key_and_come_in_that_order() {
        let text = "kind: Pod\n---\n# a comment\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    \"picky.example.com/size\": huge\n    \
                    service.beta.kubernetes.io/load-balancer-source-range: x\n    x: yes\nspec:\n  type: LoadBalancer\n  \
                    ports: [{port: 80,\n    protocol: tcp}]\n";
        assert_eq!(
            look(text, true),
            [
                "8 2 picky picky.example.com/size \"huge\": too much",
                "9 2 core service.beta.kubernetes.io/load-balancer-source-range \"x\": unknown key, no effect; did you mean \
                 \"service.beta.kubernetes.io/load-balancer-source-ranges\"?",
                "10 2 core x \"true\": expected text: put the value in quotes",
                "12 2 picky spec.type: no balancers here",
                "14 2 core spec.ports[0].protocol \"tcp\": unknown word; expected TCP, UDP or SCTP",
            ]
        );
    }

    #[test]
    fn a_missing_node_port_is_no_finding_where_the_chosen_cloud_needs_none() {
        let text =
            "{kind: Service, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}";
        let keys = |lint: &dyn Lint, chosen| {
            let linters = Linters { all: vec![("x", lint)], chosen, classes: Vec::new() };
            found(text, &linters).into_iter().map(|found| found.finding.key).collect::<Vec<_>>()
        };
        let warning = "spec.allocateLoadBalancerNodePorts";
        assert_eq!(keys(&Direct, true), [""; 0]);
        assert_eq!(
            (keys(&Direct, false), keys(&Fixed(&[]), true)),
            (vec![warning.to_owned()], vec![warning.to_owned()])
        );
    }

    #[test]
    fn a_cloud_that_was_not_chosen_checks_only_its_own_keys() {
        let text = "{kind: Service, metadata: {annotations: {picky.example.com/size: huge}}, spec: {type: LoadBalancer, ports: [{port: 1}]}}";
        assert_eq!(look(text, false), ["1 1 picky picky.example.com/size \"huge\": too much"]);
        assert_eq!(look(text, true).len(), 2);
    }

    #[test]
    fn a_class_of_this_program_is_not_called_anothers() {
        let keys = |is_on| {
            let class = Class { name: "x.io/b", controller: "x-service-lb-controller", provider: "x", is_on };
            let linters = Linters { classes: vec![class], ..Linters::default() };
            let text = "{kind: Service, spec: {type: LoadBalancer, loadBalancerClass: x.io/b, ports: [{port: 80}]}}";
            found(text, &linters).into_iter().map(|found| found.finding.message).collect::<Vec<_>>()
        };
        assert_eq!(keys(true), [""; 0]);
        let off = keys(false);
        assert!(
            off[0].contains("--cloud-provider=x") && off[0].contains("--controllers=*,x-service-lb-controller"),
            "{off:?}"
        );
    }

    #[test]
    fn an_error_is_not_reported_twice() {
        assert_eq!(
            look("{kind: Service, spec: {ports: [{port: '80'}]}}", false),
            ["1 1 core spec.ports[0].port: invalid type: string \"80\", expected a whole number"]
        );
    }

    #[test]
    fn a_cloud_does_not_repeat_a_reported_error() {
        let echo = Fixed(&[("spec.loadBalancerSourceRanges", "no CIDR"), ("spec.loadBalancerIP", "not possible here")]);
        let linters = Linters { all: vec![("echo", &echo)], chosen: true, classes: Vec::new() };
        let look = |spec: &str| {
            let found = found(&format!("{{kind: Service, spec: {{ports: [{{port: 80}}], {spec}}}}}"), &linters);
            found.iter().map(|f| format!("{} {}", f.rules, f.finding.key)).collect::<Vec<_>>()
        };
        assert_eq!(
            look("type: LoadBalancer, loadBalancerIP: 192.0.2.1, loadBalancerSourceRanges: [10.0.0.0/8, x, z]"),
            [
                "core spec.loadBalancerSourceRanges[1]",
                "core spec.loadBalancerSourceRanges[2]",
                "echo spec.loadBalancerIP"
            ],
            "the deprecation is idle beside the error"
        );
        assert_eq!(look("type: ClusterIP"), [""; 0], "nobody reads it");
    }

    #[test]
    fn an_info_is_dropped_beside_an_error_of_the_cloud() {
        let one = Fixed(&[("spec.ports[].protocol", "one protocol only")]);
        let text = "{kind: Service, spec: {type: LoadBalancer, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]}}";
        let keys = |all: Vec<(&'static str, &dyn Lint)>| {
            let linters = Linters { all, chosen: true, classes: Vec::new() };
            found(text, &linters).into_iter().map(|found| found.finding.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(Vec::new()), ["spec.ports"]);
        assert_eq!(keys(vec![("one", &one)]), ["spec.ports[].protocol"]);
    }

    #[test]
    fn a_broken_document_is_a_finding_and_the_others_are_looked_at() {
        assert_eq!(
            look("kind: Service\nspec: {\n---\nkind: Service\nspec: {type: Nope, ports: [{port: 1}]}\n", false),
            [
                "2 0 core : cannot be read: unclosed bracket '{'",
                "5 2 core spec.type \"Nope\": unknown word; expected ClusterIP, NodePort, LoadBalancer or ExternalName",
            ]
        );
    }

    fn reported(text: &str) -> Vec<(usize, Severity)> {
        found(text, &Linters::default()).iter().map(|f| (f.line.unwrap(), f.finding.severity)).collect()
    }

    #[test]
    fn a_template_is_reported_once_and_is_no_mistake() {
        for (text, line) in [
            ("{{- if .Values.on }}\nkind: Service\n---\nspec: {{ .Values.spec }}\n", 1),
            ("kind: Service\nmetadata:\n  name: {{ .Values.name }}\n---\nspec: {{ .Values.spec }}\n", 3),
        ] {
            assert_eq!(reported(text), [(line, Severity::Info)], "{text}");
        }
    }

    #[test]
    fn a_template_is_recognized_wherever_its_first_action_is() {
        let rows = [
            ("{{/*\nThe name: of it [\n*/}}\nkind: Service\n", 2, Severity::Info),
            ("kind: Service\nmetadata:\n  name: it's {{ .x }}\n  labels: {\n", 4, Severity::Info),
            ("kind: Service\n# {{ .x }}\nspec: {\n", 3, Severity::Error),
            ("kind: Service\nmetadata: {name: '{{ .x }}'}\nspec: {\n", 3, Severity::Error),
            ("a: {{ .x }}\n---\nspec: {\n", 1, Severity::Info),
        ];
        for (text, line, severity) in rows {
            let found = reported(text);
            assert_eq!(found.first().map(|(_, severity)| *severity), Some(severity), "{text} {found:?}");
            assert!(found.len() == 1 && found[0].0.abs_diff(line) <= 1, "{text} {found:?}");
        }
    }

    #[test]
    fn values_that_a_template_fills_in_are_no_mistakes() {
        let text = "kind: Service\nmetadata: {name: '{{ .n }}', annotations: {picky.example.com/size: huge}}\nspec:\n  \
                    type: LoadBalancer\n  externalTrafficPolicy: '{{ .policy }}'\n  ports:\n  - port: '{{ .port }}'\n    \
                    protocol: \"{{ .protocol }}\"\n";
        assert_eq!(
            look(text, false),
            [
                "2 1 picky picky.example.com/size \"huge\": too much",
                "7 1 core spec.ports[0].port: a template cannot be checked; render it first: helm template … | ccm lint -",
            ]
        );
    }

    #[test]
    fn the_line_of_a_mistake_in_a_cloud_config_is_reported_once() {
        let mut looked = Looked::default();
        let numbered = Fixed(&[("[Global] x", "line 2: wrong")]);
        looked.at_config(&Source { name: "f".into(), text: "[Global]\nx\n".into() }, "numbered", &numbered);
        let found = &looked.found[0];
        assert_eq!((found.line, &*found.finding.message), (Some(2), "wrong"));
    }

    #[test]
    fn the_line_in_a_cloud_config_is_found_for_both_kinds_of_files() {
        let gcfg = "[Global]\nZone = a\nzone = b ; twice\n[Other \"x y\"]\nKey\n";
        let yaml = "instances:\n- name: a\n  shutdwon: true\nzone: b\n";
        let rows = [
            (gcfg, "[Global] Zone", Some("a"), "wrong", Some(2)),
            (gcfg, "[global] zone", None, "wrong", Some(3)),
            (gcfg, "[Global] VPC", None, "needed", Some(1)),
            (gcfg, "[Other \"x y\"] key", None, "wrong", Some(5)),
            (gcfg, "[Other \"z\"] key", None, "wrong", None),
            ("[Other]\nKey = a\n", "[Other \"\"] key", None, "wrong", Some(2)),
            (gcfg, "[Global] Zone", Some("a"), "line 3: a value", Some(3)),
            (yaml, "instances[0].shutdwon", None, "unknown key", Some(3)),
            (yaml, "instances[0].name", None, "wrong", Some(2)),
            (yaml, "zone", None, "wrong", Some(4)),
            (yaml, "instances", None, "wrong", Some(1)),
            ("a: [\n", "cloud-config", None, "did not end at line 2, column 1", Some(2)),
            ("a:\n b: [\n", "cloud-config", None, "did not end", Some(2)),
            (yaml, "cloud-config", None, "empty", None),
        ];
        for (text, key, value, message, expected) in rows {
            let finding = Finding { value: value.map(Into::into), ..Finding::new(Severity::Error, key, message) };
            assert_eq!(config_line(text, &finding), expected, "{key} {message}");
        }
    }
}
