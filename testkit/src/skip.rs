//! Tests that need root or a program that the machine lacks.

/// Says that a test did not run, and why.
///
/// # Panics
/// Where `NAVARCH_REQUIRE_ALL` is set, as in CI: there a test that cannot run is a failure.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("NAVARCH_REQUIRE_ALL").is_none(),
        "NAVARCH_REQUIRE_ALL is set and a test cannot run: {why}"
    );
    eprintln!("skipped: {why}");
}
