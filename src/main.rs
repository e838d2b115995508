//! The `navarch` binary, a thin wrapper of the library.

/// Thousands of proxies connect and disconnect; mimalloc returns their memory to the system, which
/// the system's allocator does not. Allocations are sampled for `/debug/pprof/heap`.
#[global_allocator]
static ALLOCATOR: navarch_profile::Profiled<mimalloc::MiMalloc> =
    navarch_profile::Profiled::new(mimalloc::MiMalloc);

fn main() -> std::process::ExitCode {
    navarch::cli::run()
}
