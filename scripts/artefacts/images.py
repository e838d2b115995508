"""The images `navarch` and `navarch-proxy` of each processor, and one index of both."""

import tarfile
from dataclasses import dataclass

from .common import ARCHITECTURES, ROOT, SOURCE, run
from .layout import Layout

HUB = "ghcr.io/navarch"
NAMES = ("navarch", "navarch-proxy")


@dataclass(frozen=True)
class Image:
    """An image for a processor."""

    name: str
    architecture: str
    digest: str
    packages: list


def pack(release, layout: Layout, programs, envoys, roots, out):
    """Writes an archive for each image and processor, and lists their indexes in the layout."""
    labels = {
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.version": release.version,
    }
    words = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
    archives = {name: {} for name in NAMES}
    for architecture, built in programs.items():
        folder = out / "images"
        folder.mkdir(parents=True, exist_ok=True)
        run(
            ROOT / "scripts/image",
            *("--program", built["navarch"].path, "--envoy", envoys[architecture].program),
            *("--from", roots[architecture].path, "--architecture", ARCHITECTURES[architecture]),
            *("--hub", HUB, "--tag", release.version, "--out", folder, "--gzip", *words),
        )
        for name in NAMES:
            archive = folder / f"{name}-{release.version}-{ARCHITECTURES[architecture]}.tar"
            (folder / f"{name}.tar").rename(archive)
            archives[name][architecture] = archive

    images = []
    for name, paths in archives.items():
        index = layout.add_image(f"{name}:{release.version}", paths, labels)
        images += describe(layout, name, index, roots, paths)
    return images


def describe(layout, name, index, roots, archives):
    """An index's images, with the packages whose files their first layer has."""
    listed = layout.load(index)["manifests"]
    for architecture, descriptor in zip(archives, listed, strict=True):
        base = layout.load(descriptor)["layers"][0]
        with tarfile.open(layout.path(base)) as files:
            names = {f"/{member.name}" for member in files.getmembers() if not member.isdir()}
        yield Image(name, architecture, descriptor["digest"], roots[architecture].owners(names))
