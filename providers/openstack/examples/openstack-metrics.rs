//! Prints the reference of the metrics: `docs/metrics.md`.

fn main() {
    print!("{}", ccm_provider_openstack::metrics_reference());
}
