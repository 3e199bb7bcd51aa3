//! Injected panics are not printed; any other panic is a violation, wherever it is caught.

use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, Once};

use crate::cloud::PANIC;
use crate::trace::{Invariant, Trace};

thread_local! {
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// Installs the panic hook of the process, once.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
            if text.starts_with(PANIC) {
                return;
            }
            let trace = TRACE.try_with(|trace| trace.try_borrow().ok().and_then(|trace| trace.clone())).ok().flatten();
            match trace {
                Some(trace) => {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    trace.violated(Invariant::Alive, format_args!("a panic at {place}: {text}"));
                }
                None => before(info),
            }
        }));
    });
}

/// Records the panics of this thread as violations until it is dropped.
pub(crate) struct Watch;

/// See [`Watch`].
pub(crate) fn watch(trace: Arc<Trace>) -> Watch {
    TRACE.with(|slot| slot.replace(Some(trace)));
    Watch
}

impl Drop for Watch {
    fn drop(&mut self) {
        TRACE.with(|slot| slot.replace(None));
    }
}
