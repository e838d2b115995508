"""An OCI image layout in a folder: images of several processors, and charts."""

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path

from .common import ARCHITECTURES

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NAME = "org.opencontainers.image.ref.name"


def descriptor_of(content, media_type):
    """How a manifest names some bytes."""
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


class Archive:
    """An archive of scripts/oci-image: one image."""

    def __init__(self, path):
        self.path = path
        self.archive = tarfile.open(path)
        index = json.load(self.archive.extractfile("index.json"))
        self.digest = index["manifests"][0]["digest"]
        self.manifest = json.load(self.blob(self.digest))

    def blob(self, digest):
        return self.archive.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")

    def config(self):
        """How the image is run: its user, entry point and more."""
        return json.load(self.blob(self.manifest["config"]["digest"]))["config"]

    def unpack(self, out, extraction):
        """Extracts the layers with a filter of tarfile: `fully_trusted` keeps all modes."""
        for layer in self.manifest["layers"]:
            with tarfile.open(fileobj=self.blob(layer["digest"]), mode="r:*") as files:
                files.extractall(out, filter=extraction)


class Blobs:
    """The contents of a layout, by their digest."""

    def __init__(self, folder):
        self.folder = folder
        self.blobs = folder / "blobs/sha256"

    def path(self, descriptor):
        return self.blobs / descriptor["digest"].removeprefix("sha256:")

    def load(self, descriptor):
        return json.loads(self.path(descriptor).read_text())


class Layout(Blobs):
    """A layout that is being written."""

    def __init__(self, folder):
        super().__init__(folder)
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.manifests = []

    def add_bytes(self, content, media_type):
        descriptor = descriptor_of(content, media_type)
        self.path(descriptor).write_bytes(content)
        return descriptor

    def add_json(self, value, media_type):
        return self.add_bytes(json.dumps(value, sort_keys=True).encode(), media_type)

    def add_image(self, name, archives, annotations):
        """Adds one index of the archives of scripts/oci-image, by processor; gives its descriptor."""
        manifests = []
        for architecture, path in archives.items():
            with tarfile.open(path) as archive:
                manifest = json.load(archive.extractfile("index.json"))["manifests"][0]
                for member in archive.getmembers():
                    if member.name.startswith("blobs/sha256/"):
                        self.take(archive.extractfile(member), Path(member.name).name)
            manifests.append({
                "mediaType": MANIFEST,
                "digest": manifest["digest"],
                "size": manifest["size"],
                "platform": {"architecture": ARCHITECTURES[architecture], "os": "linux"},
            })
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations}
        return self.add(name, self.add_json(index, INDEX))

    def take(self, stream, digest):
        path = self.blobs / digest
        if not path.exists():
            with open(path, "wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)

    def add(self, name, descriptor):
        """Lists a manifest or an index by a name, `navarch:1.0.0`."""
        self.manifests.append({**descriptor, "annotations": {NAME: name}})
        return descriptor

    def digests(self):
        """The digests of what is listed, by name."""
        return {manifest["annotations"][NAME]: manifest["digest"] for manifest in self.manifests}

    def finish(self):
        """Writes the list of what the layout has."""
        def put(name, value):
            (self.folder / name).write_text(json.dumps(value, sort_keys=True) + "\n", encoding="utf-8")
        put("oci-layout", {"imageLayoutVersion": "1.0.0"})
        names = sorted(self.manifests, key=lambda manifest: manifest["annotations"][NAME])
        put("index.json", {"schemaVersion": 2, "mediaType": INDEX, "manifests": names})


class ReadLayout(Blobs):
    """A layout that was written."""

    def __init__(self, folder):
        super().__init__(folder)
        index = json.loads((folder / "index.json").read_text())
        self.names = {manifest["annotations"][NAME]: manifest for manifest in index["manifests"]}

    def manifests(self, descriptor):
        """An index's manifests and then itself, or a manifest alone: the order in which a registry takes them."""
        inner = self.load(descriptor)["manifests"] if descriptor["mediaType"] == INDEX else []
        return [*inner, descriptor]

    def content(self, manifest):
        """The blobs of a manifest; none for an index."""
        value = self.load(manifest)
        return [value["config"], *value["layers"]] if "config" in value else []

    def problems(self):
        """What is wrong with the layout: blobs that are missing, of another size, or of another content."""
        found = []
        reached = set()
        for name, listed in self.names.items():
            for manifest in self.manifests(listed):
                for descriptor in [manifest, *self.content(manifest)]:
                    path = self.path(descriptor)
                    reached.add(path.name)
                    if not path.exists():
                        found.append(f"{name}: {descriptor['digest']} is missing")
                    elif os.path.getsize(path) != descriptor["size"]:
                        found.append(f"{name}: {descriptor['digest']} has another size")
        for path in self.blobs.iterdir():
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
                found.append(f"{path.name} has another content")
            if path.name not in reached:
                found.append(f"{path.name} belongs to no manifest")
        return found
