//! The steps of a plan: one envelope for the writes of all clouds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{Finding, ProviderError, Step as Summary, Verb};

/// The writes of a plan.
#[derive(Debug)]
pub struct Plan<W> {
    /// In an order in which the process may be interrupted after any prefix.
    pub steps: Vec<Step<W>>,
    /// Findings for the user.
    pub findings: Vec<Finding>,
    /// Items, by index in the work, of which some or all is impossible. Their steps are executed nevertheless: those
    /// that the error does not concern.
    pub failed: BTreeMap<usize, ProviderError>,
}

impl<W> Default for Plan<W> {
    fn default() -> Self {
        Self { steps: Vec::new(), findings: Vec::new(), failed: BTreeMap::new() }
    }
}

impl<W> Plan<W> {
    /// The items that the steps concern.
    pub(super) fn places(&self, count: usize) -> BTreeSet<usize> {
        self.steps.iter().flat_map(|step| step.items.of(count)).collect()
    }

    /// Removes an item from the steps.
    pub(super) fn leave_out(&mut self, place: usize) {
        self.leave_out_of(place, |_| true);
    }

    /// Leaves only the members of what exists: the item is removed from all other steps.
    pub(super) fn leave_only_members(&mut self, place: usize) {
        let makes = |step: &Step<W>| matches!(step.part.kind, Kind::Claim | Kind::Frame) && step.items.contains(place);
        let is_new = self.steps.iter().any(makes);
        self.leave_out_of(place, |step| is_new || step.part.kind != Kind::Members);
    }

    fn leave_out_of(&mut self, place: usize, leaves: impl Fn(&Step<W>) -> bool) {
        for step in &mut self.steps {
            let leaves = leaves(step);
            if let (true, Items::Some(places)) = (leaves, &mut step.items) {
                places.remove(&place);
            }
        }
        self.steps.retain(|step| !matches!(&step.items, Items::Some(places) if places.is_empty()));
    }

    /// The plan for a state that makes all items of the work impossible.
    pub(super) fn impossible(count: usize, error: &ProviderError) -> Self {
        Self { failed: (0..count).map(|place| (place, error.clone())).collect(), ..Self::default() }
    }
}

/// One write of a plan.
#[derive(Debug, Clone)]
pub struct Step<W> {
    /// The write.
    pub write: W,
    /// Its description for users.
    pub summary: Summary,
    /// The items for which it is.
    pub items: Items,
    /// Other items whose steps of smaller stages end before this one, and which do not fail with it.
    pub after: BTreeSet<usize>,
    /// The part of the load balancer to which it belongs.
    pub part: Part,
    /// The kinds of parts without which it is not executed.
    pub needs: &'static [Kind],
    /// Whether it needs those of all ports: it removes what serves until its successor does.
    pub needs_all: bool,
    /// Whether it only prepares later steps of its part: it is not executed if the cloud has refused one of them.
    pub prepares: bool,
    /// Whether it removes what a step has prepared: it is also executed if the part is refused and nothing that was deleted
    /// for it is missing.
    pub releases: bool,
    /// Whether it is for an object that other Services use, too. Its refusal is not remembered: what ends it is in none of
    /// them.
    pub is_shared: bool,
    /// For clouds that change objects concurrently: a step begins when all steps of its items with a smaller stage have
    /// ended. `None`: steps run one after the other.
    pub stage: Option<u32>,
    /// Whether a refusal is only a finding: the load balancer works without it.
    pub optional: bool,
    /// Executed if the cloud accepts the write and it fails afterwards: removes what is left of it.
    pub undo: Option<Box<Step<W>>>,
    /// Executed in this order if the cloud refuses the write, or another one of its part after the object was deleted:
    /// creates again what was deleted for it. The refusal stays the result.
    pub restore: Vec<Arc<Step<W>>>,
}

/// The items of a step, by index in the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Items {
    /// All items of the work.
    All,
    /// These.
    Some(BTreeSet<usize>),
}

/// A part of a load balancer. Parts fail alone: a failed step ends its part, and the parts that need it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The kind of the part.
    pub kind: Kind,
    /// The listener, port or group to which it is limited; empty: the whole load balancer.
    pub of: Cow<'static, str>,
}

/// The kinds of parts, in the usual order of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The mark of the owner on an object that exists: the first write of a join, the last of a deletion.
    Claim,
    /// The objects that traffic passes: balancer, listener, pool, forwarding rule.
    Frame,
    /// The nodes behind the load balancer.
    Members,
    /// Rules that admit the traffic: security groups, firewalls.
    Rules,
    /// Everything else that the Service requests.
    Settings,
    /// Objects that Services share.
    Shared,
    /// The removal of objects that are no longer used.
    Retire,
    /// The removal of the claim.
    Release,
}

impl Kind {
    /// The kinds whose failure prevents a step of this kind, unless the step says otherwise.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Claim | Self::Shared => &[],
            Self::Frame | Self::Rules => &[Self::Claim],
            Self::Members | Self::Settings => &[Self::Claim, Self::Frame],
            Self::Retire => &[Self::Claim, Self::Frame, Self::Members],
            Self::Release => &[
                Self::Claim,
                Self::Frame,
                Self::Members,
                Self::Rules,
                Self::Settings,
                Self::Shared,
                Self::Retire,
                Self::Release,
            ],
        }
    }
}

impl Items {
    /// One item.
    pub fn one(place: usize) -> Self {
        Self::Some([place].into())
    }

    /// Whether the item is one of them.
    pub fn contains(&self, place: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(places) => places.contains(&place),
        }
    }

    pub(super) fn overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::Some(one), Self::Some(other)) => !one.is_disjoint(other),
        }
    }

    /// The items of a work of `count` items.
    pub(super) fn of(&self, count: usize) -> Vec<usize> {
        (0..count).filter(|place| self.contains(*place)).collect()
    }
}

impl Part {
    /// A part of the whole load balancer.
    pub fn new(kind: Kind) -> Self {
        Self { kind, of: Cow::Borrowed("") }
    }

    /// The part of one listener, port or group.
    pub fn of(kind: Kind, of: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, of: of.into() }
    }
}

impl<W> Step<W> {
    /// A step that runs after the steps before it.
    pub fn new(write: W, summary: Summary, items: Items, part: Part) -> Self {
        let needs = part.kind.needs();
        Self {
            write,
            summary,
            items,
            after: BTreeSet::new(),
            part,
            needs,
            needs_all: false,
            prepares: false,
            releases: false,
            is_shared: false,
            stage: None,
            optional: false,
            undo: None,
            restore: Vec::new(),
        }
    }

    /// The step with other needs than usual for its kind.
    #[must_use]
    pub fn needs(mut self, needs: &'static [Kind]) -> Self {
        self.needs = needs;
        self
    }

    /// The step at a stage.
    #[must_use]
    pub fn stage(mut self, stage: u32) -> Self {
        self.stage = Some(stage);
        self
    }

    /// The step as one that only prepares later ones, or not.
    #[must_use]
    pub fn prepares(mut self, prepares: bool) -> Self {
        self.prepares = prepares;
        self
    }

    /// The step as one that removes what was prepared, or not.
    #[must_use]
    pub fn releases(mut self, releases: bool) -> Self {
        self.releases = releases;
        self
    }

    /// The step as one for an object that other Services use, too, or not.
    #[must_use]
    pub fn shared(mut self, is_shared: bool) -> Self {
        self.is_shared = is_shared;
        self
    }

    /// The step after those of other items.
    #[must_use]
    pub fn after(mut self, items: BTreeSet<usize>) -> Self {
        self.after = items;
        self
    }

    /// The step as an optional one.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The step with another one for the case that it fails after it was accepted.
    #[must_use]
    pub fn undo(mut self, step: Self) -> Self {
        self.undo = Some(Box::new(step));
        self
    }

    /// The step with one more that creates again what was deleted for it.
    #[must_use]
    pub fn restore(mut self, step: Self) -> Self {
        self.restore.push(Arc::new(step));
        self
    }

    /// The object that it changes.
    pub fn object(&self) -> String {
        format!("{} {}", self.summary.kind, self.summary.id)
    }

    /// The description for users, with the steps for the case that it fails.
    pub(crate) fn printed(self) -> Summary {
        let Self { mut summary, undo, restore, .. } = self;
        let named = |step: &Self| format!("{} {} {}", step.summary.verb.as_str(), step.summary.kind, step.summary.id);
        if let Some(undo) = undo {
            summary.reason = format!("{}; if it fails afterwards: {}", summary.reason, named(&undo));
        }
        for restore in restore {
            summary.reason = format!("{}; if it is refused: {}, as before", summary.reason, named(&restore));
        }
        summary
    }

    /// The later steps for which this deletion makes room, or for which this detaches something.
    pub(super) fn successors<'s>(&'s self, later: &'s [Self]) -> impl Iterator<Item = &'s Self> {
        let verb = match self.summary.verb {
            Verb::Delete => Some(Verb::Create),
            Verb::Detach => Some(Verb::Attach),
            Verb::Create | Verb::Update | Verb::Attach => None,
        };
        later.iter().filter(move |step| Some(step.summary.verb) == verb && self.makes_room_for(step))
    }

    /// The later steps that this prepares.
    pub(super) fn prepared<'s>(&'s self, later: &'s [Self]) -> impl Iterator<Item = &'s Self> {
        later.iter().filter(|step| self.prepares && self.makes_room_for(step))
    }

    /// Whether one of the earlier steps prepares this.
    pub(super) fn is_prepared_by(&self, earlier: &[Self]) -> bool {
        earlier.iter().any(|step| step.prepares && step.makes_room_for(self))
    }

    /// Whether this deletion may make room for a later creation: both are of one part, or of one port.
    fn makes_room_for(&self, later: &Self) -> bool {
        let is_of_one = !self.part.of.is_empty() && self.part.of == later.part.of;
        (is_of_one || self.part == later.part) && self.items.overlap(&later.items)
    }

    /// Whether the failure of `part` prevents this step.
    pub(super) fn is_blocked_by(&self, part: &Part) -> bool {
        if *part == self.part {
            return true;
        }
        let is_whole = self.needs_all || self.part.of.is_empty() && self.part.kind >= Kind::Retire;
        self.needs.contains(&part.kind) && (part.of.is_empty() || part.of == self.part.of || is_whole)
    }
}
