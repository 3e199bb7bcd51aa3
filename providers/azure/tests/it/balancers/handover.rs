//! Services that exchange what they have, on an Azure that refuses what another one still has.

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_exchange_addresses_ports_and_labels() {
    let (one, two) = (("azure-pip-name", "one"), ("azure-pip-name", "two"));
    let (low, high) = (("azure-load-balancer-ipv4", "10.240.0.180"), ("azure-load-balancer-ipv4", "10.240.0.181"));
    let (x, y) = (("azure-dns-label-name", "label-x"), ("azure-dns-label-name", "label-y"));
    for more in ["", BY_ADDRESS] {
        let mut scene = Scene::new(more, 2).await;
        for name in ["one", "two"] {
            scene.bed.cloud.world(|world| world.public_ip("sub", "rg", name, json!({"location": "eastus"})));
        }
        let names = ["a", "b"];
        for (given, numbers) in [
            ([&[one][..], &[two]], [80, 80]),
            ([&[two], &[one]], [80, 80]),
            ([&[one], &[one]], [80, 81]),
            ([&[one], &[one]], [81, 80]),
            ([&[x], &[y]], [80, 80]),
            ([&[y], &[x]], [80, 80]),
            ([&[INTERNAL, low], &[INTERNAL, high]], [80, 80]),
            ([&[INTERNAL, high], &[INTERNAL, low]], [80, 80]),
            ([&[one], &[INTERNAL, high]], [80, 80]),
            ([&[INTERNAL, high], &[one]], [80, 80]),
        ] {
            for (place, name) in names.iter().enumerate() {
                scene.service(name, given[place], port(numbers[place]));
            }
            // The rule for an address that a Service has left to share that of another one may go with the second call.
            for _ in 0..2 {
                scene.ensure(&names).await;
            }
            for (place, name) in names.iter().enumerate() {
                let requested = given[place].iter().find(|(key, _)| *key == "azure-load-balancer-ipv4");
                assert!(requested.is_none_or(|(_, ip)| scene.ip(name) == *ip), "{name}: {given:?}");
            }
            let mark = scene.mark();
            scene.restart().await;
            scene.ensure(&names).await;
            assert_eq!(scene.writes(mark), BTreeMap::new(), "{given:?}");
        }
        scene.delete(&names).await;
        scene.bed.is_clean();
    }
}
