//! The command line: one file per subcommand, and the environment.

pub mod environment;
