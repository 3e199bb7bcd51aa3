//! `ccm-apiserver`: the in-memory Kubernetes API for a person with kubectl.

use ccm_test_apiserver::{ApiServer, Options, StreamingLists};
use std::io;
use std::path::PathBuf;

const USAGE: &str =
    "usage: ccm-apiserver [--port N] [--kubeconfig FILE] [--token TOKEN] [--dual-stack] [--no-streaming-lists]";

struct Arguments {
    options: Options,
    kubeconfig: Option<PathBuf>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { options: Options::default(), kubeconfig: None };
    while let Some(word) = words.next() {
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let mut value = || inline.clone().or_else(|| words.next()).ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--port" => arguments.options.port = value()?.parse().map_err(|_| "--port needs a number".to_owned())?,
            "--kubeconfig" => arguments.kubeconfig = Some(value()?.into()),
            "--token" => arguments.options.token = Some(value()?),
            "--dual-stack" => arguments.options.dual_stack = true,
            "--no-streaming-lists" => arguments.options.streaming_lists = StreamingLists::NoProgress,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(arguments)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return Err(io::Error::other(why));
        }
    };
    let server = ApiServer::start(arguments.options).await?;
    let unnamed = || std::env::temp_dir().join(format!("ccm-apiserver-{}.kubeconfig", server.addr().port()));
    let path = arguments.kubeconfig.unwrap_or_else(unnamed);
    std::fs::write(&path, server.kubeconfig())?;
    println!("serving at {}", server.url());
    println!("export KUBECONFIG={}", path.display());
    tokio::signal::ctrl_c().await?;
    std::fs::remove_file(&path)?;
    server.stop().await;
    Ok(())
}
