use std::sync::Arc;

use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Node, NodeName, Service, Taint};
use ccm_runtime::recent::Recent;
use serde_json::{Value, json};

use super::*;

/// A text that would run a script, if a browser took it for HTML.
const HOSTILE: &str = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>{{data}}\u{2028}";

fn node(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        ready: Some(ConditionStatus::True),
        network_unavailable: Some((ConditionStatus::False, "RouteCreated".into())),
        pod_cidrs: [Box::from("10.0.1.0/24")].into(),
        ..Node::default()
    }
}

fn service(name: &str, kind: &str, ip: Option<&str>) -> Service {
    let ingress: Vec<Value> = ip.iter().map(|ip| json!({ "ip": ip })).collect();
    let ports = [json!({"port": 80, "protocol": "TCP"})];
    let service = json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"type": kind, "ports": ports},
        "status": {"loadBalancer": {"ingress": ingress}}});
    serde_json::from_value(service).unwrap()
}

fn state() -> Value {
    let failure = |subject: &str, class: Option<&str>, settled: bool| {
        json!({"subject": subject, "text": "cannot do it", "count": 3, "secondsAgo": 61, "controller": "c", "class": class,
            "remediation": class.map(|_| "grant it"), "nextTrySeconds": 30, "settled": settled})
    };
    json!({
        "version": "v1", "provider": "fake", "clusterName": "c1", "dryRun": false, "uptimeSeconds": 3600,
        "leadership": {"state": "leading", "identity": "a", "lease": null},
        "enabledControllers": ["node-route-controller"],
        "stores": {"nodes": {"objects": 2}, "services": {"objects": 2}},
        "observations": {"routes": {"ageSeconds": 7.9}},
        "queues": [{"name": "Node", "ready": 1, "working": 2, "waiting": 3, "oldestReadySeconds": 0.5, "longestWorkSeconds": 4.0}],
        "calls": [{"call": "ListRoutes", "outcome": "ok", "count": 5}],
        "drift": [{"controller": "node-route-controller", "steps": 2, "total": 9}],
        "recentPlans": [{"subject": "node b", "text": "a plan", "count": 1, "secondsAgo": 1}],
        "recentFailures": [
            failure("node b addresses", Some("throttled"), false), failure("node b", Some("denied"), false),
            failure("service shop/web", None, true), failure("routes", None, false),
        ],
    })
}

fn rows<'a>(page: &'a Page, title: &str) -> Vec<(Level, Vec<&'a str>)> {
    let table = page.tables.iter().find(|table| table.title.starts_with(title)).unwrap();
    table.rows.iter().map(|row| (row.level, row.cells.iter().map(String::as_str).collect())).collect()
}

#[test]
fn an_object_shows_its_state_its_worst_error_and_the_fix() {
    let nodes = [Arc::new(node("a")), Arc::new(node("b"))];
    let services = [service("web", "LoadBalancer", Some("192.0.2.1")), service("db", "ClusterIP", None)].map(Arc::new);
    let page = live::page(&state(), &nodes, &services);
    let (good, bad, waiting) = (Level::Good, Level::Bad, Level::Waiting);
    assert_eq!(
        rows(&page, "Nodes"),
        [(good, vec!["a", "ready", "", "", "", ""]), (bad, vec!["b", "ready", "", "", "cannot do it", "grant it"])]
    );
    assert_eq!(
        rows(&page, "Services"),
        [(good, vec!["shop/web", "has an address", "192.0.2.1", "80/TCP", "", ""])],
        "a settled error is none, and a Service without a balancer has no row"
    );
    let fix = "see the message, and the log of the leader";
    assert_eq!(
        rows(&page, "Routes"),
        [
            (bad, vec!["all nodes", "not reconciled", "", "cannot do it", fix]),
            (good, vec!["a", "network available", "10.0.1.0/24", "", ""]),
            (good, vec!["b", "network available", "10.0.1.0/24", "", ""]),
        ]
    );
    assert_eq!(
        rows(&page, "Errors")[0],
        (waiting, vec!["node b addresses", "retried", "cannot do it", "grant it", "1m1s ago, 3 times", "in 30s", "c"])
    );
    assert_eq!(rows(&page, "Errors")[2].0, good);
    assert_eq!(rows(&page, "Queues"), [(Level::Plain, vec!["Node", "1", "2", "3", "0s", "4s"])]);
    assert_eq!(rows(&page, "Calls"), [(good, vec!["ListRoutes", "ok", "5"])]);
    assert_eq!(rows(&page, "Drift"), [(waiting, vec!["node-route-controller", "2", "9"])]);
    assert_eq!(page.facts.last(), Some(&("Complete reads of the cloud", "routes 7s ago".to_owned())));
    assert!(page.notes.is_empty(), "{:?}", page.notes);
}

#[test]
fn an_object_that_fails_is_not_shown_as_good_however_many_fail() {
    let failures = Recent::default();
    let names: Vec<String> = (0..131).map(|number| format!("web-{number}")).collect();
    for name in &names {
        failures.failed("c", format!("service shop/{name}"), ("cannot do it", None), None);
    }
    let mut state = state();
    state["recentFailures"] = serde_json::to_value(failures.list()).unwrap();
    let services: Vec<_> =
        names.iter().map(|name| Arc::new(service(name, "LoadBalancer", Some("192.0.2.1")))).collect();
    let page = live::page(&state, &[], &services);
    let bad = rows(&page, "Services").into_iter().filter(|(level, _)| *level == Level::Bad).count();
    assert_eq!((bad, rows(&page, "Errors").len()), (131, 131));
}

#[test]
fn a_node_that_waits_and_a_replica_that_does_not_lead_are_shown_so() {
    let taint =
        Taint { key: TAINT_UNINITIALIZED.into(), value: "".into(), effect: "NoSchedule".into(), time_added: None };
    let fresh = Node { taints: [taint].into(), ready: None, network_unavailable: None, ..node("fresh") };
    let dead = Node {
        ready: Some(ConditionStatus::False),
        network_unavailable: Some((ConditionStatus::True, "NoRouteCreated".into())),
        ..node("dead")
    };
    let mut state = state();
    state["leadership"]["state"] = "standby".into();
    state["recentFailures"] = json!([]);
    let services = [Arc::new(service("new", "LoadBalancer", None))];
    let page = live::page(&state, &[Arc::new(fresh), Arc::new(dead)], &services);
    let states = |title| rows(&page, title).into_iter().map(|(level, cells)| (level, cells[1])).collect::<Vec<_>>();
    assert_eq!(states("Nodes"), [(Level::Waiting, "not initialized"), (Level::Bad, "not ready")]);
    assert_eq!(states("Routes"), [(Level::Plain, "no condition"), (Level::Bad, "no network")]);
    assert_eq!(states("Services"), [(Level::Waiting, "no address")]);
    assert!(page.notes[0].contains("does not lead"), "{:?}", page.notes);
}

#[test]
fn no_text_of_others_is_html_and_each_arrives_whole() {
    let mut state = state();
    state["clusterName"] = HOSTILE.into();
    state["recentFailures"][0]["text"] = HOSTILE.into();
    let mut service = service("web", "LoadBalancer", Some(HOSTILE));
    service.metadata.name = HOSTILE.into();
    let page = live::page(
        &state,
        &[Arc::new(Node { provider_id: Some(HOSTILE.into()), ..node(HOSTILE) })],
        &[Arc::new(service)],
    );
    let html = page.html();
    assert_eq!(html.matches('<').count(), TEMPLATE.matches('<').count());
    let (_, data) = html.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data, serde_json::to_value(&page).unwrap());
    assert_eq!(data["title"], format!("cloud-controller-manager of {HOSTILE}"));
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        " style=",
        " onclick",
        "http:",
        "https:",
    ] {
        assert!(!TEMPLATE.contains(sink), "{sink}");
    }
}

#[test]
fn the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else() {
    let policy = policy();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (tag, source) in [("script", "script-src"), ("style", "style-src")] {
        assert_eq!(TEMPLATE.matches(&format!("<{tag}>")).count(), 1, "one {tag} without attributes");
        // Nothing replaces a part of what is hashed.
        let content = TEMPLATE.split_once(&format!("<{tag}>")).unwrap().1.split_once(&format!("</{tag}>")).unwrap().0;
        assert!(!content.contains("{{"), "{tag}");
        let hash = STANDARD.encode(digest(&SHA256, content.as_bytes()));
        assert!(policy.contains(&format!("{source} 'sha256-{hash}'")), "{policy}");
    }
    let html = live::page(&Value::Null, &[], &[]).html();
    assert!(html.contains(&format!("http-equiv=\"Content-Security-Policy\" content=\"{policy}\"")));
}

#[test]
fn a_page_of_5000_nodes_is_small() {
    let nodes: Vec<_> = (0..5000).map(|number| Arc::new(node(&format!("node-{number}.example.com")))).collect();
    let html = live::page(&state(), &nodes, &[]).html();
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    assert!(html.contains("node-4999.example.com"));
}

mod long_lane {
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    /// The values of Chromium's setting.
    const DARK: &str = "0";
    const LIGHT: &str = "1";

    /// Measures the page and its filter, in milliseconds, and its colors. The policy of the page would refuse it.
    const PROBE: &str = r#"<script>
        document.body.getBoundingClientRect();
        const loaded = performance.now();
        document.getElementById("filter").value = "NODE-4999";
        document.getElementById("filter").dispatchEvent(new Event("input"));
        document.body.getBoundingClientRect();
        const filtered = performance.now() - loaded;
        const rows = document.querySelectorAll("tbody tr").length;
        const { color, backgroundColor } = getComputedStyle(document.body);
        document.title = JSON.stringify({ loaded, filtered, rows, color, backgroundColor });
    </script></body>"#;

    /// The document that Chromium makes of a page, and its messages; `None` without Chromium.
    fn document(html: &str, scheme: &str) -> Option<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.html");
        std::fs::write(&file, html).unwrap();
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"]);
        chromium.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
        chromium.arg(format!("--user-data-dir={}", folder.path().join("profile").display())).arg("--dump-dom");
        match chromium.arg(format!("file://{}", file.display())).output() {
            Ok(output) => {
                let [document, log] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
                assert!(output.status.success(), "{log}");
                Some((document, log))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ccm_test_bed::not_run("no chromium on PATH; Debian's package chromium has it").unwrap();
                None
            }
            Err(error) => panic!("chromium: {error}"),
        }
    }

    #[test]
    fn hostile_names_are_text_and_5000_nodes_are_shown_in_parts_in_a_browser() {
        let names = std::iter::once(HOSTILE.to_owned()).chain((1..5000).map(|number| format!("node-{number}")));
        let nodes: Vec<_> = names.map(|name| Arc::new(node(&name))).collect();
        let Some((document, log)) = document(&live::page(&state(), &nodes, &[]).html(), LIGHT) else { return };
        assert!(!log.contains("Content Security Policy"), "{log}");
        let (_, tables) = document.split_once("<main id=\"tables\">").unwrap();
        let (tables, rest) = tables.split_once("</main>").unwrap();
        assert_eq!(tables.matches("<td>node-").count(), 99 + 99, "of nodes and of routes");
        assert_eq!(tables.matches("<span>1 to 100 of 500").count(), 2);
        let escaped =
            "<td>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--&lt;img src=x onerror=alert(1)&gt;";
        assert!(tables.contains(escaped), "{tables}");
        assert!(!tables.contains("<img") && !tables.contains("<script"), "{tables}");
        assert_eq!(rest.matches("<script").count(), 2, "the data and the script");
        assert!(document.contains("<title>cloud-controller-manager of c1</title>"));

        let policy = policy();
        let other = live::page(&state(), &[], &[]).html().replace(&policy, &policy.replace("sha256-", "sha256-x"));
        let (document, log) = self::document(&other, LIGHT).unwrap();
        assert!(document.contains("<main id=\"tables\"></main>"), "another script runs: {document}");
        assert!(log.contains("Content Security Policy"), "{log}");
    }

    #[test]
    fn five_thousand_nodes_are_shown_and_filtered_at_once_and_the_dark_page_is_dark_in_a_browser() {
        let nodes: Vec<_> = (0..5000).map(|number| Arc::new(node(&format!("node-{number}")))).collect();
        let html = live::page(&state(), &nodes, &[]).html().replace(&policy(), "").replace("</body>", PROBE);
        for (scheme, text, back) in
            [(LIGHT, "rgb(27, 31, 36)", "rgb(255, 255, 255)"), (DARK, "rgb(230, 237, 243)", "rgb(13, 17, 23)")]
        {
            let Some((document, log)) = document(&html, scheme) else { return };
            let (_, title) = document.split_once("<title>").unwrap();
            let measured = title.split_once("</title>").unwrap().0;
            let measured: Value = serde_json::from_str(measured).unwrap_or_else(|_| panic!("{measured}: {log}"));
            assert_eq!((&measured["color"], &measured["backgroundColor"]), (&json!(text), &json!(back)));
            // The node, its route, and the rows of the tables about the program that name it: none.
            assert_eq!(measured["rows"], 2, "{measured}");
            // Far above what a slow machine takes, and far below what thousands of rows in the document take.
            assert!(measured["loaded"].as_f64().unwrap() < 5000.0, "{measured}");
            assert!(measured["filtered"].as_f64().unwrap() < 500.0, "{measured}");
        }
    }
}
