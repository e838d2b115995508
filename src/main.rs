//! The `navarch` binary: a thin door into the library.

/// Proxies come and go by the thousand; mimalloc gives their memory back where the system's allocator keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<std::process::ExitCode> {
    navarch::cli::run()
}
