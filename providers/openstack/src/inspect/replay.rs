//! Plans for Services without OpenStack: from recorded observations and settings.

use std::collections::BTreeMap;

use ccm_kit::balancer::Engine;
use ccm_kit::inspect::replay;
use ccm_provider::ProviderError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;
use crate::node::identity::Identity;
use crate::start::config::{Class, Config, LoadBalancerConfig};

/// The inputs of plans besides Service and observation, as a snapshot stores them. A field that is added later has a
/// default, so that older snapshots can be read.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Facts {
    load_balancer: LoadBalancerConfig,
    classes: BTreeMap<String, Class>,
    region: String,
    is_regional: bool,
}

/// The facts for a snapshot: IDs and settings, no login.
pub(crate) fn facts(env: &Env) -> Value {
    let Env { config, identity } = env;
    let facts = Facts {
        load_balancer: config.load_balancer.clone(),
        classes: config.classes.clone(),
        region: identity.region.clone(),
        is_regional: identity.is_regional,
    };
    replay::facts(&facts)
}

/// Balancers that plan from facts and observations; reads and writes are errors.
pub(crate) fn balancers(facts: &Value) -> Result<Engine<Balancers>, ProviderError> {
    let Facts { load_balancer, classes, region, is_regional } = replay::read(facts, "OpenStack")?;
    let config = Config { load_balancer, classes, ..Config::default() };
    Ok(Engine::new(Balancers::without_cloud(Env { config, identity: Identity { region, is_regional } })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_the_settings_of_plans_and_no_login() {
        let text = "[Global]\nauth-url = https://keystone\nusername = us\npassword = geheim\nregion = R\n\
                    [LoadBalancer]\nlb-provider = ovn\nlb-method = SOURCE_IP_PORT\nmonitor-delay = 7s\n\
                    [LoadBalancerClass \"dmz\"]\nsubnet-id = 7c5c2f1e-9b0c-4c58-8a6e-0d5f0c7c2b11\n";
        let config = Config::parse(Some(text)).unwrap().0;
        let env = Env { config, identity: Identity { region: "R".to_owned(), is_regional: true } };
        let recorded = facts(&env);
        for hidden in ["geheim", "keystone", "\"us\""] {
            assert!(!recorded.to_string().contains(hidden), "{recorded}");
        }
        let replayed = balancers(&recorded).unwrap();
        let again = replayed.cloud().env();
        assert_eq!(again.config.load_balancer, env.config.load_balancer);
        assert_eq!((&again.config.classes, &again.identity), (&env.config.classes, &env.identity));
        assert_eq!(
            balancers(&Value::Object(serde_json::Map::new())).unwrap().cloud().env().identity,
            Identity::default()
        );
        assert!(balancers(&serde_json::json!({"region": 1})).is_err());
    }
}
