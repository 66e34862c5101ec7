//! Mutates seeds until the time is up: no panic, no broken rule, no input that needs too much time or memory.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{FuzzResult, FuzzTarget, InputOutcome, mutate};
use crate::harness::rng::SeededRng;

/// CPU time that one input may take in an unoptimized build.
pub const MAX_CPU_TIME: Duration = Duration::from_secs(3);
/// Failures after which a target is abandoned.
const MAX_FAILURES: usize = 3;

/// The limits of a run.
#[derive(Clone, Debug)]
pub struct FuzzPlan {
    /// The seed of all inputs.
    pub seed: u64,
    /// Maximum number of inputs, without the seeds.
    pub max_inputs: u64,
    /// Maximum duration.
    pub time_limit: Duration,
    /// CPU time that one input may take.
    pub max_cpu_time: Duration,
    /// More seeds, one per file.
    pub corpus: Option<PathBuf>,
    /// Where failing inputs are written.
    pub failures_dir: PathBuf,
}

/// The result of a target.
#[derive(Debug, Serialize)]
pub struct FuzzReport {
    /// The target.
    pub target: &'static str,
    /// Inputs so far.
    pub inputs: u64,
    /// Inputs that were parsed successfully.
    pub through: u64,
    /// CPU time of the slowest input in milliseconds.
    pub slowest_ms: u64,
    /// Growth of the resident memory in kilobytes.
    pub memory_kb: u64,
    /// The failures.
    pub failures: Vec<FuzzFailure>,
}

/// A failing input.
#[derive(Debug, Serialize)]
pub struct FuzzFailure {
    /// What failed.
    pub what: String,
    /// The input.
    pub input: PathBuf,
    /// The command that replays it.
    pub replay: String,
}

/// Runs a target.
pub fn run_target(target: &FuzzTarget, plan: &FuzzPlan) -> std::io::Result<FuzzReport> {
    let mut seeds = (target.seeds)();
    seeds.extend(read_corpus(plan.corpus.as_deref())?);
    let (started, memory) = (Instant::now(), resident_kb());
    let mut driven =
        FuzzReport { target: target.name, inputs: 0, through: 0, slowest_ms: 0, memory_kb: 0, failures: Vec::new() };
    for seed in &seeds {
        try_input(target, seed, plan, &mut driven)?;
    }
    for number in 0..plan.max_inputs {
        if started.elapsed() > plan.time_limit || driven.failures.len() >= MAX_FAILURES {
            break;
        }
        let mut rng = SeededRng::derive(plan.seed, &[rng_stream(target.name), number]);
        try_input(target, &mutate::mutate(&mut rng, &seeds), plan, &mut driven)?;
    }
    driven.memory_kb = resident_kb().saturating_sub(memory);
    Ok(driven)
}

/// Runs one input, and saves it if it fails.
fn try_input(target: &FuzzTarget, bytes: &[u8], plan: &FuzzPlan, driven: &mut FuzzReport) -> std::io::Result<()> {
    let (came, took) = run_input(target, bytes, plan.max_cpu_time);
    driven.inputs += 1;
    driven.slowest_ms = driven.slowest_ms.max(took.as_millis() as u64);
    driven.through += u64::from(came == Ok(InputOutcome::Accepted));
    if let Err(what) = came {
        driven.failures.push(save_failure(target, bytes, what, &plan.failures_dir)?);
    }
    Ok(())
}

/// The result of an input and its CPU time. More than `slowest` is a failure.
pub fn run_input(target: &FuzzTarget, bytes: &[u8], slowest: Duration) -> (FuzzResult, Duration) {
    let before = processor_time();
    let came =
        catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).unwrap_or_else(|_panic| Err("it panicked".into()));
    let took = processor_time().saturating_sub(before);
    let in_time = if took > slowest { Err(format!("took {took:?}")) } else { Ok(()) };
    (came.and_then(|came| in_time.map(|()| came)), took)
}

fn save_failure(target: &FuzzTarget, bytes: &[u8], what: String, dir: &Path) -> std::io::Result<FuzzFailure> {
    fs::create_dir_all(dir)?;
    let sum = Sha256::digest(bytes);
    let name = sum.iter().take(4).fold(0_u32, |name, byte| (name << 8) | u32::from(*byte));
    let input = dir.join(format!("{}-{name:08x}", target.name));
    fs::write(&input, bytes)?;
    let replay = format!(
        "cargo run -p mailonce-sim --bin mailonce-fuzz -- --target {} --replay {}",
        target.name,
        input.display()
    );
    Ok(FuzzFailure { what, input, replay })
}

fn read_corpus(dir: Option<&Path>) -> std::io::Result<Vec<Vec<u8>>> {
    let Some(dir) = dir else { return Ok(Vec::new()) };
    let (mut left, mut files) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() { left.push(path) } else { files.push(path) }
        }
    }
    // Sorted, since inputs must follow from the seed only.
    files.sort();
    files.iter().map(fs::read).collect()
}

fn rng_stream(name: &str) -> u64 {
    name.bytes().fold(0, |place, byte| place.wrapping_mul(131).wrapping_add(u64::from(byte)))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Resident memory on Linux; 0 elsewhere.
fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
