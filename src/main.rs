//! The `navarch` binary: a thin door into the library.

/// Proxies come and go by the thousand; mimalloc gives their memory back where the system's allocator keeps it. What it holds is sampled
/// for `/debug/pprof/heap`.
#[global_allocator]
static ALLOCATOR: navarch_profile::Profiled<mimalloc::MiMalloc> = navarch_profile::Profiled::new(mimalloc::MiMalloc);

fn main() -> anyhow::Result<std::process::ExitCode> {
    navarch::cli::run()
}
