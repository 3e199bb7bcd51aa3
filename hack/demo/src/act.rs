//! The parts of the tour.

/// A part of the tour; each cloud has its own choice of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nodes join; the manager only plans.
    LookFirst,
    /// The same without `--dry-run`.
    ForReal,
    /// The Services get another port.
    Changed,
    /// A machine is terminated; its Node is deleted.
    Terminated,
    /// The cloud gives no answer; the Node stays.
    CannotTell,
    /// Another process takes over and writes nothing.
    Restarted,
    /// Services are deleted, after their balancers.
    Deleted,
}
