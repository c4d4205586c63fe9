//! Long work on a thread of its own, while the interpreter's thread listens for Ctrl-C and shows progress.

use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;

use crate::errors::{InternalError, IntoPython};

/// How often signals are looked at and progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// Tells the work whether to stop.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` without the interpreter's lock and `tick` with it, about ten times a second.
///
/// Signal handlers run only on the interpreter's main thread, so the work cannot look for them itself: it asks
/// [`Stop::requested`] and ends early. What a handler (Ctrl-C) or `tick` raised is then raised here, whatever the
/// work answered.
pub fn supervise<T, E, W>(py: Python<'_>, work: W, mut tick: impl FnMut(Python<'_>) -> PyResult<()>) -> PyResult<T>
where
    T: Send,
    E: IntoPython + Send,
    W: FnOnce(&Stop) -> Result<T, E> + Send,
{
    let stop = Stop::default();
    let done = (Mutex::new(false), Condvar::new());
    let mut raised: Option<PyErr> = None;
    let outcome = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let _announce = Announce(&done);
            work(&stop)
        });
        while !py.detach(|| wait(&done)) {
            if raised.is_none()
                && let Err(error) = py.check_signals().and_then(|()| tick(py))
            {
                stop.request();
                raised = Some(error);
            }
        }
        worker.join()
    });
    match (raised, outcome) {
        (Some(error), _) => Err(error),
        (None, Ok(Ok(value))) => tick(py).map(|()| value),
        (None, Ok(Err(error))) => Err(error.into_python()),
        (None, Err(panic)) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(InternalError::new_err(format!("a broken invariant of pagelab itself, please report it: {what}")))
        }
    }
}

type Done = (Mutex<bool>, Condvar);

/// Sets the flag when dropped, so also when the work panics.
struct Announce<'a>(&'a Done);

impl Drop for Announce<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// True once the work is done, after a tick at the latest.
fn wait((flag, changed): &Done) -> bool {
    let flag = flag.lock().unwrap_or_else(PoisonError::into_inner);
    let (flag, _) = changed.wait_timeout_while(flag, TICK, |done| !*done).unwrap_or_else(PoisonError::into_inner);
    *flag
}
