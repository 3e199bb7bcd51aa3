//! Prints the reference of the metrics: `METRICS.md`.

fn main() {
    print!("{}", ccm_provider_azure::metrics_reference());
}
