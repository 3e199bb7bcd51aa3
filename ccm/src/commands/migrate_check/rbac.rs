//! RBAC: whether the account that will run this program has the permissions that its parts declare.

use std::collections::{BTreeMap, BTreeSet};

use ccm_controllers::service;
use ccm_provider::{Check, ConfigMapSpec, Related, SecretKey};
use ccm_runtime::client::{ApiError, Call};
use ccm_runtime::config_maps;
use ccm_runtime::permission::{
    DELEGATED, ELECTION, EVENTS, LEADER_MIGRATION, LEASE, MAKE_ACCOUNTS, MIGRATION_LEASE, STORES, SYSTEM_NAMESPACE,
    account as account_of,
};
use ccm_runtime::{Client, Permission};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DEFAULT_ACCOUNT, join};
use crate::Controller;
use crate::options::Options;

const CHECK: &str = "rbac";
/// Concurrent reviews.
const AT_ONCE: usize = 16;
const REVIEW: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const SELF_REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The ConfigMap with the API server's authentication settings; every cluster has a role for reading it.
pub(super) const AUTHENTICATION: &str = "extension-apiserver-authentication";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    /// Empty if only a kubeconfig names it, or pods cannot be listed.
    pub(super) account: String,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    names: Vec<String>,
    pub(super) namespace: Option<String>,
}

/// The required verbs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Need {
    verbs: BTreeMap<&'static str, Use>,
    /// Whether an enabled feature fails without it.
    vital: bool,
    /// Another account that may have it instead.
    instead: Option<String>,
}

/// The purpose of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    why: BTreeSet<&'static str>,
    /// See [`Permission::or`].
    or: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) right: Right,
    pub(super) verb: &'static str,
    pub(super) name: String,
}

/// What the provider needs from the API server.
#[derive(Debug, Default)]
pub(super) struct Provider {
    /// With whether it is there; `None`: the user of this command may not see that.
    pub(super) config_maps: Vec<(&'static ConfigMapSpec, Option<bool>)>,
    /// The Secret with its configuration.
    pub(super) secret: Option<SecretKey>,
    /// The objects that its load balancers depend on.
    pub(super) related: Related,
}

/// The answers, and the identity for which they apply.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) granted: BTreeMap<Question, bool>,
    /// The reason, if only the identity of this command could be reviewed.
    pub(super) about_us: Option<String>,
}

impl Right {
    /// The same of another account.
    fn of(&self, account: &str) -> Self {
        Self { account: account.to_owned(), ..self.clone() }
    }
}

impl Need {
    /// Whether something fails, or is missing, because this is refused.
    fn is_missed(&self, refused: &Question, answers: &Answers) -> bool {
        let Some(of_verb) = self.verbs.get(refused.verb) else { return false };
        let is_granted = |question| answers.granted.get(&question).copied().unwrap_or_default();
        let serves = |verb| is_granted(Question { verb, ..refused.clone() });
        let has = |account: &String| is_granted(Question { right: refused.right.of(account), ..refused.clone() });
        !of_verb.or.is_some_and(|verb| verb.is_empty() || serves(verb)) && !self.instead.as_ref().is_some_and(has)
    }
}

#[derive(Debug, Default)]
pub(super) struct Needs(BTreeMap<Right, Need>);

impl Needs {
    fn add(&mut self, account: &str, options: &Options, permissions: &[Permission], vital: bool) {
        for permission in permissions {
            self.add_at(account, place(permission, options), permission, vital);
        }
    }

    fn add_at(
        &mut self,
        account: &str,
        (namespace, names): (Option<String>, Vec<String>),
        permission: &Permission,
        vital: bool,
    ) -> &mut Need {
        let &Permission { group, resource, verbs, why, or, .. } = permission;
        let right = Right { account: account.to_owned(), group, resource, names, namespace };
        let need = self.0.entry(right).or_default();
        for verb in verbs {
            let of_verb = need.verbs.entry(verb).or_insert(Use { why: BTreeSet::new(), or });
            of_verb.why.insert(why);
            of_verb.or = of_verb.or.filter(|_| or.is_some());
        }
        need.vital |= vital;
        need
    }

    /// One question per verb and name, also about the verbs and the account that may serve instead.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        let rights = self.0.iter().flat_map(|(right, need)| {
            let instead = need.instead.as_ref().map(|account| (right.of(account), need));
            instead.into_iter().chain([(right.clone(), need)])
        });
        for (right, need) in rights {
            let names = if right.names.is_empty() { vec![String::new()] } else { right.names.clone() };
            for name in &names {
                let ask = |verb: &&'static str| Question { right: right.clone(), verb, name: name.clone() };
                let instead = need.verbs.values().filter_map(|of_verb| of_verb.or).filter(|verb| !verb.is_empty());
                let verbs: BTreeSet<&'static str> = need.verbs.keys().copied().chain(instead).collect();
                questions.extend(verbs.iter().map(ask));
            }
        }
        questions
    }
}

/// Without its permissions, the controller of volumes does not run, or only logs and retries.
fn is_vital(controller: &Controller) -> bool {
    controller.name != ccm_controllers::persistent_volume::NAME
}

/// All required permissions: of the process as `account`, and of the controllers. An empty account is unknown.
pub(super) fn needs(account: &str, options: &Options, controllers: &[&Controller], provider: &Provider) -> Needs {
    let mut needs = Needs::default();
    let own = options.clients.use_service_account_credentials;
    for (spec, stored) in &provider.config_maps {
        let map = |verbs| Permission::new("", "configmaps", verbs, spec.why).within(spec.namespace);
        needs.add(account, options, &[map(&["get"]).named(std::slice::from_ref(&spec.name)).or("list")], true);
        // What the former program has made is used.
        if *stored != Some(true) {
            let create = map(&["create"]);
            let need = needs.add_at(account, place(&create, options), &create, *stored == Some(false));
            need.instead = own.then(|| format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{}", config_maps::ACCOUNT));
        }
    }
    if let Some(secret) = &provider.secret {
        let place = (Some(secret.namespace.clone()), vec![secret.name.clone()]);
        let read = Permission::new("", "secrets", &["get"], "the configuration of the provider");
        needs.add_at(account, place, &read, true);
    }
    if options.election.is_some() && !options.dry_run {
        needs.add(account, options, ELECTION, true);
    }
    if options.migration.is_some() {
        needs.add(account, options, LEADER_MIGRATION, true);
    }
    needs.add(account, options, STORES, true);
    needs.add(account, options, EVENTS, false);
    needs.add(account, options, DELEGATED, false);
    if !options.values.bool("authentication-skip-lookup") {
        let read = Permission::new(
            "",
            "configmaps",
            &["get", "list", "watch"],
            "authenticate requests to /metrics and the other endpoints",
        )
        .within(SYSTEM_NAMESPACE)
        .named(&[AUTHENTICATION]);
        needs.add(account, options, &[read], false);
    }
    if own {
        needs.add(account, options, &MAKE_ACCOUNTS, true);
        for vital in [true, false] {
            let clients = controllers.iter().filter(|controller| is_vital(controller) == vital);
            let names: BTreeSet<&str> = clients.map(|controller| controller.client_name).collect();
            let place = (Some(SYSTEM_NAMESPACE.to_owned()), names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            if !place.1.is_empty() {
                for right in &account_of(&[]) {
                    needs.add_at(account, place.clone(), right, vital);
                }
            }
        }
    }
    for controller in controllers {
        let vital = is_vital(controller);
        // The service controllers, whatever their names. The process watches for them.
        if controller.permissions == service::PERMISSIONS {
            needs.add(account, options, &service::related::permissions(provider.related), vital);
        }
        let own_account = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{}", controller.client_name);
        let account = if own { own_account.as_str() } else { account };
        needs.add(account, options, controller.permissions, vital);
        if own {
            needs.add(account, options, EVENTS, false);
        }
    }
    needs
}

/// Namespace and names of a permission; for leases those in the flags.
fn place(permission: &Permission, options: &Options) -> (Option<String>, Vec<String>) {
    let mut namespace = permission.namespace.map(str::to_owned);
    let election = options.election.as_ref().filter(|_| permission.resource == "leases");
    if let Some(election) = election {
        namespace = Some(election.namespace.clone());
    }
    let name = |name: &&'static str| match (*name, election, &options.migration) {
        (LEASE, Some(election), _) => election.name.clone(),
        (MIGRATION_LEASE, _, Some(migration)) => migration.lease_name.clone(),
        (name, _, _) => name.to_owned(),
    };
    (namespace, permission.names.iter().map(name).collect())
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// Reviews the accounts or, if that is not allowed, the identity of this command; also for an unknown account.
pub(super) async fn ask(client: &Client, questions: Vec<Question>) -> Result<Answers, ApiError> {
    // The unknown account, if any, comes first.
    let Some(last) = questions.last() else { return Ok(Answers { granted: BTreeMap::new(), about_us: None }) };
    let about_us = match one(client, last, true).await {
        Err(error) if error.is_forbidden() => Some(error.to_string()),
        Err(error) => return Err(error),
        Ok(_) => None,
    };
    let others = about_us.is_none();
    let asked = questions.into_iter().map(|question| async move {
        let granted = one(client, &question, others).await?;
        Ok((question, granted))
    });
    let granted = futures::stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(Answers { granted, about_us })
}

async fn one(client: &Client, question: &Question, others: bool) -> Result<bool, ApiError> {
    let others = others && !question.right.account.is_empty();
    let path = if others { REVIEW } else { SELF_REVIEW };
    let answer: Review = client.read(&Call::json(Method::POST, path, &body(question, others))).await?;
    Ok(answer.status.allowed)
}

fn body(question: &Question, others: bool) -> Value {
    let Question { right, verb, name } = question;
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((right.resource, ""));
    let mut spec = json!({"resourceAttributes": {
        "group": right.group, "resource": resource, "subresource": subresource, "verb": verb, "name": name,
        "namespace": right.namespace.as_deref().unwrap_or_default(),
    }});
    if others && let Some(spec) = spec.as_object_mut() {
        spec.insert("user".into(), right.account.as_str().into());
        spec.insert("groups".into(), groups(&right.account).into());
    }
    let kind = if others { "SubjectAccessReview" } else { "SelfSubjectAccessReview" };
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
}

/// Namespace and name of a service account.
pub(super) fn service_account(account: &str) -> Option<(&str, &str)> {
    account.strip_prefix("system:serviceaccount:")?.split_once(':')
}

pub(super) fn groups(account: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) = service_account(account) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

/// One finding per missing permission.
pub(super) fn checks(needs: &Needs, answers: &Answers) -> Vec<Check> {
    let (mut checks, mut of_user) = (Vec::new(), Vec::new());
    for (right, need) in &needs.0 {
        let of_right = answers.granted.iter().filter(|(question, _)| question.right == *right);
        let refused = of_right.filter(|(question, granted)| !**granted && need.is_missed(question, answers));
        let (verbs, names): (BTreeSet<&str>, BTreeSet<&str>) = refused.map(|(q, _)| (q.verb, q.name.as_str())).unzip();
        if verbs.is_empty() {
            continue;
        }
        let verbs: Vec<&str> = verbs.into_iter().collect();
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        match answers.about_us {
            None if !right.account.is_empty() => checks.push(missing(right, need, &verbs, &names)),
            _ => of_user.push(format!("{} {}", join(&verbs), resource(right))),
        }
    }
    let accounts: BTreeSet<&str> = needs.0.keys().map(|right| right.account.as_str()).collect();
    if let Some(reason) = &answers.about_us {
        let fix = "run it as somebody who may create subjectaccessreviews.authorization.k8s.io (ClusterRole system:auth-delegator)";
        checks.push(of_other_user(reason, &of_user, fix));
    } else if accounts.contains("") {
        let fix = "give --account=USER, as kubectl --kubeconfig=FILE auth whoami prints it, or run it as somebody who may list pods";
        checks.push(of_other_user("that is the user of its kubeconfig, or the pods cannot be listed", &of_user, fix));
    } else if checks.is_empty() {
        let accounts: Vec<&str> = accounts.into_iter().collect();
        checks.push(Check::good(CHECK, "", format!("every permission is granted to {}", join(&accounts))));
    }
    checks
}

/// What the user of this command lacks says little about the account of the program: one finding, and no commands that
/// grant it.
fn of_other_user(reason: &str, missing: &[String], fix: &str) -> Check {
    let missing = match missing {
        [] => String::new(),
        _ => format!("; the user of this command may not {}", missing.join("; ")),
    };
    Check::warning(
        CHECK,
        "",
        format!(
            "the permissions were checked for the user of this command, not for the account of the program: {reason}{missing}"
        ),
        fix,
    )
}

fn missing(right: &Right, need: &Need, verbs: &[&str], names: &[&str]) -> Check {
    let who = &right.account;
    let named = if names.is_empty() { String::new() } else { format!(" {}", join(names)) };
    let within = right.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    let why = need.verbs.iter().filter(|(verb, _)| verbs.contains(*verb)).flat_map(|(_, of_verb)| &of_verb.why);
    let why: Vec<&str> = why.copied().collect::<BTreeSet<_>>().into_iter().collect();
    let text = format!("{who} may not {} {}{named}{within}: {}", join(verbs), resource(right), why.join("; "));
    let fix = format!("{}{}", of_manifests(right), grant(right, verbs, names));
    match need.vital {
        true => Check::error(CHECK, right.resource, text, fix),
        false => Check::warning(CHECK, right.resource, text, fix),
    }
}

/// The part of the manifests that grants it, if they know the account. Only this program's own account has another name in
/// the chart.
fn of_manifests(right: &Right) -> &'static str {
    let controllers = |name: &str| name.ends_with("-controller");
    match service_account(&right.account) {
        _ if right.account == DEFAULT_ACCOUNT => "kubectl apply -f manifests/base/rbac.yaml, or: ",
        Some((SYSTEM_NAMESPACE, name)) if controllers(name) => {
            "it is the account of one controller (--use-service-account-credentials): add the component \
             service-account-credentials to the overlay (Helm: serviceAccountCredentials=true), or: "
        }
        _ => "",
    }
}

/// `leases.coordination.k8s.io`, as kubectl prints it.
fn resource(right: &Right) -> String {
    match (right.group, right.resource.split_once('/')) {
        ("", _) => right.resource.to_owned(),
        (group, Some((resource, sub))) => format!("{resource}.{group}/{sub}"),
        (group, None) => format!("{}.{group}", right.resource),
    }
}

/// The commands that grant the permission.
fn grant(right: &Right, verbs: &[&str], names: &[&str]) -> String {
    let whom = match service_account(&right.account) {
        Some((namespace, name)) => format!("--serviceaccount={namespace}:{name}"),
        None => format!("--user={}", right.account),
    };
    let called = format!("ccm-{}-{}", right.resource.replace('/', "-"), verbs.join("-"));
    let (role, space) = match &right.namespace {
        Some(namespace) => ("role", format!(" -n {namespace}")),
        None => ("clusterrole", String::new()),
    };
    if names == [AUTHENTICATION] {
        return format!(
            "kubectl{space} create rolebinding ccm-authentication-reader --role=extension-apiserver-authentication-reader {whom}"
        );
    }
    let names: String = names.iter().map(|name| format!(" --resource-name={name}")).collect();
    format!(
        "kubectl{space} create {role} {called} --verb={} --resource={}{names} && kubectl{space} create {role}binding {called} \
         --{role}={called} {whom}",
        verbs.join(","),
        resource(right),
    )
}
