//! Calls for many objects that a cloud refuses as a whole because of some of them.

use std::collections::VecDeque;
use std::future::Future;

/// The number of objects that may be refused one by one before one is accepted, and for each call that is accepted.
const SINGLES: u32 = 8;

/// Makes a call for all `ids`, and repeats a refused call without the objects that its error names; if it names none,
/// for each half of the objects. Returns the objects of each call that ended, with its result: one refused object does
/// not fail the others.
///
/// `concerns_some` is whether an error may be about some of the objects only; `names` whether it names one.
///
/// After some objects are refused one by one and none is accepted, the rest gets the last error: probably all are
/// refused.
pub async fn split_refused<I: Clone, T, E: Clone, F: Future<Output = Result<T, E>>>(
    ids: Vec<I>,
    concerns_some: impl Fn(&E) -> bool,
    names: impl Fn(&E, &I) -> bool,
    call: impl Fn(Vec<I>) -> F,
) -> Vec<(Vec<I>, Result<T, E>)> {
    let mut left = SINGLES;
    let mut results = Vec::new();
    let mut parts: VecDeque<Vec<I>> = [ids].into_iter().filter(|ids| !ids.is_empty()).collect();
    let mut last = None;
    while let Some(part) = parts.pop_front() {
        if let (0, Some(error)) = (left, &last) {
            results.push((part, Err(E::clone(error))));
            continue;
        }
        let error = match call(part.clone()).await {
            Err(error) if concerns_some(&error) => error,
            result => {
                left += if result.is_ok() { SINGLES } else { 0 };
                results.push((part, result));
                continue;
            }
        };
        let is_first = last.replace(error.clone()).is_none();
        if part.len() == 1 {
            results.push((part, Err(error)));
            left -= 1;
            // The refused ones may be neighbors: the largest part is the last one.
            if left.is_multiple_of(SINGLES / 2) && !parts.is_empty() {
                parts.rotate_right(1);
            }
            continue;
        }
        let (named, others): (Vec<I>, Vec<I>) = part.into_iter().partition(|id| names(&error, id));
        let mut first = match (named.is_empty(), others.is_empty()) {
            (false, true) => named,
            (true, _) => others,
            (false, false) => {
                results.push((named, Err(error)));
                // The error may name all of them.
                if is_first {
                    parts.push_front(others);
                    continue;
                }
                others
            }
        };
        let second = first.split_off(first.len() / 2);
        for half in [second, first].into_iter().filter(|half| !half.is_empty()) {
            parts.push_front(half);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use futures::FutureExt as _;

    use super::*;

    /// Which objects an error names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Named {
        None,
        First,
        All,
    }

    /// Refuses a call with one of the bad objects. Returns the objects that were accepted, those that were refused, and
    /// the number of calls.
    fn split(count: usize, bad: &[usize], named: Named) -> (BTreeSet<usize>, BTreeSet<usize>, usize) {
        let calls = Cell::new(0);
        let call = |ids: Vec<usize>| {
            calls.set(calls.get() + 1);
            let refused = ids.iter().filter(|id| bad.contains(id)).map(|id| format!("<{id}>"));
            let refused: Vec<String> = refused.take(if named == Named::First { 1 } else { usize::MAX }).collect();
            std::future::ready(if refused.is_empty() { Ok(()) } else { Err(refused.join(" ")) })
        };
        let names = |error: &String, id: &usize| named != Named::None && error.contains(&format!("<{id}>"));
        let results = split_refused((0..count).collect(), |_| true, names, call).now_or_never().unwrap();
        let (mut good, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for (ids, result) in results {
            if result.is_ok() { good.extend(ids) } else { refused.extend(ids) }
        }
        assert_eq!(good.len() + refused.len(), count, "one result each");
        (good, refused, calls.get())
    }

    #[test]
    fn one_refused_object_fails_alone() {
        for count in [1, 2, 3, 40, 500] {
            for bad in [0, count / 2, count - 1] {
                let (good, refused, calls) = split(count, &[bad], Named::None);
                assert_eq!((good.len(), refused), (count - 1, [bad].into()), "{count}");
                assert!(calls <= 2 * count.ilog2() as usize + 3, "{count}: {calls} calls");
            }
        }
    }

    #[test]
    fn named_objects_cost_one_more_call() {
        let (good, refused, calls) = split(500, &[7, 8, 499], Named::All);
        assert_eq!((good.len(), refused, calls), (497, [7, 8, 499].into(), 2));
    }

    #[test]
    fn accepted_objects_cost_one_call_and_no_objects_none() {
        assert_eq!(split(500, &[], Named::None).2, 1);
        assert_eq!(split(0, &[], Named::None).2, 0);
    }

    #[test]
    fn objects_that_are_all_refused_cost_few_calls() {
        let all: Vec<usize> = (0..500).collect();
        for named in [Named::None, Named::First, Named::All] {
            let (good, refused, calls) = split(500, &all, named);
            assert_eq!((good.len(), refused.len()), (0, 500));
            assert!(calls <= 30, "{calls} calls");
        }
    }

    #[test]
    fn many_refused_objects_keep_no_other_from_its_call() {
        let all = || 0..60_usize;
        let bad: [(&str, Vec<usize>); 5] = [
            ("every second", all().filter(|id| id % 2 == 1).collect()),
            ("the first half", (0..30).collect()),
            ("the last half", (30..60).collect()),
            ("some, and every second", all().filter(|id| *id < 16 || id % 2 == 1).collect()),
            ("two of three", all().filter(|id| id % 3 != 1).collect()),
        ];
        for (which, bad) in bad {
            for named in [Named::None, Named::First, Named::All] {
                let (good, refused, calls) = split(60, &bad, named);
                assert_eq!((good.len(), refused.len()), (60 - bad.len(), bad.len()), "{which}, {named:?}");
                assert!(calls <= 120, "{which}, {named:?}: {calls} calls");
            }
        }
    }

    #[test]
    fn an_error_about_the_call_is_the_error_of_all() {
        let calls = Cell::new(0);
        let call = |_: Vec<usize>| {
            calls.set(calls.get() + 1);
            std::future::ready(Err::<(), _>("throttled"))
        };
        let results = split_refused(vec![1, 2, 3], |_| false, |_, _| false, call).now_or_never().unwrap();
        assert_eq!((results.len(), results[0].0.len(), calls.get()), (1, 3, 1));
    }
}
