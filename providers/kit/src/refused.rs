//! Calls for many objects that a cloud refuses as a whole because of some of them.

use std::collections::VecDeque;
use std::future::Future;

/// Makes a call for all `ids`, and repeats a refused call without the objects that its error names; if it names none,
/// for each half of the objects. Returns the objects of each call that ended, with its result: one refused object does
/// not fail the others.
///
/// `concerns_some` is whether an error may be about some of the objects only; `names` whether it names one.
///
/// About twice as many calls as one refused object among them costs may be refused. After that, the objects that are
/// left get the last error: probably all are refused.
pub async fn split_refused<I: Clone, T, E: Clone, F: Future<Output = Result<T, E>>>(
    ids: Vec<I>,
    concerns_some: impl Fn(&E) -> bool,
    names: impl Fn(&E, &I) -> bool,
    call: impl Fn(Vec<I>) -> F,
) -> Vec<(Vec<I>, Result<T, E>)> {
    let mut left = 2 * ids.len().max(1).ilog2() + 4;
    let mut results = Vec::new();
    let mut parts = VecDeque::from([ids]);
    let mut last = None;
    while let Some(mut part) = parts.pop_front() {
        if part.is_empty() {
            continue;
        }
        if let (0, Some(error)) = (left, &last) {
            results.push((part, Err(E::clone(error))));
            continue;
        }
        let error = match call(part.clone()).await {
            Err(error) if part.len() > 1 && concerns_some(&error) => error,
            result => {
                results.push((part, result));
                continue;
            }
        };
        left -= 1;
        let (named, others): (Vec<I>, Vec<I>) = part.drain(..).partition(|id| names(&error, id));
        match (named.is_empty(), others.is_empty()) {
            (false, false) => {
                results.push((named, Err(error.clone())));
                parts.push_back(others);
            }
            (_, is_all) => {
                let mut first = if is_all { named } else { others };
                let second = first.split_off(first.len() / 2);
                parts.extend([first, second]);
            }
        }
        last = Some(error);
    }
    results
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use futures::FutureExt as _;

    use super::*;

    /// Refuses a call with one of the bad objects. Returns the objects that were accepted, those that were refused, and
    /// the number of calls.
    fn split(count: usize, bad: &[usize], is_named: bool) -> (BTreeSet<usize>, BTreeSet<usize>, usize) {
        let calls = Cell::new(0);
        let call = |ids: Vec<usize>| {
            calls.set(calls.get() + 1);
            let refused: Vec<String> = ids.iter().filter(|id| bad.contains(id)).map(|id| format!("<{id}>")).collect();
            std::future::ready(if refused.is_empty() { Ok(()) } else { Err(refused.join(" ")) })
        };
        let names = |error: &String, id: &usize| is_named && error.contains(&format!("<{id}>"));
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
                let (good, refused, calls) = split(count, &[bad], false);
                assert_eq!((good.len(), refused), (count - 1, [bad].into()), "{count}");
                assert!(calls <= 2 * count.ilog2() as usize + 3, "{count}: {calls} calls");
            }
        }
    }

    #[test]
    fn named_objects_cost_one_more_call() {
        let (good, refused, calls) = split(500, &[7, 8, 499], true);
        assert_eq!((good.len(), refused, calls), (497, [7, 8, 499].into(), 2));
    }

    #[test]
    fn accepted_objects_cost_one_call_and_no_objects_none() {
        assert_eq!(split(500, &[], false).2, 1);
        assert_eq!(split(0, &[], false).2, 0);
    }

    #[test]
    fn objects_that_are_all_refused_cost_few_calls() {
        let all: Vec<usize> = (0..500).collect();
        for is_named in [false, true] {
            let (good, refused, calls) = split(500, &all, is_named);
            assert_eq!((good.len(), refused.len()), (0, 500));
            assert!(calls <= 20, "{calls} calls");
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
