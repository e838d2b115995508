//! `navarch completions` and `navarch man`: generates shell completions and man pages.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::Arguments;

/// Print a shell completion script for commands and flags.
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
    /// Output directory, created if it does not exist
    directory: PathBuf,
}

impl Completions {
    /// Prints the completions.
    pub(super) fn run(&self) {
        clap_complete::generate(
            self.shell,
            &mut Arguments::command(),
            "navarch",
            &mut std::io::stdout(),
        );
    }
}

impl Man {
    /// Writes the man pages.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| self.directory.display().to_string())?;
        let mut command = Arguments::command();
        command.build();
        write(&self.directory, &command, "navarch")
    }
}

/// Writes the pages of a command and of its subcommands.
fn write(directory: &Path, command: &Command, name: &str) -> anyhow::Result<()> {
    let mut page = Vec::new();
    let named = command.clone().display_name(name);
    clap_mangen::Man::new(named).render(&mut page)?;

    let file = directory.join(format!("{name}.1"));
    std::fs::write(&file, page).with_context(|| file.display().to_string())?;

    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        write(directory, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a command and all below it, as their pages are called.
    fn names(command: &Command, name: &str, all: &mut Vec<(String, Vec<String>)>) {
        let flags = command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set())
            .filter_map(|flag| flag.get_long());
        all.push((name.to_owned(), flags.map(str::to_owned).collect()));
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            names(below, &format!("{name}-{}", below.get_name()), all);
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags_and_shells_know_it() {
        let folder = tempfile::tempdir().unwrap();
        Man {
            directory: folder.path().to_owned(),
        }
        .run()
        .unwrap();
        let mut command = Arguments::command();
        command.build();

        let mut all = Vec::new();
        names(&command, "navarch", &mut all);
        assert!(all.len() > 20, "{all:?}");

        for (name, flags) in &all {
            let page = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{name}: {page}"
            );
            for flag in flags {
                assert!(
                    page.contains(&flag.replace('-', "\\-")),
                    "{name}: --{flag}: {page}"
                );
            }
        }

        let pages = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(pages, all.len(), "there are no others");

        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "navarch", &mut text);
            let text = String::from_utf8(text).unwrap();
            for (name, flags) in &all {
                let word = name
                    .rsplit_once("navarch-")
                    .map_or("navarch", |(_, last)| last);
                let last = word.rsplit('-').next().unwrap_or(word);
                assert!(text.contains(last), "{shell}: {name}");
                for flag in flags {
                    assert!(text.contains(flag), "{shell}: {name} --{flag}");
                }
            }
        }
    }
}
