//! The order in which steps begin. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::step::Step;

/// Which steps may begin. A step with a stage waits for the steps of its items with smaller stages; a step without one
/// waits for all before it.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The position of each step; the same for consecutive steps of one stage.
    order: Vec<usize>,
    /// The items that each step concerns, or waits for.
    items: Vec<Vec<usize>>,
    /// By item: the number of steps at each position that have not ended.
    left: Vec<BTreeMap<usize, usize>>,
    /// The steps of an item at a position.
    at: BTreeMap<(usize, usize), Vec<usize>>,
    begun: Vec<bool>,
}

impl Schedule {
    pub(super) fn new<W>(steps: &[Step<W>], count: usize) -> Self {
        let all = || (0..count).collect::<Vec<_>>();
        let mut schedule = Self {
            order: Vec::new(),
            items: Vec::new(),
            left: vec![BTreeMap::new(); count],
            at: BTreeMap::new(),
            begun: vec![false; steps.len()],
        };
        let (mut position, mut before) = (0, None);
        for (index, step) in steps.iter().enumerate() {
            if step.stage.is_none() || step.stage != before {
                position += 1;
            }
            before = step.stage;
            let own = if step.stage.is_none() { all() } else { step.items.of(count) };
            let mut items: BTreeSet<usize> = if own.is_empty() { all() } else { own }.into_iter().collect();
            items.extend(step.after.iter().filter(|item| **item < count));
            for item in &items {
                if let Some(left) = schedule.left.get_mut(*item) {
                    *left.entry(position).or_default() += 1;
                }
                schedule.at.entry((*item, position)).or_default().push(index);
            }
            schedule.order.push(position);
            schedule.items.push(items.into_iter().collect());
        }
        schedule
    }

    /// The steps that begin first.
    pub(super) fn first(&mut self) -> Vec<usize> {
        (0..self.order.len()).filter(|index| self.begins(*index)).collect()
    }

    /// The steps that begin after the end of this one.
    pub(super) fn after(&mut self, index: usize) -> Vec<usize> {
        let Some(position) = self.order.get(index).copied() else { return Vec::new() };
        let items = self.items.get(index).cloned().unwrap_or_default();
        let mut next = Vec::new();
        for item in items {
            let Some(left) = self.left.get_mut(item) else { continue };
            if let Some(count) = left.get_mut(&position) {
                *count -= 1;
                if *count == 0 {
                    left.remove(&position);
                }
            }
            let Some((first, _)) = left.first_key_value() else { continue };
            next.extend(self.at.get(&(item, *first)).into_iter().flatten().copied());
        }
        next.retain(|index| self.begins(*index));
        next
    }

    /// Whether no step of the item is left.
    pub(super) fn has_ended(&self, item: usize) -> bool {
        self.left.get(item).is_none_or(BTreeMap::is_empty)
    }

    fn begins(&mut self, index: usize) -> bool {
        let position = self.order.get(index);
        let is_first =
            |item: &usize| self.left.get(*item).and_then(|left| left.first_key_value()).map(|(key, _)| key) == position;
        let is_due = self.items.get(index).is_some_and(|items| items.iter().all(is_first));
        match self.begun.get_mut(index) {
            Some(begun) if is_due && !*begun => {
                *begun = true;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::{Risk, Verb};

    use super::super::step::{Items, Kind, Part};
    use super::*;

    #[test]
    fn a_step_begins_after_those_of_items_that_do_not_fail_with_it() {
        let step = |item: usize, stage: u32| {
            let (id, reason) = (item.to_string(), String::new());
            let summary = ccm_provider::Step {
                verb: Verb::Update,
                kind: "it".into(),
                id,
                changes: Vec::new(),
                reason,
                risk: Risk::None,
            };
            Step::new((), summary, Items::one(item), Part::new(Kind::Frame)).stage(stage)
        };
        let steps = [step(0, 1), step(1, 2).after([0].into()), step(0, 3)];
        let mut schedule = Schedule::new(&steps, 2);
        assert_eq!(schedule.first(), [0]);
        assert_eq!(schedule.after(0), [1]);
        assert_eq!(schedule.after(1), [2], "and those behind it wait for it");
        assert!(!schedule.has_ended(0));
    }
}
