//! The results of the tour in figures.

use crate::text::{count, hang, pad};
use crate::tour::Tour;
use crate::view;
use crate::world::Calls;

/// Further reading, in addition to the provider's page; each page exists.
const READ_NEXT: [(&str, &str); 3] = [
    ("README.md", "what works today, and how to install it"),
    ("ccm/ARCHITECTURE.md", "one page: the parts, and what must always hold"),
    ("controllers/src", "the decisions that you saw: pure functions in files named decide.rs"),
];

pub(crate) fn summary(tour: &Tour, live: bool) -> String {
    let findings = &tour.findings;
    let (joined, initialized, here, calls) = tour
        .scene
        .world
        .look(|state| (state.joined.len(), state.initialized.len(), state.nodes.len(), state.calls.clone()));
    let writes = tour.writes();
    let width = view::width();
    let mut text = format!("\n── Summary {}\n", "─".repeat(width.saturating_sub(11)));
    if live {
        // The live view, including its text, has been cleared.
        for act in &findings.acts {
            text.push_str(&hanging("  => ", act, width));
        }
        text.push('\n');
    }
    let kept =
        |(name, times): &(String, u64)| format!("{name} kept although the cloud gave no answer ({times} lookups)");
    let nodes = format!(
        "{joined} joined; {initialized} initialized, {:.1}s after the manager started; {} deleted on evidence ({}); \
         {}; {here} remain",
        findings.initialized_after.as_secs_f64(),
        findings.deleted.len(),
        findings.deleted.join(", "),
        findings.kept.iter().map(kept).collect::<Vec<_>>().join("; "),
    );
    let (made, removed) = calls.routes;
    let services = format!(
        "{} got an address; {} deleted, the load balancer first",
        count(findings.services, "Service"),
        findings.services_deleted
    );
    let cloud = format!(
        "{} calls, {} of them about instances, one for many nodes each. With one call per node, the same lookups \
         would have been {} calls.",
        calls.all, calls.batches, calls.asked
    );
    let again = match writes.conflicts {
        0 => String::new(),
        count => format!(" (and {count} that met a newer version and were made again)"),
    };
    let api = format!(
        "{} writes to Nodes and Services{again}, {} to events and the lease. The dry run wrote none.",
        writes.objects, writes.notes
    );
    let ledger = calls.since(&Calls::default());
    let [wrote, read] = [0, 1].map(|line| ledger.get(line).map(String::as_str).unwrap_or_default());
    for (head, words) in [
        ("Nodes", nodes.as_str()),
        ("Services", services.as_str()),
        ("Routes", &format!("{made} made, {removed} removed")),
        ("Cloud", &cloud),
        ("Calls", wrote),
        ("", read),
        ("API", &api),
    ] {
        text.push_str(&hanging(&format!("  {}", pad(head, 10)), words, width));
    }
    text.push_str("\n  Read next\n");
    for (file, why) in READ_NEXT.into_iter().chain([tour.scene.cloud.profile().read_next]) {
        text.push_str(&hanging(&format!("    {}", pad(file, 31)), why, width));
    }
    text.push('\n');
    let more = "More: cargo demo --keep stays up for kubectl and for your own changes to the cloud; --nodes 100 makes it larger.";
    text.push_str(hanging("  ", more, width).trim_end());
    text
}

fn hanging(head: &str, text: &str, width: usize) -> String {
    hang(head, text, width).into_iter().map(|line| line + "\n").collect()
}
