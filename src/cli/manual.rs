//! `navarch completions` and `navarch man`: what shells and `man` read of the command line.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::Arguments;

/// Print what a shell reads to complete commands and flags.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch completions bash > /etc/bash_completion.d/navarch
  source <(navarch completions zsh)
  navarch completions fish | source")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

/// Write man pages, one for each command.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch man /usr/local/share/man/man1 && man navarch-plan")]
pub(super) struct Man {
    /// The directory in which they are put, made if it is not there
    directory: PathBuf,
}

impl Completions {
    /// Prints them.
    pub(super) fn run(&self) {
        clap_complete::generate(self.shell, &mut Arguments::command(), "navarch", &mut std::io::stdout());
    }
}

impl Man {
    /// Writes them.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.directory).with_context(|| self.directory.display().to_string())?;
        let mut command = Arguments::command();
        command.build();
        write(&self.directory, &command, "navarch")
    }
}

/// Writes the page of a command and those of the commands below it.
fn write(directory: &Path, command: &Command, name: &str) -> anyhow::Result<()> {
    let mut page = Vec::new();
    let named = command.clone().display_name(name);
    clap_mangen::Man::new(named).render(&mut page)?;
    let file = directory.join(format!("{name}.1"));
    std::fs::write(&file, page).with_context(|| file.display().to_string())?;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        write(directory, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}
