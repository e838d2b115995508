//! Tests that need root or a program that the machine lacks.

/// Reports that a test did not run, and why.
///
/// # Panics
/// If `NAVARCH_REQUIRE_ALL` is set, as in CI: there a test that cannot run is a failure.
#[expect(clippy::print_stderr, reason = "a skipped test prints the reason")]
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("NAVARCH_REQUIRE_ALL").is_none(),
        "NAVARCH_REQUIRE_ALL is set, but a test cannot run: {why}"
    );
    eprintln!("skipped: {why}");
}

/// Reports that a test did not run because an optional program is missing; allowed in CI, too.
#[expect(clippy::print_stderr, reason = "a skipped test prints the reason")]
pub fn skip_test(why: &str) {
    eprintln!("skipped: {why}");
}
