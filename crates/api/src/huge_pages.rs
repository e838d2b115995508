//! Pages of 2 MB, which both programs do without.

use nix::sys::prctl::set_thp_disable;

/// Does without pages of 2 MB, for which the allocator asks: what lies scattered over them comes to a third more memory (50 MB of
/// 150 with 5,000 services, 57 MB of 232 with 1,000 proxies), and filling them with zeros costs more than they save. A kernel
/// that does not take the wish leaves it at that. To be called before there are threads.
pub fn do_without_huge_pages() {
    let _ = set_thp_disable(true);
}
