//! Processes that count in one file and are killed at any moment: counts stay, no hit is counted
//! twice, and the other processes continue.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::anything::Anything;
use super::{WINDOW, wait_until};
use crate::library::{Instance, LimiterOptions, Memory, NewOptions, WindowType, new_instance};

const BYTES: usize = 8 << 20;
const KILLS: u32 = 40;
/// Processes that count at the same time.
const PROCESSES: usize = 3;
/// Keys that only one process uses.
const KEYS: u32 = 300;
const LIMIT: u32 = 5000;
/// Environment variable that makes a process count: the path, and the number of the process.
const COUNT_IN: &str = "COUNT_IN";
const NUMBER: &str = "NUMBER";

#[test]
fn processes_that_are_killed_lose_at_most_the_hit_in_flight() {
    match std::env::var_os(COUNT_IN) {
        Some(path) => count(&path, &std::env::var(NUMBER).unwrap()),
        None => kill_again_and_again(),
    }
}

/// Counts until the process, or the test, is killed.
fn count(path: &OsString, number: &str) {
    let memory = Memory::file(path, BYTES).unwrap();
    let (instance, limiter) = define(&memory);
    let test = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut test = File::from(test);
    for step in 0.. {
        hit(&instance, &key_of(number, step));
        hit(&instance, number);
        hit(&instance, "all");
        let admitted = limiter.incoming("limited", true).unwrap().is_admitted;
        if test.write_all(&[admitted.into()]).is_err() {
            break;
        }
    }
}

fn define(memory: &Memory) -> (Instance, crate::library::RateLimiter) {
    let instance = new_instance("killed").unwrap();
    instance.new(&NewOptions::new(memory)).unwrap();
    let limit = LimiterOptions::window(LIMIT.into(), WINDOW).window_type(WindowType::Moving);
    let limiter = instance.limiter(&limit).unwrap();
    (instance, limiter)
}

/// Returns the key that only this step of this process counts.
fn key_of(number: &str, step: u32) -> String {
    format!("{number}: {}", step.min(KEYS))
}

fn hit(instance: &Instance, key: &str) {
    instance.increment(key, WINDOW, 1.0, None, Some(0.0)).unwrap();
}

/// A process that counts.
struct Counting {
    number: u32,
    process: Child,
    /// Number of steps that the process has reported.
    steps: Arc<AtomicU32>,
    /// Returns the number of admitted hits.
    reader: JoinHandle<u32>,
}

/// The last report of a killed process.
struct Killed {
    number: u32,
    steps: u32,
    admitted: u32,
}

impl Counting {
    fn start(path: &Path, number: u32) -> Counting {
        let (test, process) = UnixStream::pair().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name])
            .env(COUNT_IN, path)
            .env(NUMBER, number.to_string())
            .stdin(OwnedFd::from(process))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let steps = Arc::<AtomicU32>::default();
        let reader = std::thread::spawn({
            let steps = steps.clone();
            move || read(test, &steps)
        });
        Counting { number, process, steps, reader }
    }

    fn steps(&self) -> u32 {
        self.steps.load(SeqCst)
    }

    /// Kills the process at an arbitrary moment.
    fn kill(mut self) -> Killed {
        // Nothing else ends the process.
        assert_eq!(self.process.try_wait().unwrap(), None);
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let admitted = self.reader.join().unwrap();
        Killed { number: self.number, steps: self.steps.load(SeqCst), admitted }
    }
}

/// Reads the reports of a process until it ends.
fn read(mut process: UnixStream, steps: &AtomicU32) -> u32 {
    let (mut told, mut admitted) = ([0; 4096], 0);
    loop {
        let count = process.read(&mut told).unwrap();
        if count == 0 {
            return admitted;
        }
        admitted += told[..count].iter().map(|it| u32::from(*it)).sum::<u32>();
        steps.fetch_add(count.try_into().unwrap(), SeqCst);
    }
}

/// A path for a temporary file, which is removed with the value.
struct RemovedFile(PathBuf);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn kill_again_and_again() {
    let mut any = Anything::new();
    let file = format!("ratelimit-killed-{}", std::process::id());
    let file = RemovedFile(std::env::temp_dir().join(file));
    let mut numbers = 0..;
    let mut start = || Counting::start(&file.0, numbers.next().unwrap());
    let mut running: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed = Vec::new();
    for _ in 0..KILLS {
        let victim = running.remove(any.below(PROCESSES));
        // Kills some processes at their start, others during a later step.
        let more = [0, 0, 1, 20, 2000][any.below(5)];
        let goal = victim.steps() + more;
        wait_until(|| victim.steps() >= goal);
        (0..any.below(100_000)).for_each(|_| core::hint::spin_loop());
        killed.push(victim.kill());
        running.push(start());
        // The killed process does not block the others.
        let goals: Vec<_> = running.iter().map(|it| it.steps() + 10).collect();
        wait_until(|| running.iter().zip(&goals).all(|(it, goal)| it.steps() >= *goal));
    }
    killed.extend(running.into_iter().map(Counting::kill));
    check(&file.0, &killed);
}

/// Compares the counts with the reports of the processes.
fn check(path: &Path, killed: &[Killed]) {
    let memory = Memory::file(path, BYTES).unwrap();
    let (instance, limiter) = define(&memory);
    let assert_told = |key: &str, told: u32, in_flight: u32| {
        let rate = instance.sliding_window(key, WINDOW, None, None, Some(0.0));
        let (rate, told) = (rate.unwrap(), f64::from(told));
        let most = told + f64::from(in_flight);
        assert!((told..=most).contains(&rate), "{key}: {rate}, told of {told}");
    };
    for Killed { number, steps, .. } in killed {
        let number = number.to_string();
        assert_told(&number, *steps, 1);
        for step in 0..KEYS {
            let told = u32::from(step < *steps);
            let in_flight = u32::from(step == *steps);
            assert_told(&key_of(&number, step), told, in_flight);
        }
    }
    let deaths = u32::try_from(killed.len()).unwrap();
    let all = killed.iter().map(|it| it.steps).sum();
    assert_told("all", all, deaths);
    let mut admitted: u32 = killed.iter().map(|it| it.admitted).sum();
    while limiter.incoming("limited", true).unwrap().is_admitted {
        admitted += 1;
    }
    assert!((LIMIT - deaths..=LIMIT).contains(&admitted), "{admitted}");
}
