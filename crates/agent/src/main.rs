//! `pilot-agent`: the node side of the mesh, with the name that Istio's pods use.

use std::process::ExitCode;

use navarch_base::printable::escape_lines;

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // As std prints the error of `main`, but escaped: it may quote a server or a file.
        eprintln!("{}", escape_lines(&format!("Error: {error:?}")));
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments = navarch_agent::cli::words(std::env::args_os())?;
    let command = navarch_agent::cli::command_of_name(arguments.first().map(String::as_str))
        .unwrap_or_default();
    // The agent executes itself with `agent` if the file has another name, as for `navarch agent`.
    let rest = arguments
        .into_iter()
        .skip(1)
        .enumerate()
        .filter(|(place, word)| *place > 0 || word != "agent");
    let words: Vec<_> = command
        .into_iter()
        .chain(rest.map(|(_, word)| word))
        .collect();
    navarch_agent::cli::run(&words)
}
