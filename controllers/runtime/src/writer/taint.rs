//! Changes to the taint list of a node. Each returns the whole new list, because the API merges taints only as a whole.
//!
//! Behavior of `kubernetes/cloud-provider` `node/helpers/taints.go`.
use ccm_provider::Taint;
use ccm_provider::well_known::TAINT_SHUTDOWN;

/// The taint of a node whose instance is stopped: effect `NoSchedule`, no value.
#[must_use]
pub fn shutdown_taint() -> Taint {
    Taint { key: TAINT_SHUTDOWN.into(), value: "".into(), effect: "NoSchedule".into(), time_added: None }
}

/// The list without all taints of a key, regardless of value and effect; the others keep their order.
#[must_use]
pub fn without_key(taints: &[Taint], key: &str) -> Vec<Taint> {
    taints.iter().filter(|taint| &*taint.key != key).cloned().collect()
}

/// The list with a taint, which replaces the one with the same key and effect or is appended. `None` if the list has an
/// equal one, so that nothing needs to be written.
///
/// The time of a present taint matters only if the new one has a time too, so that the API server's timestamp does not
/// look like a change. (Upstream always compares it.)
#[must_use]
pub fn add_or_update(taints: &[Taint], taint: Taint) -> Option<Vec<Taint>> {
    let Some(place) = taints.iter().position(|present| present.same_identity(&taint)) else {
        return Some(taints.iter().cloned().chain([taint]).collect());
    };
    let mut changed = taints.to_vec();
    let present = changed.get_mut(place)?;
    if present.value == taint.value && (taint.time_added.is_none() || present.time_added == taint.time_added) {
        return None;
    }
    *present = taint;
    Some(changed)
}

/// The list without all taints of the same key and effect; `None` if there is none.
#[must_use]
pub fn remove(taints: &[Taint], taint: &Taint) -> Option<Vec<Taint>> {
    let rest: Vec<Taint> = taints.iter().filter(|present| !present.same_identity(taint)).cloned().collect();
    (rest.len() < taints.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_provider::well_known::TAINT_UNINITIALIZED;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into(), time_added: None }
    }

    #[test]
    fn both_uninitialized_taints_go_and_the_others_stay_in_order() {
        let list = [
            taint("a", "", "NoSchedule"),
            taint(TAINT_UNINITIALIZED, "true", "NoSchedule"),
            taint("b", "1", "NoExecute"),
            taint(TAINT_UNINITIALIZED, "", "NoExecute"),
        ];
        assert_eq!(without_key(&list, TAINT_UNINITIALIZED), [list[0].clone(), list[2].clone()]);
    }

    #[test]
    fn a_second_shutdown_pass_needs_no_patch() {
        let first = add_or_update(&[taint("a", "", "NoSchedule")], shutdown_taint()).unwrap();
        assert_eq!(first, [taint("a", "", "NoSchedule"), shutdown_taint()]);
        assert_eq!(add_or_update(&first, shutdown_taint()), None);
        let stamped = [Taint { time_added: Some("2026-01-01T00:00:00Z".into()), ..shutdown_taint() }];
        assert_eq!(add_or_update(&stamped, shutdown_taint()), None);
    }

    #[test]
    fn another_value_is_replaced_in_place_and_another_effect_is_another_taint() {
        let list = [taint("k", "1", "NoSchedule"), taint("z", "", "NoSchedule")];
        assert_eq!(
            add_or_update(&list, taint("k", "2", "NoSchedule")).unwrap(),
            [taint("k", "2", "NoSchedule"), taint("z", "", "NoSchedule")]
        );
        assert_eq!(add_or_update(&list, taint("k", "1", "NoExecute")).unwrap().len(), 3);
    }

    #[test]
    fn removing_an_absent_taint_needs_no_patch() {
        let list = [taint("k", "1", "NoSchedule"), taint("k", "1", "NoExecute")];
        assert_eq!(remove(&list, &taint("k", "other", "NoSchedule")).unwrap(), [taint("k", "1", "NoExecute")]);
        assert_eq!(remove(&list, &taint("k", "1", "PreferNoSchedule")), None);
        assert_eq!(remove(&[], &shutdown_taint()), None);
    }
}
