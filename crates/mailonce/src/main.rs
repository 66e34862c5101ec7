//! Parse, dispatch, exit code.

use clap::Parser as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads that serve requests step back a little, so that the ledger's writer, on which all of them wait, gets a
/// core as soon as it wants one. Niceness belongs to the thread; without the right to change it nothing is lost.
fn step_back() {
    rustix::process::nice(REQUESTS_STEP_BACK).ok();
}

const REQUESTS_STEP_BACK: i32 = 5;

fn main() -> ExitCode {
    let cli = match mailonce::cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is a usage error, 64 as in sysexits.
            let code = if error.use_stderr() { 64 } else { 0 };
            if error.print().is_err() {
                return ExitCode::from(74);
            }
            return ExitCode::from(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(step_back).build();
    match runtime {
        Ok(runtime) => runtime.block_on(mailonce::cli::run(cli)),
        Err(error) => mailonce::cli::failed(&anyhow::anyhow!("starting the runtime: {error}")),
    }
}
