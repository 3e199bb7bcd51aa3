//! `ccm-cloudsim` with the name of a cloud: runs a simulated cloud as a separate process until Ctrl-C.

mod cli;

use std::process::ExitCode;

const HELP: &str = "\
ccm-cloudsim aws|azure|gce|openstack [FLAG ...]

Serves a simulated cloud on 127.0.0.1 and prints one line of JSON with its URLs. Ctrl-C stops it. AWS has EC2, ELB, ELBv2 and
STS on one port, Azure has Resource Manager, the login and the metadata service, GCE the Compute API, its tokens and the test
of permissions, OpenStack Keystone, Nova, Neutron, Octavia, Barbican and Cinder; the admin API has another port.

  --port=<n>              port of the services (0, the default: any free one)
  --admin-port=<n>        port of the admin API
  --options=<file>        behavior as JSON: latency, throttle, lag, limits, delays, clock; GET /options of the
                          admin API shows all of it
  --nodes=<n>             make a network and that many running instances in it
  --until-eof             stop when standard input ends, so that it can't outlive its starter

aws:
  --load=<file>           start from a dump (GET /dump of the admin API)
  --cluster=<id>          tag the network and the instances with this cluster ID
  --imds                  start the metadata service of the first instance

azure:
  --subscription=<id>     the subscription (sub)
  --resource-group=<name> the resource group (rg)
  --location=<name>       the location (eastus)
  --vm-type=<type>        the kind of the instances: vmss (uniform scale set), vmssflex, standard
  --dual                  the network and the instances have IPv6 too
  --load=<file>           more objects by ID, as GET /objects of the admin API shows them

gce:
  --project=<id>          the project (p)
  --network-project=<id>  the project of the network (the same)
  --zones=<list>          zones of the instances (us-central1-b)
  --metadata              start the metadata server of the first instance; GCE_METADATA_HOST takes what is printed
  --load=<file>           more objects by path, as GET /objects of the admin API shows them

openstack:
  --dual                  the network and the servers have IPv6 too
  --load=<file>           more resources by kind, as GET /resources of the admin API shows them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ccm-cloudsim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    match arguments.split_first().map(|(cloud, flags)| (cloud.as_str(), flags)) {
        Some(("aws", flags)) => cli::aws::run(flags),
        Some(("azure", flags)) => cli::azure::run(flags),
        Some(("gce", flags)) => cli::gce::run(flags),
        Some(("openstack", flags)) => cli::openstack::run(flags),
        _ => Err("the first argument is the cloud, and there are only: aws, azure, gce, openstack".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_unknown_cloud_is_named() {
        let error = super::run(&["nimbus".to_owned()]).unwrap_err();
        assert!(error.contains("there are only: aws, azure, gce, openstack"), "{error}");
    }
}
