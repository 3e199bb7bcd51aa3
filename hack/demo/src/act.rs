//! The parts of the tour.

/// A part of the tour; the selection depends on the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nodes join; the manager only plans.
    LookFirst,
    /// Like [`Act::LookFirst`], without `--dry-run`.
    ForReal,
    /// The Services get another port.
    Changed,
    /// A machine is terminated; its Node is deleted.
    Terminated,
    /// The cloud does not answer; the Node stays.
    CannotTell,
    /// Another process takes over and writes nothing.
    Restarted,
    /// Services are deleted, after their load balancers.
    Deleted,
}
