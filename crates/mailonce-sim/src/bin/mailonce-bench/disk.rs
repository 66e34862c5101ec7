//! How long the disk takes to make a small write durable.

use crate::results::FigureSample;
use mailonce_sim::load::Histogram;
use rustix::fs::{StatFs, statfs};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1024;
const TIME: Duration = Duration::from_secs(1);
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Writes blocks one after another into a file that is allocated already, each followed by `fdatasync`.
pub(crate) fn fsync(dir: &Path) -> io::Result<FigureSample> {
    let path = dir.join("fsync");
    let file = File::create(&path)?;
    let block = [0x5a_u8; BLOCK];
    for n in 0..BLOCKS {
        file.write_all_at(&block, n * BLOCK as u64)?;
    }
    file.sync_all()?;
    let mut took = Histogram::default();
    let began = Instant::now();
    for n in 0.. {
        let start = Instant::now();
        if start - began > TIME {
            break;
        }
        file.write_all_at(&block, (n % BLOCKS) * BLOCK as u64)?;
        file.sync_data()?;
        took.record(start.elapsed());
    }
    let elapsed = began.elapsed();
    std::fs::remove_file(path)?;
    Ok(FigureSample::from_latency(&took, Some(took.count() as f64 / elapsed.as_secs_f64())))
}

/// Whether a directory lives in memory, where nothing is durable and every figure is too good.
pub(crate) fn is_memory(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found: StatFs| found.f_type == TMPFS_MAGIC)
}
