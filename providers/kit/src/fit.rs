//! Members of a set that the cloud limits.

use std::collections::BTreeSet;

/// The changes of a limited set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit<T> {
    /// The members to add, in order.
    pub join: Vec<T>,
    /// The members to remove, in order.
    pub leave: Vec<T>,
    /// Wanted members for which there is no place, in order.
    pub left_out: Vec<T>,
    /// Whether the new members have places only after the others have left.
    pub leaves_first: bool,
}

/// The changes from the present to the wanted members of a set with at most `limit` of them. Wanted members that are
/// present stay, so that a set at its limit does not change without need; new ones take the free places in order.
pub fn fit<T: Ord + Clone>(present: &BTreeSet<T>, wanted: &BTreeSet<T>, limit: usize) -> Fit<T> {
    let (mut stay, mut new) = (present.intersection(wanted), wanted.difference(present));
    let kept = stay.by_ref().take(limit).count();
    let (over, free) = (stay.cloned().collect::<Vec<T>>(), limit - kept);
    let join: Vec<T> = new.by_ref().take(free).cloned().collect();
    let leave: Vec<T> = present.difference(wanted).cloned().chain(over.iter().cloned()).collect();
    Fit {
        leaves_first: present.len() + join.len() > limit,
        left_out: over.into_iter().chain(new.cloned()).collect(),
        join,
        leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(present: &str, wanted: &str, limit: usize, expected: (&str, &str, &str, bool)) {
        let set = |text: &str| text.chars().collect::<BTreeSet<char>>();
        let fit = fit(&set(present), &set(wanted), limit);
        let text = |list: Vec<char>| list.into_iter().collect::<String>();
        let got = (text(fit.join), text(fit.leave), text(fit.left_out), fit.leaves_first);
        assert_eq!((&*got.0, &*got.1, &*got.2, got.3), expected, "{present} {wanted} {limit}");
    }

    #[test]
    fn present_members_stay_and_new_ones_take_the_free_places() {
        check("", "abcd", 3, ("abc", "", "d", false));
        check("bcd", "abcd", 3, ("", "", "a", false));
        check("bcd", "abc", 3, ("a", "d", "", true));
        check("ab", "ac", 3, ("c", "b", "", false));
        check("abc", "def", 3, ("def", "abc", "", true));
        check("abc", "abc", 2, ("", "c", "c", true));
        check("abc", "", 0, ("", "abc", "", true));
        check("", "", 3, ("", "", "", false));
    }
}
