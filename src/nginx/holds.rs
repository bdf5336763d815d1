//! The timer with which a worker gives back what ended workers held, for limits on requests that are under way.

use core::cell::RefCell;
use std::sync::Arc;

use super::conf::{Lent, MainConf};
use super::event_loop::{EventTimer, NgxClock, OfEventLoop, measured};
use super::log::Log;
use super::sync;
use crate::table::{CounterTable, HeldSweep, LOOK_EVERY};

/// The timer of this worker, and its sweeps.
static SWEEPS: OfEventLoop<RefCell<Option<Sweeps>>> = OfEventLoop(RefCell::new(None));

struct Sweeps {
    timer: EventTimer<'static>,
    tables: Vec<(&'static CounterTable<'static>, HeldSweep)>,
    /// Keeps the tables.
    _lent: Arc<Lent>,
}

/// Starts to look after the holds in the zones of a configuration, in place of any other one. The first look is at once,
/// since this worker may take the place of a killed one.
pub(super) fn start(conf: &'static MainConf, log: Log<'static>) {
    let timer = EventTimer::new(log, look, 0).cancelable();
    timer.set(1);
    let tables = conf.tables().map(|table| (table, HeldSweep::default())).collect();
    *SWEEPS.0.borrow_mut() = Some(Sweeps { timer, tables, _lent: conf.lend() });
}

/// Starts to look after the holds of callers of the library, in a worker that does not yet.
pub(super) fn start_if_serving(conf: &'static MainConf) {
    let is_started = SWEEPS.0.borrow().is_some();
    if let Some(log) = sync::serving_log().filter(|_| !is_started) {
        start(conf, log);
    }
}

/// Ends the timer.
pub(super) fn end() {
    SWEEPS.0.take();
}

/// Looks for ended workers, or makes a step of a sweep.
fn look(_: u64) {
    let mut sweeps = SWEEPS.0.borrow_mut();
    let Some(Sweeps { timer, tables, .. }) = sweeps.as_mut() else { return };
    let mut has_more = false;
    for (table, sweep) in tables {
        has_more |= measured(Some(table), || {
            table.look_at_holders(sweep) && table.sweep_holds(sweep, &NgxClock)
        });
    }
    let pause = u64::try_from(LOOK_EVERY.as_millis()).unwrap_or(u64::MAX);
    timer.set(if has_more { 1 } else { pause });
}
