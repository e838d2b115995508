"""The programs `navarch` and `pilot-agent`, and what is known of a built one."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .archives import Entry, tar_gz
from .common import ARCHITECTURES, HOST, ROOT, Fault, architecture_of, run, say, sha256

NAMES = ("navarch", "pilot-agent")


@dataclass(frozen=True)
class Program:
    """A program without symbols, and the file that has them."""

    name: str
    path: Path
    symbols: Path

    def facts(self):
        return {
            "sha256": sha256(self.path),
            "size": self.path.stat().st_size,
            "symbols": self.symbols.stat().st_size,
            "glibc": needed_glibc(self.path),
            "buildId": build_id(self.path),
        }


def triple(architecture):
    return f"{architecture}-unknown-linux-gnu"


def tool(architecture, name):
    """A program of binutils or gcc for a processor."""
    program = name if architecture == HOST else f"{architecture}-linux-gnu-{name}"
    if not shutil.which(program):
        debian = architecture.replace("_", "-")
        package = "binutils gcc" if architecture == HOST else f"gcc-{debian}-linux-gnu"
        libraries = "libc6-dev" if architecture == HOST else f"libc6-dev-{ARCHITECTURES[architecture]}-cross"
        raise Fault(
            f"{program} is missing, which programs for {architecture} need: "
            f"`apt-get install {package} {libraries}` on Debian, or --architectures without {architecture}"
        )
    return program


def build(release, architectures, work):
    """Builds the programs; gives the folder of each processor's."""
    settings = work / "cargo.toml"
    settings.write_text(f"[build]\nrustflags = {json.dumps(remapping('--remap-path-prefix'))}\n")
    # Both before hours are spent on the first.
    for architecture in architectures:
        tool(architecture, "gcc")
        tool(architecture, "objcopy")

    folders = {}
    for architecture in architectures:
        name = triple(architecture)
        if shutil.which("rustup") and name not in run("rustup", "target", "list", "--installed", cwd=ROOT).split():
            run("rustup", "target", "add", name, cwd=ROOT)
        say(f"building the programs for {architecture}")
        cargo = f"CARGO=cargo --config {settings}"
        environment = build_environment(release, architecture)
        run("make", "program", cargo, f"TARGET={name}", cwd=ROOT, env=environment, stdout=None)
        folders[architecture] = target_folder() / name / "dist"
        for program in NAMES:
            warn_of_paths(folders[architecture] / program)
    return folders


def warn_of_paths(program):
    """A path of this machine that was not replaced makes the program another one in another folder."""
    for path in {str(ROOT), str(target_folder()), str(Path.home())}:
        search = ["grep", "--quiet", "--text", "--fixed-strings", f"{path}/", program]
        if subprocess.run(search, check=False).returncode == 0:
            say(f"{program} contains the path {path}: builds in other folders differ")


def target_folder():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def remapping(flag):
    """What replaces the paths of this machine in programs; the last match counts."""
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    paths = [(ROOT, "/navarch"), (target_folder(), "/navarch/target"), (cargo, "/cargo")]
    sysroot = Path(run("rustc", "--print", "sysroot", cwd=ROOT).strip())
    commit = re.search(r"^commit-hash: (\w+)$", run("rustc", "-vV", cwd=ROOT), re.MULTILINE)
    if commit:
        paths.append((sysroot / "lib/rustlib/src/rust", f"/rustc/{commit[1]}"))
    return [f"{flag}={path}={name}" for path, name in paths]


def build_environment(release, architecture):
    name = triple(architecture)
    own = {"RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET", "MAKEFLAGS", "MFLAGS"}
    environment = {key: value for key, value in os.environ.items() if key not in own}
    environment |= {
        "CARGO_INCREMENTAL": "0",
        "NAVARCH_COMMIT": release.commit,
        # Machines run them with an older glibc than this one's: Ubuntu 22.04 has 2.35, RHEL 9 has 2.34.
        "NAVARCH_PACK_RELOCATIONS": "no",
        "NAVARCH_VERSION": release.program_version,
        "SOURCE_DATE_EPOCH": str(release.epoch),
    }

    compiler = tool(architecture, "gcc")
    suffix = name.replace("-", "_")
    environment[f"CARGO_TARGET_{suffix.upper()}_LINKER"] = compiler
    environment[f"CC_{suffix}"] = compiler
    environment[f"AR_{suffix}"] = tool(architecture, "ar")
    environment[f"CFLAGS_{suffix}"] = " ".join(remapping("-ffile-prefix-map"))
    return environment


def given(folders):
    """Programs that were built before, by processor; each folder has both of one."""
    found = {}
    for folder in map(Path, folders):
        for name in NAMES:
            if not (folder / name).exists():
                raise Fault(f"--programs {folder}: there is no {name}")
        found[architecture_of(folder / "navarch")] = folder
    return found


def strip(architecture, source, out):
    """A built program apart from its symbols."""
    objcopy = tool(architecture, "objcopy")
    out.mkdir(parents=True, exist_ok=True)
    program = Program(source.name, out / source.name, out / f"{source.name}.debug")
    run(objcopy, "--only-keep-debug", source.resolve(), program.symbols)
    program.symbols.chmod(0o644)
    # The name and the checksum by which debuggers find the file.
    link = f"--add-gnu-debuglink={program.symbols.name}"
    run(objcopy, "--strip-all", link, source.resolve(), program.path, cwd=out)
    program.path.chmod(0o755)
    return program


def pack(release, architecture, programs, out):
    """The archives of the programs and of their symbols."""
    base = f"navarch-{release.version}-linux-{architecture}"
    files = [Entry(f"{base}/LICENSE", ROOT / "LICENSE")]
    symbols = []
    for program in programs.values():
        files.append(Entry(f"{base}/bin/{program.name}", program.path, 0o755))
        symbols.append(Entry(f"{base}-symbols/{program.symbols.name}", program.symbols))
    tar_gz(out / f"{base}.tar.gz", files, release.epoch)
    tar_gz(out / f"{base}-symbols.tar.gz", symbols, release.epoch)


def needed_glibc(path):
    """The oldest version of glibc with what a program needs; nothing for a static one."""
    needs = run("readelf", "--version-info", "--wide", path)
    versions = set(re.findall(r"Name: GLIBC_(\d[\d.]*)", needs))
    # The dynamic linker of 2.36 is the first that reads a packed table of relocations.
    if "GLIBC_ABI_DT_RELR" in needs:
        versions.add("2.36")
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default=None)


def build_id(path):
    found = re.search(r"Build ID: (\w+)", run("readelf", "--notes", path, stderr=subprocess.DEVNULL))
    return found and found[1]


def manuals(release, program, work, out):
    """Completions of shells and man pages, written by the program itself."""
    pages = work / "man"
    run(program, "man", pages)
    entries = [Entry(f"man/man1/{page.name}", page) for page in pages.iterdir()]
    for shell, name in {
        "bash": "navarch",
        "elvish": "navarch.elv",
        "fish": "navarch.fish",
        "powershell": "_navarch.ps1",
        "zsh": "_navarch",
    }.items():
        entries.append(Entry(f"completions/{shell}/{name}", run(program, "completions", shell).encode()))
    tar_gz(out / f"navarch-{release.version}-manuals.tar.gz", entries, release.epoch)
