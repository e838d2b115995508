"""The release that is made, and how files, processes and faults are handled."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "https://github.com/navarch/navarch"

# Rust's names of processors, with those of Debian and of OCI images, which are the same.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

HOST = os.uname().machine


class Fault(Exception):
    """What the caller has to mend. Its text is printed without a stack."""


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def main(work):
    """Runs a script, and prints a fault as one line."""
    try:
        work()
    except (Fault, OSError) as fault:
        say(fault)
        sys.exit(1)
    except subprocess.CalledProcessError as fault:
        say(f"{' '.join(map(str, fault.cmd))} failed with {fault.returncode}")
        sys.exit(1)


def run(*command, **options):
    """Runs a command to its end, and gives its output."""
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([str(word) for word in command], check=True, text=True, **options).stdout


def tools_folder():
    """Where programs and downloads are kept, as by the shell scripts."""
    return Path(os.environ.get("NAVARCH_TOOLS") or Path.home() / ".cache/navarch/tools")


def sha256(path):
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_sums(folder):
    """The digests in SHA256SUMS, by file."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return dict(reversed(line.split("  ", 1)) for line in lines)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Release:
    """What artefacts are made of."""

    version: str
    commit: str
    # The time of the commit, which all files have.
    epoch: int
    # Whether the commit has the version as its tag.
    tagged: bool
    # What the programs report.
    program_version: str

    @property
    def uri(self):
        return f"git+{SOURCE}@{self.commit}"


def read_release(allow_changes):
    """The release of the commit that is checked out."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    changes = run("git", "status", "--porcelain", cwd=ROOT)
    if changes and not allow_changes:
        raise Fault(f"artefacts are of a commit, but these files differ from it:\n{changes.rstrip()}")

    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct", cwd=ROOT)
    tagged = version in run("git", "tag", "--points-at", "HEAD", cwd=ROOT).split()
    # As crates/base/src/version.rs has it, but with digits of the commit that do not depend on the clone.
    istio = re.search(r'ISTIO_VERSION: &str = "([^"]+)"', (ROOT / "crates/base/src/version.rs").read_text())
    program_version = version if tagged else f"{istio[1]}-navarch.{commit[:12]}"
    return Release(version, commit, int(epoch), tagged, program_version)


def architecture_of(path):
    """The processor that a program is for, from the header of its file."""
    with open(path, "rb") as stream:
        header = stream.read(20)
    machines = {b"\x3e\x00": "x86_64", b"\xb7\x00": "aarch64"}
    if header[:4] != b"\x7fELF" or header[18:20] not in machines:
        raise Fault(f"{path} is no program for {' or '.join(ARCHITECTURES)}")
    return machines[header[18:20]]
