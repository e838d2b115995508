//! The name of a replica that was given none (`POD_NAME`).
//!
//! Leader locks and reports between replicas tell them apart by their names. Process ids would not
//! do: each container has a process 1. Nor would names of hosts alone, which containers may share.

use std::path::Path;
use std::sync::LazyLock;

use navarch_base::regular_file;
use navarch_net::cryptography;

/// Where the kernel has the name of the host, which is the container's own.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Stands for the name of a host that has none.
const NO_HOST: &str = "navarch";

/// The name of this process.
static GENERATED: LazyLock<String> = LazyLock::new(new_name);

/// The name of the host and a random number: another one in each process.
pub(super) fn generated() -> String {
    GENERATED.clone()
}

fn new_name() -> String {
    let file = regular_file::read_text(Path::new(HOST_NAME)).unwrap_or_else(|_| NO_HOST.to_owned());
    let host = match file.trim() {
        "" | "(none)" => NO_HOST,
        host => host,
    };

    let mut number = [0; 4];
    let random = cryptography::provider().secure_random;
    if random.fill(&mut number).is_err() {
        number = std::process::id().to_be_bytes();
    }
    format!("{host}-{:08x}", u32::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_replicas_of_one_host_have_different_names() {
        let names = [new_name(), new_name()];
        assert_ne!(names[0], names[1]);
        for name in names {
            let (host, number) = name.rsplit_once('-').unwrap();
            assert!(!host.is_empty() && number.len() == 8, "{name}");
        }
        assert_eq!(generated(), generated());
    }
}
