//! `navarch version`.

/// Prints release and commit.
#[expect(clippy::print_stdout, reason = "printing is what the command is for")]
pub(super) fn print() {
    println!("{}-{}", env!("NAVARCH_VERSION"), env!("NAVARCH_COMMIT"));
}
