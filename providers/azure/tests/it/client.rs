//! The client: pages, and what holds calls back.

use std::time::Duration;

use ccm_cloudsim::azure::Options;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Aspects, Lookup, NodeRef, ServiceAction};

use crate::balancers::pace::haste;
use crate::balancers::{Scene, port};
use crate::bed::{Bed, node};

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let bed = Bed::start(Options { page: 3, ..Options::default() });
    bed.uniform("pool", 10);
    let provider = bed.process("").await;
    let nodes: Vec<NodeRef> = (0..10).map(|n| node(&format!("pool00000{n}"), "")).collect();
    let answers = provider.instances().unwrap().lookup(&nodes, Aspects::METADATA).await;
    assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))), "{answers:?}");
    bed.is_clean();
}

#[tokio::test]
async fn a_throttled_class_waits_and_the_others_go_on() {
    let bed = Bed::start(Options { throttle_after: 1, ..Options::default() });
    bed.uniform("pool", 1);
    let provider = bed.process("").await;
    let instances = provider.instances().unwrap();
    bed.cloud.fault(Rule::every(Fault::Throttle).on("compute", "virtualMachineScaleSetVMs.list").window(0, 1));
    let lists = |mark| bed.calls(mark).iter().filter(|call| *call == "virtualMachineScaleSetVMs.list").count();
    let mark = bed.cloud.mark();
    let began = tokio::time::Instant::now();
    let nodes = [node("pool000000", "")];
    let asking = instances.lookup(&nodes, Aspects::METADATA);
    let others = async {
        // Network calls are made meanwhile.
        while lists(mark) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let routes = provider.routes().unwrap().list("kubernetes").await;
        assert!(routes.is_ok());
        began.elapsed()
    };
    let (answers, after) = futures::join!(asking, others);
    assert!(after < Duration::from_secs(1), "{after:?}");
    assert!(matches!(answers[0], Lookup::Found(_)), "{answers:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(lists(mark), 2, "none before the time has passed");
}

#[tokio::test]
async fn a_call_without_an_answer_is_retried_as_the_configuration_says() {
    let retried = "cloudProviderBackoff: true\ncloudProviderBackoffRetries: 4\ncloudProviderBackoffDuration: 1\n";
    for (more, is_good, sent) in [("", false, 3), (retried, true, 5)] {
        let bed = Bed::start(Options::default());
        let provider = bed.process(more).await;
        let failing = Fault::Status { status: 502, body: String::new() };
        bed.cloud.fault(Rule::every(failing).on("network", "routeTables.get").window(0, 4));
        let mark = bed.cloud.mark();
        let routes = provider.routes().unwrap();
        tokio::select! {
            listed = routes.list("kubernetes") => assert_eq!(listed.is_ok(), is_good, "{listed:?}"),
            never = haste(&bed.cloud) => match never {},
        }
        assert_eq!(bed.calls(mark), vec!["routeTables.get"; sent], "{more}");
    }
}

#[tokio::test]
async fn a_write_whose_result_may_not_be_read_is_not_sent_again() {
    let (denied, operation) = (vec!["operationResults.get".to_owned()], Duration::from_millis(300));
    let options = Options { async_operation: false, denied, operation, ..Options::default() };
    let mut scene = Scene::with(options, "", 1).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let mark = scene.mark();
    scene.delete(&["web"]).await;
    let writes = scene.writes(mark);
    assert_eq!((writes["loadBalancers.delete"], writes["publicIPAddresses.delete"]), (1, 1), "{writes:?}");
    scene.bed.is_clean();
}

#[tokio::test]
async fn of_a_link_that_azure_refuses_the_event_names_what_is_missing() {
    let scope = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft";
    let right = "Microsoft.Network/loadBalancers/backendAddressPools/join/action";
    let role = format!(
        "The client 'c' with object id 'c' has permission to perform action \
         'Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write' on scope \
         '{scope}.Compute/virtualMachineScaleSets/pool/virtualMachines/0'; however, it does not have permission to \
         perform action '{right}' on the linked scope(s) \
         '{scope}.Network/loadBalancers/kubernetes/backendAddressPools/kubernetes' or the linked scope(s) are invalid."
    );
    let tenant = format!(
        "The client has permission to perform action '{right}' on scope \
         '{scope}.Compute/virtualMachineScaleSets/pool/virtualMachines/0', however the current tenant 'tenant' is not \
         authorized to access linked subscription 'net'."
    );
    for (message, lacks) in [
        (role, format!("ccm lacks {right}: grant it")),
        (tenant, "ccm lacks access to the linked subscription net: ".to_owned()),
    ] {
        let mut scene = Scene::new("", 1).await;
        let fault = Fault::Code { status: 403, code: "LinkedAuthorizationFailed".to_owned(), message };
        scene.bed.cloud.fault(Rule::every(fault).on("compute", "virtualMachineScaleSetVMs.put"));
        scene.service("web", &[], port(80));
        let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
        assert!(error.contains(&lacks) && error.contains("set networkResourceTenantID"), "{error}");
    }
}

#[tokio::test]
async fn calls_have_the_metrics_of_the_go_program_and_what_azure_still_allows() {
    let bed = Bed::start(Options { remaining: 4321, ..Options::default() });
    bed.uniform("pool", 1);
    let provider = bed.process("").await;
    provider.routes().unwrap().list("kubernetes").await.unwrap();
    let metrics = provider.metrics().unwrap();
    let labels = [("subscription_id", "sub"), ("resource_group", "rg"), ("resource", "RouteTable"), ("method", "get")];
    assert_eq!(metrics.value("arm_request_duration_seconds", &labels), Some(1.0));
    let upstream = [("request", "route_tables_get"), ("resource_group", "rg"), ("source", "")];
    assert_eq!(metrics.value("cloudprovider_azure_api_request_duration_seconds", &upstream), Some(1.0));
    let reads = [("subscription_id", "sub"), ("budget", "subscription-global-reads")];
    assert_eq!(metrics.value("ccm_azure_api_remaining", &reads), Some(4321.0));
}
