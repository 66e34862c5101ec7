//! Parse, dispatch, exit code.

use clap::Parser as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(mailonce::cli::run(cli)),
        Err(error) => mailonce::cli::failed(&anyhow::anyhow!("starting the runtime: {error}")),
    }
}
