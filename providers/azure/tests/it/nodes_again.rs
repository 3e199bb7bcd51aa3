//! Nodes of a scale set that is deleted and made again under its name: the IDs and names of its instances repeat.

use ccm_cloudsim::azure::{MachineSeed, Options, SetSeed};
use ccm_provider::{Aspects, Clock as _, Lookup, Node, NodeRef};
use ccm_provider_contract::lookups::metadata;
use serde_json::json;

use crate::bed::{Bed, node, pass};
use crate::nodes::{addresses, is_unlisted, look_up};

/// A Node that is created now.
fn young(bed: &Bed, name: &str, provider_id: &str) -> NodeRef {
    let created = jiff::Timestamp::try_from(bed.cluster.wall()).ok();
    NodeRef::new(Node { created, ..(*node(name, provider_id)).clone() })
}

fn made(bed: &Bed, zone: &str, size: &str) -> String {
    let fields = json!({"sku": {"name": size}});
    let seed = SetSeed { name: "np", instances: 2, zones: &[zone], public: true, fields, ..SetSeed::default() };
    bed.cloud.world(|world| world.scale_set(&seed))
}

#[tokio::test]
async fn an_instance_of_a_scale_set_that_is_made_again_has_its_own_addresses_zone_and_size() {
    for is_looked_up in [false, true] {
        let bed = Bed::start(Options::default());
        let set = made(&bed, "1", "Standard_D2s_v5");
        let instances = [0, 1].map(|number| format!("{set}/virtualMachines/{number}"));
        let provider = bed.process("").await;
        let before = look_up(&provider, &[young(&bed, "np000000", "")], Aspects::METADATA).await.pop().unwrap();
        let before = metadata(&before);
        pass(60).await;
        bed.cloud.world(|world| {
            instances.iter().for_each(|instance| world.delete_machine(instance));
            world.remove(&set);
            // Somebody else has an address of it by now.
            world.machine(&MachineSeed { name: "vm0", zone: "2", ..MachineSeed::default() });
        });
        pass(60).await;
        if is_looked_up {
            let old = node("np000000", &format!("azure://{}", instances[0]));
            assert!(is_unlisted(&look_up(&provider, &[old], Aspects::LIFECYCLE).await[0]));
        }
        pass(60).await;
        made(&bed, "2", "Standard_D4s_v5");
        pass(60).await;
        // The kubelet may have set its provider ID.
        let own_id = if is_looked_up { String::new() } else { format!("azure://{}", instances[0]) };
        let nodes = [young(&bed, "np000000", &own_id), young(&bed, "np000001", "")];
        let mark = bed.cloud.mark();
        let answer = look_up(&provider, &nodes[..1], Aspects::METADATA).await.pop().unwrap();
        let after = metadata(&answer);
        for (new, old) in addresses(&after).into_iter().zip(addresses(&before)).filter(|(new, _)| new.0 != "Hostname") {
            assert_ne!(new, old);
        }
        assert_eq!((&*after.zone, &*after.instance_type), ("eastus-2", "Standard_D4s_v5"));
        let calls = bed.calls(mark);
        assert!(calls.iter().all(|call| call.ends_with(".list")) && calls.len() <= 3, "{calls:?}");
        // Nodes that join with it share the lists.
        let mark = bed.cloud.mark();
        pass(60).await;
        let answers = look_up(&provider, &[young(&bed, "np000001", "")], Aspects::METADATA).await;
        assert_eq!(metadata(&answers[0]).zone, "eastus-2");
        assert_eq!(bed.calls(mark), Vec::<String>::new());
        bed.is_clean();
    }
}

#[tokio::test]
async fn young_nodes_that_join_within_five_minutes_cost_at_most_three_scans_of_their_set() {
    let bed = Bed::start(Options::default());
    let seed = SetSeed { name: "np", instances: 31, zones: &["1"], public: true, ..SetSeed::default() };
    let set = bed.cloud.world(|world| world.scale_set(&seed));
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    for number in 0..31 {
        let node = young(&bed, &format!("n{number}"), &format!("azure://{set}/virtualMachines/{number}"));
        let answers = look_up(&provider, &[node], Aspects::METADATA).await;
        assert!(matches!(answers[0], Lookup::Found(_)), "{answers:?}");
        pass(10).await;
    }
    let calls = bed.calls(mark);
    for action in ["VMs", "Interfaces", "PublicIPAddresses"].map(|kind| format!("virtualMachineScaleSet{kind}.list")) {
        assert!(calls.iter().filter(|call| **call == action).count() <= 3, "{action}: {calls:?}");
    }
    assert!(calls.iter().all(|call| call.ends_with(".list")), "{calls:?}");
}
