//! The program: arguments, provider, manager, exit code.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use ccm_provider::{Flag, ProviderFactory, Registry, RegistryError};
use ccm_runtime::Metrics;

use crate::controllers::Controller;
use crate::exit::{FINDINGS, Failure, Verdict};
use crate::manager::Ports;
use crate::options::Options;
use crate::options::parse::{self, Asked};
use crate::program::Program;
use crate::providers::Configuration;
use crate::webhook::Webhook;
use crate::{commands, logging, manager};

/// Selects the TLS provider of the process; must be called before the first use of TLS. [`App::run`] calls it; programs
/// that use the lower-level parts must call it themselves.
pub fn install_tls() {
    // An error means that a provider is already selected.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

/// A cloud-controller-manager with the registered providers.
#[derive(Debug, Default)]
pub struct App {
    program: Program,
    registry: Registry,
    // Kept until `run` to allow chained registration.
    broken: Option<RegistryError>,
    /// Whether the program is called `kubectl-ccm`: kubectl runs such a program as `kubectl ccm`.
    is_plugin: bool,
}

impl App {
    /// A program without providers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider. The program exits with code 255 if two providers have the same name.
    #[must_use]
    pub fn register(mut self, factory: impl ProviderFactory + 'static) -> Self {
        if let Err(error) = self.registry.register(Arc::new(factory)) {
            self.broken.get_or_insert(error);
        }
        self
    }

    /// Adds a controller with its flags, or replaces the controller with the same name.
    #[must_use]
    pub fn controller(mut self, controller: Controller) -> Self {
        self.program.add(controller);
        self
    }

    /// Adds a webhook; `--webhooks` and the feature gate `CloudControllerManagerWebhook` enable it.
    #[must_use]
    pub fn webhook(mut self, webhook: Webhook) -> Self {
        self.program.webhooks.push(webhook);
        self
    }

    /// Removes a controller.
    #[must_use]
    pub fn without_controller(mut self, name: &str) -> Self {
        self.program.remove(name);
        self
    }

    /// Adds flags that belong to no provider or controller.
    #[must_use]
    pub fn flags(mut self, flags: &'static [Flag]) -> Self {
        self.program.flags.extend(flags);
        self
    }

    /// Sets the name and the description of the program in its help.
    #[must_use]
    pub fn named(mut self, name: &'static str, about: &'static str) -> Self {
        (self.program.name, self.program.about) = (name, about);
        self
    }

    /// Runs with these arguments, including the program's name, until a signal, a lost lease or an error.
    pub fn run(self, args: impl IntoIterator<Item = OsString>) -> ExitCode {
        let ended = self.start(args);
        // Before the final message, which is not a log entry.
        logging::flush();
        match ended {
            Ok(Verdict::Clean) => ExitCode::SUCCESS,
            Ok(Verdict::Findings) => ExitCode::from(FINDINGS),
            Err(failure) => {
                if let Some(usage) = failure.usage {
                    commands::eprint(&usage);
                }
                commands::eprint(&format!("Error: {}", failure.message));
                ExitCode::from(failure.exit.code())
            }
        }
    }

    fn start(mut self, args: impl IntoIterator<Item = OsString>) -> Result<Verdict, Failure> {
        if let Some(error) = self.broken {
            return Err(Failure::fatal(error.to_string()));
        }
        self.program.complete(&self.registry)?;
        self.program.commands = commands::summaries().collect();
        let args: Vec<OsString> = args.into_iter().collect();
        let own = args.first().and_then(|path| std::path::Path::new(path).file_stem()?.to_str());
        let is_completion = own == Some("kubectl_complete-ccm");
        if is_completion || own == Some("kubectl-ccm") {
            (self.is_plugin, self.program.name) = (true, "kubectl ccm");
        }
        let args = if is_completion { commands::completion_of_kubectl(&args) } else { args };
        let values = match commands::asked(&self.program, &args) {
            Some(asked) => return self.command(asked?),
            // A forgotten command must not start controllers on the machine of a user.
            None if self.is_plugin => {
                let asked = commands::without_command(&self.program, &args)?;
                return self.command(asked);
            }
            None => match parse::parse(&self.program, args)? {
                Asked::Run(values) => values,
                Asked::Print(text) => {
                    commands::print(&text);
                    return Ok(Verdict::Clean);
                }
            },
        };
        for line in parse::deprecations(&self.program, &values) {
            commands::eprint(&line);
        }
        let options = Options::new(&values, &self.program)?;
        logging::start(&options.logging);
        self.log_options(&options);
        let ended = in_runtime(async {
            // This order determines which of several errors the user sees: the first one to fix.
            let metrics = Metrics::new();
            let client = manager::connect(&options, &metrics).await?;
            let ports = Ports::bind(&options, &metrics).await?;
            let configuration = Configuration::of(&self.registry, &options, &client)?;
            let loaded = configuration.load().await?;
            manager::run(options, loaded, configuration, client, metrics, ports).await
        });
        ended.map(|()| Verdict::Clean)
    }

    fn command(self, asked: commands::Asked) -> Result<Verdict, Failure> {
        match asked {
            commands::Asked::Print(text) => {
                commands::print(&text);
                Ok(Verdict::Clean)
            }
            commands::Asked::Run(command, values, words, output) => {
                let (config, is_plugin) = (None, self.is_plugin);
                let call = commands::Call {
                    program: self.program,
                    registry: self.registry,
                    values,
                    words,
                    output,
                    config,
                    is_plugin,
                };
                logging::start(&call.logging());
                in_runtime(command.start(call))
            }
        }
    }

    fn log_options(&self, options: &Options) {
        if options.logging.verbosity >= 1 {
            for line in parse::lines(&self.program, &options.values) {
                tracing::info!("FLAG: {line}");
            }
        }
        for warning in &options.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// Runs a future to completion. Tasks that nothing awaits any more, such as a slow cloud read, do not delay the exit.
fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::fatal(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(work);
    runtime.shutdown_background();
    ended
}
