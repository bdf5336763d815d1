//! Processes of tests: they share tables, and end or are stopped at fail points.

use core::cell::RefCell;
use std::collections::BTreeMap;

use crate::table::words::fail;

/// Runs `worker` with the numbers below `count` at once, each in a process of its own. In threads of this process with
/// `--cfg threads`, since a sanitizer sees one process only, and in Miri.
pub(crate) fn at_once(count: u64, worker: impl Fn(u64) + Sync) {
    if cfg!(any(threads, miri)) {
        return std::thread::scope(|scope| {
            for number in 0..count {
                let worker = &worker;
                scope.spawn(move || worker(number));
            }
        });
    }
    let start = |number| Process::start(|| worker(number));
    for process in (0..count).map(start).collect::<Vec<_>>() {
        assert_eq!(process.wait(), None);
    }
}

/// Runs `child` in a process of its own, which shares the tables; returns the signal that ended
/// it, if one did.
pub(crate) fn in_process(child: impl FnOnce()) -> Option<i32> {
    Process::start(child).wait()
}

/// A process that runs a part of a test.
pub(crate) struct Process(libc::pid_t);

impl Process {
    pub(crate) fn start(child: impl FnOnce()) -> Process {
        // SAFETY: the child has one thread, and uses nothing that another thread of its parent may
        // have left locked but the memory allocator, which libc repairs.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                // SAFETY: ends the process, without the handlers of its parent.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            pid => Process(pid),
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// Waits until the process has stopped, or ended. Returns whether it has stopped.
    pub(crate) fn wait_for_stop(&self) -> bool {
        let id = self.0 as libc::id_t;
        // SAFETY: all-zero is a valid value.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: a child that was not waited for. Its end, if it has ended, is left for `wait`.
        let seen = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) };
        assert_eq!(seen, 0);
        info.si_code == libc::CLD_STOPPED
    }

    /// Waits for the end; a child that panicked fails the test.
    pub(crate) fn wait(self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        if libc::WIFSIGNALED(status) {
            return Some(libc::WTERMSIG(status));
        }
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child panicked");
        None
    }
}

thread_local! {
    static SEEN: RefCell<BTreeMap<&'static str, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the fail points that `scenario` passes, and how often.
pub(crate) fn points_of(scenario: impl FnOnce()) -> BTreeMap<&'static str, u32> {
    SEEN.take();
    fail::observe(Some(|point| SEEN.with_borrow_mut(|seen| *seen.entry(point).or_default() += 1)));
    scenario();
    fail::observe(None);
    SEEN.take()
}

/// Runs `scenario` on what `prepare` made: first to its end, to see which fail points it passes (at
/// least the `expected` ones) and how often; then once for each of these, in a process that dies
/// there. `check` is told where.
pub(crate) fn die_everywhere<S>(
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    expected: &[&str],
    check: impl Fn(&S, &'static str),
) {
    let state = prepare();
    let points = points_of(|| scenario(&state));
    // At least these; in which bucket a key ends up depends on its hash.
    for point in expected {
        assert!(points.contains_key(point), "{point} is not in {points:?}");
    }
    for (point, times) in points {
        for nth in 1..=times {
            let state = prepare();
            let signal = in_process(|| {
                fail::arm(point, nth);
                scenario(&state);
            });
            assert_eq!(signal, Some(libc::SIGABRT), "{point} {nth}");
            check(&state, point);
        }
    }
}

/// Runs `scenario` on what `prepare` made as [`die_everywhere`] does, in processes that are stopped at a fail point, go
/// on after `meanwhile`, and run to their end: at each point, once where it is passed for the first time, once for the last.
/// `meanwhile` and `check` are told which.
pub(crate) fn pause_everywhere<S>(
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    expected: &[&str],
    meanwhile: impl Fn(&S, Pass),
    check: impl Fn(&S),
) {
    let state = prepare();
    let points = points_of(|| scenario(&state));
    for point in expected {
        assert!(points.contains_key(point), "{point} is not in {points:?}");
    }
    pause_at(points, prepare, scenario, meanwhile, check);
}

/// Runs `scenario` as [`pause_everywhere`] does, stopped at these points, each with the number of times that it is passed.
pub(crate) fn pause_at<S>(
    points: impl IntoIterator<Item = (&'static str, u32)>,
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    meanwhile: impl Fn(&S, Pass),
    check: impl Fn(&S),
) {
    for (point, times) in points {
        for (pass, nth) in [(Pass::First, 1), (Pass::Last, times)] {
            // For the log of a test that fails.
            eprintln!("stopped at {point} {nth}");
            let state = prepare();
            let process = Process::start(|| {
                fail::pause_at(point, nth);
                scenario(&state);
            });
            assert!(process.wait_for_stop(), "{point} {nth}");
            meanwhile(&state, pass);
            process.signal(libc::SIGCONT);
            assert_eq!(process.wait(), None, "{point} {nth}");
            check(&state);
        }
    }
}

/// A pass at which a process is stopped at a fail point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    First,
    Last,
}
