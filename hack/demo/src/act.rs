//! The parts that the tour is made of.

/// A part of the tour; each cloud has its own choice of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nodes join; the manager only plans.
    LookFirst,
    /// The same without `--dry-run`.
    ForReal,
    /// The Services want another port.
    Changed,
    /// A machine goes; its Node follows.
    Terminated,
    /// The cloud gives no answer; the Node stays.
    CannotTell,
    /// Another process takes over and has nothing to do.
    Restarted,
    /// Services go, but not before their balancers.
    Deleted,
}
