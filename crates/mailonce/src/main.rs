//! The binary. All code is in the library, so that it is compiled once.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mailonce::cli::main()
}
