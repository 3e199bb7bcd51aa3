//! Providers that watch nodes and Services themselves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, EventType, InformerUser, ObjectChange, ProviderContext, ProviderError, SharedInformers, Subject,
};
use ccm_test_suite::{Rig, node, service};
use parking_lot::Mutex;
use serde_json::json;

/// Records the changes that its handlers receive.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<String>>>);

impl Watcher {
    fn seen(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl CloudProvider for Watcher {
    fn name(&self) -> &str {
        "watcher"
    }

    fn event_component(&self) -> &str {
        "watcher-cloud-provider"
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        context.events.event(&Subject::node(&"a".into(), "u"), EventType::Normal, "Initialized", "The cloud is here");
        Ok(())
    }

    fn informer_user(&self) -> Option<Arc<dyn InformerUser>> {
        Some(Arc::new(self.clone()))
    }
}

fn line<T>(change: &ObjectChange<T>, name: impl Fn(&T) -> String) -> String {
    match change {
        ObjectChange::Added(object) => format!("added {}", name(object)),
        ObjectChange::Updated(_, object) => format!("updated {}", name(object)),
        ObjectChange::Deleted(object) => format!("deleted {}", name(object)),
    }
}

#[async_trait]
impl InformerUser for Watcher {
    async fn set_informers(&self, informers: Arc<dyn SharedInformers>) {
        let (nodes, services) = (Arc::clone(&self.0), Arc::clone(&self.0));
        informers.on_node(Box::new(move |change| nodes.lock().push(line(&change, |n| n.name.to_string()))));
        informers.on_service(Box::new(move |change| services.lock().push(line(&change, |s| s.key().to_string()))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_the_provider_sees_existing_objects_as_additions_and_then_every_change() {
    let rig = Rig::new("").await;
    rig.create(node("a")).await;
    rig.create(node("b")).await;
    rig.create(service("s")).await;
    let watcher = Watcher::default();
    let manager = rig.start_with(Arc::new(watcher.clone()), &[]).await;
    let wait = async |wanted: &[&str]| {
        let all = |seen: &[String]| wanted.iter().all(|line| seen.iter().any(|other| other == line));
        rig.until(Duration::from_secs(60), "all changes are seen", async |_| all(&watcher.seen()).then_some(())).await;
    };
    wait(&["added a", "added b", "added default/s"]).await;
    assert_eq!(watcher.seen().len(), 3, "{:?}", watcher.seen());
    rig.create(node("c")).await;
    rig.patch_node("a", json!({"metadata": {"labels": {"x": "y"}}})).await;
    rig.delete("nodes", "", "b").await;
    rig.delete("services", "default", "s").await;
    wait(&["added c", "updated a", "deleted b", "deleted default/s"]).await;
    assert_eq!(watcher.seen().len(), 7, "{:?}", watcher.seen());
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_of_the_provider_name_its_component() {
    let rig = Rig::new("").await;
    let _manager = rig.start_with(Arc::new(Watcher::default()), &[]).await;
    assert_eq!(rig.event_component("a", "Initialized").await, "watcher-cloud-provider");
}
