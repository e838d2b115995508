"""Debian's packages that images hold, of any processor, without changing this machine."""

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .common import ARCHITECTURES, Fault, run, say, sha256, tools_folder

# What the images are made of; their dependencies are added.
WANTED = ("ca-certificates", "iptables", "libc6", "libgcc-s1", "nftables")

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Package:
    """A package, and the paths of its files."""

    name: str
    version: str
    architecture: str
    sha256: str
    files: frozenset

    @property
    def purl(self):
        return f"pkg:deb/debian/{self.name}@{self.version}?arch={self.architecture}"


@dataclass(frozen=True)
class Root:
    """A folder with unpacked packages."""

    path: Path
    packages: tuple

    def owners(self, files):
        """The packages that some files are of."""
        files = set(files)
        return [package for package in self.packages if package.files & files]


def fetch(architecture):
    """The root of a processor, from the packages that this machine's sources have now."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise Fault(f"{program} is missing: images hold files of Debian's packages, which it fetches")
    debian = ARCHITECTURES[architecture]
    home = tools_folder() / f"debian-{debian}"
    apt = private_apt(home, debian)
    say(f"fetching Debian's packages for {debian}")
    run(*apt, "update", "--quiet=2", stdout=None)
    install = [*apt, "install", "--quiet=2", "--yes", "--no-install-recommends"]
    # It lists those alone that are not in the cache, so it gets an empty one.
    listed = run(*install, f"--option=Dir::Cache::archives={home / 'empty'}", "--print-uris", *WANTED)
    names = sorted(re.findall(r"^'[^']+' (\S+) ", listed, re.MULTILINE))
    run(*install, "--download-only", *WANTED, stdout=None)

    archives = [home / "cache/archives" / name for name in names]
    with tempfile.TemporaryDirectory(dir=home, prefix="partial.") as partial:
        unpacked = Path(partial) / "root"
        packages = [unpack(archive, unpacked) for archive in archives]
        make_links_relative(unpacked)
        bundle_certificates(unpacked)
        root = home / "root"
        shutil.rmtree(root, ignore_errors=True)
        os.rename(unpacked, root)
    return Root(root, tuple(packages))


def private_apt(home, debian):
    """The command line of an apt with its own lists, and no package installed."""
    for folder in ("state/lists/partial", "cache/archives/partial", "empty/partial"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    status = home / "state/status"
    status.touch()
    settings = {
        "APT::Architecture": debian,
        "APT::Architectures::": debian,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Dir::Cache": home / "cache",
        "Dir::State": home / "state",
        "Dir::State::status": status,
    }
    return ["apt-get", *(f"--option={name}={value}" for name, value in settings.items())]


def unpack(archive, root):
    """Adds a package's files to a root."""
    run("dpkg-deb", "--extract", archive, root)
    name, version, architecture = (
        run("dpkg-deb", "--field", archive, field).strip() for field in ("Package", "Version", "Architecture")
    )
    listed = run("bash", "-o", "pipefail", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar --list', "list", archive)
    files = {line.removeprefix(".") for line in listed.splitlines() if not line.endswith("/")}
    if name == "ca-certificates":
        files.add(CERTIFICATES)
    # Where Debian keeps it of installed packages; scripts/image-root reads it.
    lists = root / "var/lib/dpkg/info"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / f"{name}.list").write_text("".join(f"{file}\n" for file in sorted(files)))
    return Package(name, version, architecture, sha256(archive), frozenset(files))


def make_links_relative(root):
    """Absolute links would lead out of the root."""
    for folder, names, files in os.walk(root):
        for path in (Path(folder) / name for name in names + files):
            if path.is_symlink() and os.path.isabs(target := os.readlink(path)):
                path.unlink()
                path.symlink_to(os.path.relpath(root / target.lstrip("/"), path.parent))


def bundle_certificates(root):
    """The file that update-ca-certificates makes where the package is installed."""
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / CERTIFICATES.lstrip("/")
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text().rstrip() + "\n" for path in certificates))


def describe(packages):
    """Packages as the manifest lists them."""
    return [
        {"name": package.name, "version": package.version, "architecture": package.architecture, "sha256": package.sha256}
        for package in packages
    ]
