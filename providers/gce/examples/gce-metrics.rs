//! Prints the reference of the metrics: `docs/metrics.md`.

fn main() {
    print!("{}", ccm_provider_gce::metrics_reference());
}
