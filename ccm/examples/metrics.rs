//! Prints the reference of the metrics: `docs/metrics.md`.

const HEAD: &str = "# Metrics

`/metrics` on the secure port shows these, and `/metrics/slis` the two of the health checks, in the text format of Prometheus.
Those of the first table have the names, types, labels and buckets that the Go cloud-controller-manager has, so that dashboards
and alerts stay. A metric with labels appears once what it counts has happened. What only Go has (`go_*`) is left out.

This page is generated: `cargo xtask reference`.

";

fn main() {
    let mut defs = ccm_runtime::metrics_reference();
    defs.extend(ccm_controllers::metrics_reference());
    defs.extend(ccm::metrics_reference());
    print!("{HEAD}{}", ccm_runtime::metrics::markdown(&defs).trim_end());
    println!();
}
