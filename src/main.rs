//! The `navarch` binary: a thin door into the library.

fn main() {}
