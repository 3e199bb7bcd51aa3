//! Prints the reference of the metrics: `docs/metrics.md`.

fn main() {
    print!("{}", ccm_provider_azure::metrics_reference());
}
