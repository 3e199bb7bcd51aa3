//! `ccm migrate-values`: the values of the charts of the Go programs as values of the chart of this program. Each key is
//! taken, or listed with what to do.

mod charts;
#[cfg(test)]
mod tests;

use ccm_kit::document::did_you_mean;
use ccm_provider::flag::{Flag, Kind, go_bool};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use self::charts::{CHARTS, Chart, Take};
use super::output::{Format, Output, flat, yaml};
use super::{Call, Command, SECTION, kubeconfig, lint};
use crate::exit::{Failure, Verdict};
use crate::options::parse;

const FROM: Flag =
    Flag::new(SECTION, "from", Kind::Text, "", "The chart that the values are of: aws, azure or openstack.");

pub(super) const COMMAND: Command = Command {
    name: "migrate-values",
    words: "FILE…",
    about: "Converts the values of a Go program's chart to values of this program's chart.",
    details: "\
The charts of cloud-provider-aws, cloud-provider-azure and openstack-cloud-controller-manager are known.
Several files are merged in their order, as helm does. - is stdin. The result begins with comments: each key, what it became,
and what is left to do. It contains the secrets of the input.

Exit codes: 0 every key is taken, 2 something is left to do, 1 an input could not be read.

  helm get values NAME -n kube-system -o yaml | ccm migrate-values --from=openstack - > values.yaml
  helm install ccm manifests/charts/ccm -n kube-system -f values.yaml --set image.repository=… --set image.tag=…",
    flags: &[FROM],
    namespace: &kubeconfig::NO_NAMESPACE,
    formats: &[],
    like_running: false,
    run,
};

/// The known charts, for completion.
pub(super) fn charts() -> impl Iterator<Item = &'static str> {
    CHARTS.iter().map(|chart| chart.name)
}

/// A key of the other chart, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    key: String,
    text: String,
}

/// The conversion so far.
#[derive(Debug)]
struct Converted<'a> {
    flags: &'a [Flag],
    /// The values of the other chart, with its defaults.
    given: Value,
    /// The values of the chart of this program.
    values: Map<String, Value>,
    taken: Vec<Line>,
    open: Vec<Line>,
}

fn run(call: Call) -> BoxFuture<'static, Result<Verdict, Failure>> {
    async move {
        let from = call.values.text(FROM.name);
        let chart = CHARTS.iter().find(|chart| chart.name == from).ok_or_else(|| {
            let names = charts().collect::<Vec<_>>();
            let hint = did_you_mean(&from, &names).unwrap_or_default();
            Failure::error(format!(
                "--from={from}: expected the chart of the values, one of {}{hint}",
                names.join(", ")
            ))
        })?;
        if call.words.is_empty() {
            return Err(Failure::error("no values: name their files, or - for stdin"));
        }
        let given = given(lint::documents(&call.words).map_err(Failure::error)?).map_err(Failure::error)?;
        let converted = convert(chart, given, &call.program.flags);
        super::deliver(&converted.render(chart, call.output))?;
        Ok(if converted.open.is_empty() { Verdict::Clean } else { Verdict::Findings })
    }
    .boxed()
}

/// The values of all files. `helm get values` prints null for an installation without values of its own.
fn given(documents: impl IntoIterator<Item = Value>) -> Result<Map<String, Value>, String> {
    let mut given = Map::new();
    for document in documents {
        let of_values = "`helm get values NAME --namespace NAMESPACE -o yaml` prints them";
        match document {
            Value::Null => {}
            Value::Object(object) if object.contains_key("apiVersion") && object.contains_key("kind") => {
                let kind = text(at(&object.into(), "kind"));
                return Err(format!("this is a manifest ({kind}), and not the values of a chart: {of_values}"));
            }
            Value::Object(values) => {
                let mut all = Value::Object(given);
                merge(&mut all, values.into());
                given = all.as_object().cloned().unwrap_or_default();
            }
            _ => return Err(format!("these are not values of a chart: expected a map; {of_values}")),
        }
    }
    Ok(given)
}

/// As Helm merges values: maps by key, everything else as a whole.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn convert<'a>(chart: &Chart, given: Map<String, Value>, flags: &'a [Flag]) -> Converted<'a> {
    // What the other chart sets by itself holds too, where this one sets something else.
    let mut values: Value = serde_json::from_str(chart.defaults).unwrap_or_default();
    merge(&mut values, Value::Object(given));
    let given = values.clone();
    let mut converted = Converted { flags, given, values: Map::new(), taken: Vec::new(), open: Vec::new() };
    converted.set("cloudProvider", chart.name.into());
    converted.walk(chart, "", &values);
    (chart.last)(&mut converted, &values);
    converted.complete();
    converted
}

/// The value at a path of names with dots.
fn at<'v>(values: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(values, |value, name| value.get(name).unwrap_or(&Value::Null))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A scalar as an argument has it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Converted<'_> {
    fn walk(&mut self, chart: &Chart, above: &str, values: &Value) {
        let mut fields: Vec<_> = values.as_object().into_iter().flatten().collect();
        // The container has the arguments of the user after its own: the last one counts, and lists add up.
        fields.sort_by_key(|(name, _)| *name == "controllerExtraArgs");
        for (name, value) in fields {
            let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
            let row = chart.rows.iter().find(|(known, _)| *known == key);
            let within = format!("{key}.");
            match row {
                // The default of the chart there is to set nothing.
                Some((_, Take::As(_) | Take::Flag(_) | Take::With(_))) if is_empty(value) => {
                    self.took(&key, "nothing: it is empty");
                }
                Some((_, Take::As(ours))) => {
                    self.set(ours, value.clone());
                    self.took(&key, ours);
                }
                Some((_, Take::Flag(flag))) => self.argument(&key, &format!("--{flag}={}", text(value))),
                Some((_, Take::With(take) | Take::Always(take))) => take(self, &key, value),
                Some((_, Take::Nothing(why))) => self.took(&key, &format!("nothing: {why}")),
                Some((_, Take::Open(what))) => self.open(&key, what),
                None if value.is_object() && chart.rows.iter().any(|(known, _)| known.starts_with(&within)) => {
                    self.walk(chart, &key, value);
                }
                None => self.open(&key, "that chart does not have this key; look for a misspelling, or leave it out"),
            }
        }
    }

    fn took(&mut self, key: &str, what: &str) {
        self.taken.push(Line { key: key.to_owned(), text: what.to_owned() });
    }

    fn open(&mut self, key: &str, what: &str) {
        self.open.push(Line { key: key.to_owned(), text: what.to_owned() });
    }

    /// Sets a value, by a path of names with dots.
    fn set(&mut self, path: &str, value: Value) {
        let mut value = value;
        for name in path.rsplit('.') {
            value = json!({ name: value });
        }
        let mut all = Value::Object(std::mem::take(&mut self.values));
        merge(&mut all, value);
        if let Value::Object(all) = all {
            self.values = all;
        }
    }

    /// What values of the same name lack here. The defaults of this chart forbid root, and its schema wants objects.
    fn complete(&mut self) {
        let values = Value::Object(self.values.clone());
        for context in ["podSecurityContext", "containerSecurityContext"] {
            let context_of = at(&values, context);
            if at(context_of, "runAsUser").as_i64() == Some(0) && at(context_of, "runAsNonRoot").is_null() {
                self.set(&format!("{context}.runAsNonRoot"), false.into());
            }
        }
        if let Some(Value::Array(secrets)) = self.values.get_mut("imagePullSecrets") {
            for secret in secrets.iter_mut().filter(|secret| secret.is_string()) {
                *secret = json!({"name": secret.take()});
            }
        }
    }

    /// Whether this argument is a flag whose value is the next argument.
    fn wants_value(&self, argument: &str) -> bool {
        let flag = self.flags.iter().find(|flag| match argument.strip_prefix("--") {
            Some(name) => name.replace('_', "-") == flag.name,
            None => flag.short.is_some_and(|short| argument == format!("-{short}")),
        });
        flag.is_some_and(|flag| parse::bare(flag.kind).is_none())
    }

    /// An argument of the program: a value of its own in the chart, or one of `flags`.
    fn argument(&mut self, key: &str, argument: &str) {
        let place = format!("{key} {argument}");
        if argument.contains("{{") {
            return self
                .open(&place, "a template of that chart: write its result into the values, then convert them again");
        }
        let words = argument.trim_start_matches('-');
        let (name, value) = words.split_once('=').unwrap_or((words, "true"));
        let name = name.replace('_', "-");
        // `-v4`
        let (name, value) =
            match name.strip_prefix('v').filter(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())) {
                Some(level) => ("v".to_owned(), level),
                None => (name, value),
            };
        let is_known = self
            .flags
            .iter()
            .any(|flag| flag.name == name || flag.short.is_some_and(|short| name == short.to_string()));
        if !argument.starts_with('-') {
            // The charts of images without an entry point name the program.
            return match argument.ends_with("cloud-controller-manager") {
                true => self.took(&place, "nothing: the image has an entry point"),
                false => self.open(&place, "not a flag: leave it out"),
            };
        }
        if !is_known {
            let what =
                "this program has no such flag (or its image not the provider): leave it out, or see `ccm --help`";
            return self.open(&place, what);
        }
        let ours = match &*name {
            "cloud-provider" => "cloudProvider",
            "cluster-name" => "clusterName",
            "v" => "verbosity",
            "controllers" => "controllers",
            "configure-cloud-routes" => "routes.enabled",
            "cluster-cidr" => "routes.clusterCIDR",
            "use-service-account-credentials" => "serviceAccountCredentials",
            "leader-elect-resource-name" => "leaderElection.leaseName",
            "leader-elect-resource-namespace" => "leaderElection.namespace",
            "enable-leader-migration" => "leaderElection.migration",
            "bind-address" => "bindAddress",
            "secure-port" => "securePort",
            "webhook-secure-port" => "volumeWebhook.port",
            _ => return self.flag(&place, &name, value),
        };
        let value = match ours {
            // Of a repeated flag all names count.
            "controllers" => {
                let before = self.values.get(ours).and_then(Value::as_array).cloned().unwrap_or_default();
                before.into_iter().chain(value.split(',').map(|name| name.trim().into())).collect()
            }
            "verbosity" | "securePort" | "volumeWebhook.port" => value.parse::<u32>().map_or(value.into(), Value::from),
            "routes.enabled" | "serviceAccountCredentials" | "leaderElection.migration" => {
                go_bool(value).map_or(value.into(), Value::from)
            }
            _ => value.into(),
        };
        self.set(ours, value);
        self.took(&place, ours);
    }

    /// Under `flags`; of a repeated flag all values.
    fn flag(&mut self, place: &str, name: &str, value: &str) {
        let flags = self.values.entry("flags").or_insert_with(|| json!({}));
        if let Some(flags) = flags.as_object_mut() {
            let value = match flags.remove(name) {
                None => value.into(),
                Some(Value::Array(mut all)) => {
                    all.push(value.into());
                    all.into()
                }
                Some(first) => json!([first, value]),
            };
            flags.insert(name.to_owned(), value);
        }
        self.took(place, &format!("flags.{name}"));
    }

    fn render(&self, chart: &Chart, output: Output) -> String {
        let lines = |lines: &[Line], name: &str| -> Value {
            lines.iter().map(|line| json!({"key": line.key, name: line.text})).collect()
        };
        if output.format != Format::Text {
            return output.document(
                "Values",
                json!({"values": self.values, "taken": lines(&self.taken, "as"), "open": lines(&self.open, "todo")}),
            );
        }
        let mut text = format!("# From values of {}.\n", chart.about);
        for (title, lines) in [("To do", &self.open), ("Taken", &self.taken)] {
            if !lines.is_empty() {
                text += &format!("# {title}:\n");
            }
            for line in lines {
                text += &format!("#   {}: {}\n", flat(&line.key), flat(&line.text));
            }
        }
        text + &yaml(&Value::Object(self.values.clone()))
    }
}
