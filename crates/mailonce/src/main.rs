//! The binary. Everything is in the library: what is compiled there is not compiled a second time here.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mailonce::cli::main()
}
