//! The parts of a program besides its providers: controllers and flags.

use std::collections::BTreeSet;

use ccm_provider::flag::Flag;
use ccm_provider::well_known::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use ccm_provider::{Registry, ServiceControllerSpec};

use crate::controllers::{self, Controller};
use crate::exit::Failure;
use crate::flags::table::FLAGS;
use crate::webhook::{Webhook, persistent_volume};

/// Controllers and flags.
#[derive(Debug, Clone)]
pub struct Program {
    /// Name of the program in errors and help.
    pub name: &'static str,
    /// First paragraph of `--help`.
    pub about: &'static str,
    /// Controllers that `--controllers` can name.
    pub controllers: Vec<Controller>,
    /// Webhooks that `--webhooks` can name.
    pub webhooks: Vec<Webhook>,
    /// All flags, including those of providers and controllers.
    pub flags: Vec<Flag>,
    /// The commands, each with one sentence, for the help.
    pub commands: Vec<(&'static str, &'static str)>,
    /// The names of the providers, for completion.
    pub(crate) providers: Vec<&'static str>,
    /// Service controllers of the providers, each with the name of its provider.
    pub(crate) service_controllers: Vec<(&'static str, &'static ServiceControllerSpec)>,
    /// Controllers that `*` in `--controllers` includes only with certain providers, each with the name of the
    /// provider.
    pub(crate) on_by_default: Vec<(&'static str, &'static str)>,
    /// Controllers of replaced programs that do not exist here.
    pub(crate) absent_controllers: Vec<&'static str>,
}

impl Default for Program {
    fn default() -> Self {
        let controllers = controllers::builtin();
        let own = controllers.iter().flat_map(|controller| controller.flags);
        let flags = FLAGS.iter().chain(own).copied().collect();
        Self {
            name: "ccm",
            about: "The Kubernetes cloud-controller-manager: initializes nodes, removes those whose instance is gone, provides load balancers for Services and routes for pods.",
            controllers,
            webhooks: vec![persistent_volume::webhook()],
            flags,
            commands: Vec::new(),
            providers: Vec::new(),
            service_controllers: Vec::new(),
            on_by_default: Vec::new(),
            absent_controllers: Vec::new(),
        }
    }
}

impl Program {
    /// Adds a controller with its flags, replacing one with the same name.
    pub fn add(&mut self, controller: Controller) {
        self.remove(controller.name);
        self.flags.extend(controller.flags);
        self.controllers.push(controller);
    }

    /// Removes a controller and its flags.
    pub fn remove(&mut self, name: &str) {
        let Some(at) = self.controllers.iter().position(|known| known.name == name) else { return };
        let gone = self.controllers.remove(at);
        self.flags.retain(|flag| gone.flags.iter().all(|own| own.name != flag.name));
    }

    /// Adds the flags and controllers of the providers; checks that names are unique and that each taint has one owner.
    pub(crate) fn complete(&mut self, registry: &Registry) -> Result<(), Failure> {
        self.flags.extend(registry.flags());
        self.providers.extend(registry.names());
        self.controllers.extend(registry.node_tasks().map(|(provider, spec)| controllers::node_task(provider, spec)));
        self.service_controllers.extend(registry.service_controllers());
        let classes = |&(provider, spec): &_| controllers::service_of_classes(provider, spec);
        self.controllers.extend(self.service_controllers.iter().map(classes));
        self.on_by_default.extend(registry.on_by_default());
        let tasks = registry.node_tasks().filter(|(_, task)| task.on_by_default);
        self.on_by_default.extend(tasks.map(|(provider, task)| (provider, task.name)));
        self.absent_controllers.extend(registry.absent_controllers());
        let mut seen = BTreeSet::new();
        if let Some(flag) = self.flags.iter().find(|flag| !seen.insert(flag.name)) {
            return Err(Failure::fatal(format!("the flag --{} was registered twice", flag.name)));
        }
        let mut names = BTreeSet::new();
        let words =
            self.controllers.iter().flat_map(|known| std::iter::once(known.name).chain(known.aliases.iter().copied()));
        for word in words {
            if !names.insert(word) {
                return Err(Failure::fatal(format!("the controller name {word:?} was registered twice")));
            }
        }
        let mut taints = BTreeSet::new();
        for (provider, taint) in registry.node_tasks().flat_map(|(p, task)| task.taints.iter().map(move |t| (p, t))) {
            if [TAINT_UNINITIALIZED, TAINT_SHUTDOWN].contains(&taint.key) || !taints.insert((provider, taint)) {
                return Err(Failure::fatal(format!("the taint {taint} was registered twice")));
            }
        }
        let mut hooks = BTreeSet::new();
        for webhook in &self.webhooks {
            if !hooks.insert(webhook.name) || !hooks.insert(webhook.path) {
                let Webhook { name, path, .. } = webhook;
                return Err(Failure::fatal(format!("the webhook {name:?} or its path {path:?} was registered twice")));
            }
        }
        Ok(())
    }
}
