//! Processes that count in one memory: a file that they open, and one without a name whose descriptor they
//! are given.
//!
//!     cargo run --no-default-features --features conformance --example processes

use std::error::Error;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, io, process};

use ngx_http_rate_limiting_module::library::{Instance, Memory, NewOptions, new_instance};

const PROCESSES: u32 = 4;
const HITS: u32 = 5000;
/// Window so long that it does not end during the example.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
const BYTES: usize = 1 << 20;
/// Variable that makes a process count: a path, or nothing if the descriptor is its standard input.
const COUNT_IN: &str = "COUNT_IN";

fn main() -> Result<(), Box<dyn Error>> {
    match env::var_os(COUNT_IN) {
        Some(none) if none.is_empty() => {
            let fd = io::stdin().as_fd().try_clone_to_owned()?;
            count(&Memory::from_fd(fd)?)
        }
        Some(path) => count(&Memory::file(path, BYTES)?),
        None => show(),
    }
}

/// Has processes count in both kinds of memory.
fn show() -> Result<(), Box<dyn Error>> {
    // Of this machine, and of those only who may count: better /run than a directory for all.
    let path = env::temp_dir().join(format!("processes-{}", process::id()));
    let memory = Memory::file(&path, BYTES)?;
    let result = count_in("a file", &memory, |command| {
        command.env(COUNT_IN, &path);
        Ok(())
    });
    fs::remove_file(&path)?;
    result?;

    let memory = Memory::memfd(BYTES)?;
    count_in("a memfd", &memory, |command| {
        let fd = memory.fd().ok_or("there is no descriptor")?;
        command.env(COUNT_IN, "").stdin(fd.try_clone_to_owned()?);
        Ok(())
    })
}

/// Starts processes, of which `tell` says where to count, and looks at what they have counted.
fn count_in(
    name: &str,
    memory: &Memory,
    tell: impl Fn(&mut Command) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(env::current_exe()?);
        // A test's program is told which test it is.
        command.args(env::args_os().skip(1)).stdout(Stdio::null());
        tell(&mut command)?;
        processes.push(command.spawn()?);
    }
    for mut process in processes {
        if !process.wait()?.success() {
            return Err("a process has failed".into());
        }
    }
    let all = instance(memory)?.sliding_window("k", WINDOW, None, None, None)?;
    println!("{PROCESSES} processes have counted {all} hits in {name}");
    match all == f64::from(PROCESSES) * f64::from(HITS) {
        true => Ok(()),
        false => Err("some are missing, or there are too many".into()),
    }
}

/// Counts in one process.
fn count(memory: &Memory) -> Result<(), Box<dyn Error>> {
    let instance = instance(memory)?;
    for _ in 0..HITS {
        instance.increment("k", WINDOW, 1.0, None, None)?;
    }
    Ok(())
}

fn instance(memory: &Memory) -> Result<Instance, Box<dyn Error>> {
    let instance = new_instance("processes")?;
    instance.new(&NewOptions::new(memory))?;
    Ok(instance)
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
