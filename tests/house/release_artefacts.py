#!/usr/bin/env python3
"""Tests of the scripts that make, sign and publish release artefacts; tests/house/release_artefacts.rs runs them.

NAVARCH_PROGRAM is a built navarch. Programs are compiled by none of them, and nothing is fetched.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from artefacts import charts, comparison, layout, sbom
from artefacts.common import HOST, read_release, read_sums
from artefacts.programs import build_environment

TOOLS = Path(os.environ.get("NAVARCH_TOOLS") or Path.home() / ".cache/navarch/tools")
VERSION = read_release(allow_changes=True).version


def run(*command, **options):
    options.setdefault("capture_output", True)
    return subprocess.run([str(word) for word in command], text=True, check=False, **options)


def succeed(*command, **options):
    done = run(*command, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
    return done.stdout


def crate(name, *dependencies, source="registry+https://github.com/rust-lang/crates.io-index"):
    """A crate of the lock file as `cargo metadata` describes it; a dependency is a name and a kind."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    version = next(each["version"] for each in lock if each["name"] == name)
    package = {"id": name, "name": name, "version": version, "source": source, "license": "MIT/Apache-2.0"}
    return package, {"id": name, "deps": [{"pkg": other, "dep_kinds": [{"kind": kind}]} for other, kind in dependencies]}


def metadata():
    """The programs with a crate that they have, one that their build has, and one that only tests have."""
    crates = [
        crate("navarch", ("navarch-agent", None), ("serde_json", None), source=None),
        crate("navarch-agent", ("tempfile", "dev"), ("prost-build", "build"), source=None),
        crate("serde_json", ("memchr", None)),
        crate("tempfile", ("fastrand", None)),
        *(crate(name) for name in ("fastrand", "memchr", "prost-build")),
    ]
    return {"packages": [package for package, _ in crates], "resolve": {"nodes": [node for _, node in crates]}}


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def need(self, program, why):
        """Skips the test where a program is missing, but not where all tests must run."""
        if not program or not Path(program).exists():
            if os.environ.get("NAVARCH_REQUIRE_ALL"):
                self.fail(f"NAVARCH_REQUIRE_ALL is set, but {why}")
            self.skipTest(why)

    def programs(self, navarch=None):
        """A folder with a small agent, and a navarch that is as small unless one is given."""
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        succeed("objcopy", "--remove-section=.gnu_debuglink", shutil.which("env"), folder / "pilot-agent")
        (folder / "navarch").unlink(missing_ok=True)
        if navarch:
            (folder / "navarch").symlink_to(navarch)
        else:
            shutil.copy(folder / "pilot-agent", folder / "navarch")
        return folder

    def dist(self, name, parts, programs, *options, **settings):
        out = self.folder / name
        command = (ROOT / "scripts/dist", "--allow-changes", "--out", out, "--parts", parts, "--programs", programs, *options)
        succeed(*command, "--envoy", shutil.which("env"), **settings)
        return out

    def key(self, name="key"):
        key = self.folder / name
        key.write_text(succeed("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"))
        return key

    def verify(self, public, signature, content):
        """Whether openssl finds that a signature in base64 is of these bytes."""
        (self.folder / "signature").write_bytes(base64.b64decode(signature))
        command = ["openssl", "dgst", "-sha256", "-verify", public, "-signature", self.folder / "signature"]
        return subprocess.run(command, input=content, capture_output=True, check=False).returncode == 0


class Dist(Folder):
    def test_two_runs_make_the_same_bytes_in_any_folder_and_umask(self):
        programs = self.programs(os.environ["NAVARCH_PROGRAM"])
        parts = "charts,deb,manifests,manuals"
        first = self.dist("first", parts, programs)
        second = self.dist("below/the/second", parts, programs, umask=0o077, cwd="/")
        self.assertIsNone(comparison.first_difference(first, second))
        self.assertEqual((first / "SHA256SUMS").read_text(), (second / "SHA256SUMS").read_text())

        manuals = first / f"navarch-{VERSION}-manuals.tar.gz"
        with tarfile.open(manuals) as archive:
            names = archive.getnames()
            self.assertIn("man/man1/navarch-plan.1", names)
            self.assertIn("complete -F", archive.extractfile("completions/bash/navarch").read().decode())

        (self.folder / "metadata").write_text(json.dumps(metadata()))
        programs = self.programs()
        options = ("--metadata", self.folder / "metadata")
        third, fourth = (self.dist(name, "programs,sbom", programs, *options) for name in ("third", "fourth"))
        self.assertEqual((third / "SHA256SUMS").read_text(), (fourth / "SHA256SUMS").read_text())

    def test_released_programs_are_built_for_machines_with_an_older_glibc(self):
        self.need(shutil.which("rustc"), "there is no rustc")
        environment = build_environment(read_release(allow_changes=True), HOST)
        self.assertEqual(environment["NAVARCH_PACK_RELOCATIONS"], "no")
        self.assertIn('is("NAVARCH_PACK_RELOCATIONS", "no")', (ROOT / "build.rs").read_text())

    def test_every_file_has_its_digest_and_is_a_subject_of_the_provenance(self):
        out = self.dist("out", "charts,manifests", self.programs())
        succeed("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=out)
        files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
        sums = read_sums(out)
        self.assertEqual(set(sums), files - {"SHA256SUMS"})

        statement = json.loads((out / "provenance.json").read_text())
        self.assertEqual(statement["_type"], "https://in-toto.io/Statement/v1")
        self.assertEqual(statement["predicateType"], "https://slsa.dev/provenance/v1")
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        del sums["provenance.json"]
        self.assertEqual(subjects, sums)
        commit = succeed("git", "rev-parse", "HEAD", cwd=ROOT).strip()
        materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        self.assertEqual(materials[0]["digest"], {"gitCommit": commit})

    def test_programs_are_stripped_and_debuggers_find_their_symbols(self):
        (self.folder / "metadata").write_text(json.dumps(metadata()))
        out = self.dist("out", "programs", self.programs())
        base = f"navarch-{VERSION}-linux-{os.uname().machine}"
        for name in (base, f"{base}-symbols"):
            with tarfile.open(out / f"programs/{name}.tar.gz") as archive:
                archive.extractall(self.folder, filter="data")
        agent = self.folder / base / "bin/pilot-agent"
        links = succeed("readelf", "--string-dump=.gnu_debuglink", agent)
        self.assertIn("pilot-agent.debug", links)
        self.assertTrue((self.folder / f"{base}-symbols/pilot-agent.debug").exists())
        facts = json.loads((out / "manifest.json").read_text())["programs"][os.uname().machine]
        self.assertEqual(facts["pilot-agent"]["sha256"], hashlib.sha256(agent.read_bytes()).hexdigest())
        self.assertRegex(facts["pilot-agent"]["glibc"], r"^2\.\d+$")

    def test_the_first_difference_is_named_with_the_member_of_its_archive(self):
        out = self.dist("out", "charts", self.programs())
        other = self.folder / "other"
        shutil.copytree(out, other)
        succeed("sed", "-i", "s/^......./0000000/", other / "SHA256SUMS")
        with tarfile.open(other / f"charts/base-{VERSION}.tgz", "w:gz") as archive:
            archive.add(ROOT / "LICENSE", "base/Chart.yaml")
        named = comparison.first_difference(out, other)
        self.assertEqual(named, f"charts/base-{VERSION}.tgz: base/Chart.yaml differs")


class Charts(Folder):
    def test_helm_renders_an_archive_as_it_renders_the_chart(self):
        helm = TOOLS / "bin/helm"
        self.need(helm, "helm is missing: run `make tools`")
        out = self.dist("out", "charts", self.programs())
        for name in ("base", "gateway", "navarch"):
            def render(chart):
                command = (helm, "template", "--kube-version=1.36.0", "--namespace=istio-system", "x", chart)
                return succeed(*command, env={**os.environ, "HOME": str(self.folder)})
            archive = render(out / f"charts/{name}-{VERSION}.tgz")
            self.assertEqual(archive, render(ROOT / "deploy/charts" / name))

    def test_the_layout_has_each_chart_as_helm_expects_it(self):
        out = self.dist("out", "charts", self.programs())
        read = layout.ReadLayout(out / "oci")
        self.assertEqual(read.problems(), [])
        manifest = read.load(read.names[f"charts/navarch:{VERSION}"])
        self.assertEqual(manifest["config"]["mediaType"], "application/vnd.cncf.helm.config.v1+json")
        self.assertEqual(read.load(manifest["config"])["name"], "navarch")
        self.assertEqual([layer["mediaType"] for layer in manifest["layers"]], [charts.CONTENT])
        archive = out / f"charts/navarch-{VERSION}.tgz"
        self.assertEqual(read.path(manifest["layers"][0]).read_bytes(), archive.read_bytes())


class Package(Folder):
    def test_the_package_has_the_files_of_istios(self):
        self.need(shutil.which("dpkg-deb"), "dpkg-deb is missing")
        out = self.dist("out", "deb", self.programs())
        package = next((out / "debian").glob("*.deb"))
        listed = succeed("dpkg-deb", "--contents", package)
        for line in (
            r"-rwxr-xr-x 0/0 .* \./usr/local/bin/pilot-agent",
            r"-rwxr-xr-x 0/0 .* \./usr/local/bin/envoy",
            r"-rwxr-xr-x 0/0 .* \./usr/local/bin/istio-start.sh",
            r"-rw-r--r-- 0/0 .* \./lib/systemd/system/istio.service",
            r"-rw-r--r-- 0/0 .* \./var/lib/istio/envoy/sidecar.env",
        ):
            self.assertRegex(listed, f"(?m)^{line}$")

        # dpkg unpacks a file only into a folder that it knows of.
        seen = set()
        for name in (line.split()[-1] for line in listed.splitlines()):
            self.assertTrue(name == "./" or str(Path(name).parent) in seen, name)
            seen.add(str(Path(name)))
        self.assertRegex(succeed("dpkg-deb", "--field", package, "Depends"), r"^libc6 \(>= 2\.\d+\), ")

        succeed("dpkg-deb", "--control", package, self.folder / "control")
        conffiles = (self.folder / "control/conffiles").read_text().split()
        self.assertIn("/var/lib/istio/envoy/sidecar.env", conffiles)
        for script in ("postinst", "postrm", "prerm"):
            succeed("sh", "-n", self.folder / "control" / script)

    def start(self, *arguments, **settings):
        """Runs istio-start.sh with an agent that prints its arguments and environment."""
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        agent = programs / "pilot-agent"
        agent.write_text('#!/bin/sh\necho "agent $*"\nenv\n')
        agent.chmod(0o755)
        (programs / "setpriv").write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
        (programs / "setpriv").chmod(0o755)
        cluster = self.folder / "cluster.env"
        cluster.write_text("ISTIO_SERVICE='web.shop'\nISTIO_NAMESPACE='shop'\nISTIO_META_LABELS='{\"app\": \"web\"}'\n")
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "EXEC_USER": "root",
            "ISTIO_BIN_BASE": str(programs),
            "ISTIO_CLUSTER_CONFIG": str(cluster),
            "ISTIO_LOG_DIR": str(self.folder),
            "ISTIO_SVC_IP": "192.0.2.7",
            **settings,
        }
        told = succeed(ROOT / "deploy/debian/istio-start.sh", *arguments, env=environment)
        log = self.folder / "istio.log"
        return told, log.read_text() if log.exists() else ""

    def test_the_agent_starts_with_the_settings_of_its_group(self):
        told, log = self.start(PILOT_ADDRESS="istiod.other.svc:15012", ISTIO_AGENT_FLAGS="--proxyLogLevel debug")
        self.assertEqual(
            [line for line in told.splitlines() if line.startswith("agent ")],
            ["agent istio-iptables --cleanup-only", "agent istio-iptables"],
        )
        for line in (
            "agent proxy --proxyLogLevel debug",
            "CA_ADDR=istiod.other.svc:15012",
            "INSTANCE_IP=192.0.2.7",
            "POD_NAMESPACE=shop",
            "discoveryAddress: istiod.other.svc:15012",
            'ISTIO_META_LABELS={"app": "web"}',
            "OUTPUT_CERTS=./etc/certs",
        ):
            self.assertIn(line, log.splitlines())
        self.assertIn("serviceCluster: web.shop", log)

    def test_rules_of_the_operator_stay(self):
        for argument in ("init", "clean"):
            self.assertEqual(self.start(argument, ISTIO_CUSTOM_IP_TABLES="true"), ("", ""))
        told, _ = self.start("clean")
        self.assertTrue(told.startswith("agent istio-iptables --cleanup-only\n"), told)


class Materials(Folder):
    def test_the_bill_has_crates_of_programs_and_of_builds_but_not_of_tests(self):
        release = read_release(allow_changes=True)
        value = sbom.document(release, [metadata()], {}, {}, [])
        packages = {package["name"]: package for package in value["packages"]}
        self.assertEqual(set(packages), {"memchr", "navarch", "navarch-agent", "prost-build", "serde_json"})
        self.assertEqual(packages["memchr"]["licenseDeclared"], "MIT OR Apache-2.0")
        lock = (ROOT / "Cargo.lock").read_text()
        self.assertIn(packages["memchr"]["checksums"][0]["checksumValue"], lock)

        names = {package["SPDXID"]: package["name"] for package in value["packages"]}
        relations = {
            (names[each["spdxElementId"]], each["relationshipType"], names[each["relatedSpdxElement"]])
            for each in value["relationships"]
        }
        self.assertIn(("serde_json", "DEPENDS_ON", "memchr"), relations)
        self.assertIn(("prost-build", "BUILD_DEPENDENCY_OF", "navarch-agent"), relations)


class ImageFolder(Folder):
    """A test with small images."""

    def image(self, name, program, architecture):
        """An archive with a layer of packages and one of a program."""
        for layer, file, text in (("base", "lib/libc.so.6", "libc"), ("program", "navarch", program)):
            path = self.folder / layer / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        archive = self.folder / f"{name}-{architecture}.tar"
        roots = ("--root", self.folder / "base", "--root", self.folder / "program")
        succeed(ROOT / "scripts/oci-image", archive, "--name", name, *roots, "--architecture", architecture, "--gzip")
        return archive

    def layers(self, program):
        """The layers of each processor's image, by its architecture."""
        archives = {
            "x86_64": self.image("navarch", f"{program} of amd64", "amd64"),
            "aarch64": self.image("navarch", f"{program} of arm64", "arm64"),
        }
        made = layout.Layout(self.folder / program)
        made.add_image("navarch:1", archives, {})
        made.finish()
        read = layout.ReadLayout(self.folder / program)
        self.assertEqual(read.problems(), [])
        index = read.load(read.names["navarch:1"])
        found = {}
        for manifest in index["manifests"]:
            value = read.load(manifest)
            architecture = manifest["platform"]["architecture"]
            self.assertEqual(read.load(value["config"])["architecture"], architecture)
            found[architecture] = [layer["digest"] for layer in value["layers"]]
        return found


class Images(ImageFolder):
    def test_an_upgrade_changes_the_last_layer_alone(self):
        before, after = self.layers("old"), self.layers("new")
        self.assertEqual(set(before), {"amd64", "arm64"})
        for architecture, layers in before.items():
            self.assertEqual(layers[0], after[architecture][0])
            self.assertNotEqual(layers[1], after[architecture][1])

    def test_a_layout_with_another_content_is_found(self):
        self.layers("old")
        blob = next((self.folder / "old/blobs/sha256").iterdir())
        blob.write_bytes(b"x" * blob.stat().st_size)
        problems = layout.ReadLayout(self.folder / "old").problems()
        self.assertTrue(any("another content" in problem for problem in problems), problems)


class Signatures(Folder):
    def test_openssl_verifies_the_digests_and_the_provenance(self):
        out = self.dist("out", "charts", self.programs())
        succeed(ROOT / "scripts/sign", out, "--key", self.key())
        public = out / "navarch.pub"
        sums = (out / "SHA256SUMS").read_bytes()
        signature = (out / "SHA256SUMS.sig").read_text()
        self.assertTrue(self.verify(public, signature, sums))
        self.assertFalse(self.verify(public, signature, sums + b"\n"))

        envelope = json.loads((out / "provenance.intoto.jsonl").read_text())
        payload = base64.b64decode(envelope["payload"])
        self.assertEqual(payload, (out / "provenance.json").read_bytes())
        kind = envelope["payloadType"]
        signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
        self.assertTrue(self.verify(public, envelope["signatures"][0]["sig"], signed))

        cosign = TOOLS / "bin/cosign"
        if cosign.exists():
            options = ("--key", public, "--insecure-ignore-tlog")
            succeed(cosign, "verify-blob", *options, "--signature", out / "SHA256SUMS.sig", out / "SHA256SUMS")
            attested = ("--signature", out / "provenance.intoto.jsonl", "--type", "slsaprovenance1")
            succeed(cosign, "verify-blob-attestation", *options, *attested, out / f"charts/base-{VERSION}.tgz")

    def test_changed_artefacts_are_not_signed(self):
        out = self.dist("out", "charts", self.programs())
        (out / f"charts/base-{VERSION}.tgz").write_text("changed")
        result = run(ROOT / "scripts/sign", out, "--key", self.key())
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"charts/base-{VERSION}.tgz", result.stderr)
        self.assertFalse((out / "SHA256SUMS.sig").exists())

    def test_changed_artefacts_are_not_trusted(self):
        out = self.dist("out", "charts", self.programs())
        succeed(ROOT / "scripts/sign", out, "--key", self.key())

        def fault(public):
            result = run(ROOT / "scripts/dist-try", out, "--key", public, "--without-cluster")
            self.assertEqual(result.returncode, 1)
            return result.stderr

        other = self.folder / "other.pub"
        other.write_text(succeed("openssl", "pkey", "-in", self.key("other"), "-pubout"))
        self.assertIn(f"SHA256SUMS is not signed by {other}", fault(other))

        (out / "unlisted").touch()
        self.assertIn("SHA256SUMS does not list unlisted", fault(out / "navarch.pub"))

        (out / f"charts/base-{VERSION}.tgz").write_text("changed")
        changed = f"charts/base-{VERSION}.tgz is not the file that SHA256SUMS lists"
        self.assertIn(changed, fault(out / "navarch.pub"))


class FakeRegistry(ThreadingHTTPServer):
    """A registry in memory, for one user. `fail_after` uploads it breaks connections, once."""

    daemon_threads = True
    USER = base64.b64encode(b"operator:secret").decode()

    def __init__(self):
        super().__init__(("127.0.0.1", 0), FakeRegistryHandler)
        self.name = f"127.0.0.1:{self.server_port}"
        self.blobs = {}
        self.manifests = {}
        self.uploads = 0
        self.fail_after = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Broken connections are what some tests are about."""


class FakeRegistryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_any(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path == "/token":
            known = self.headers.get("Authorization") == f"Basic {self.server.USER}"
            scope = parse_qs(url.query)["scope"][0]
            return self.answer(200, json.dumps({"token": scope}).encode()) if known else self.answer(401)

        repository, kind, name = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/(.+)", url.path).groups()
        if self.headers.get("Authorization") != f"Bearer repository:{repository}:pull,push":
            challenge = f'Bearer realm="http://{self.server.name}/token",service="fake"'
            return self.answer(401, WWW_Authenticate=challenge)
        return self.blob(repository, name, url, body) if kind == "blobs" else self.manifest(repository, name, body)

    do_GET = do_HEAD = do_POST = do_PUT = do_any

    def blob(self, repository, name, url, body):
        server = self.server
        if self.command == "POST":
            return self.answer(202, Location=f"/v2/{repository}/blobs/uploads/1?state=x")
        if self.command == "PUT":
            digest = parse_qs(url.query)["digest"][0]
            assert parse_qs(url.query)["state"] == ["x"]
            if digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
                return self.answer(400, b"another digest")
            if server.uploads == server.fail_after:
                return self.answer(403, b"out of room")
            server.uploads += 1
            server.blobs[repository, digest] = body
            return self.answer(201)
        content = server.blobs.get((repository, name))
        return self.answer(404) if content is None else self.answer(200, content)

    def manifest(self, repository, name, body):
        server = self.server
        if self.command == "PUT":
            value = json.loads(body)
            needed = [value["config"], *value["layers"]] if "config" in value else []
            missing = [blob for blob in needed if (repository, blob["digest"]) not in server.blobs]
            missing += [each for each in value.get("manifests", []) if (repository, each["digest"]) not in server.manifests]
            if missing:
                return self.answer(400, b"blobs are missing")
            for key in (name, f"sha256:{hashlib.sha256(body).hexdigest()}"):
                server.manifests[repository, key] = body
            return self.answer(201)
        content = server.manifests.get((repository, name))
        if content is None:
            return self.answer(404)
        kind = json.loads(content)["mediaType"]
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return self.answer(200, content, Content_Type=kind, Docker_Content_Digest=digest)


class Publish(ImageFolder):
    def setUp(self):
        super().setUp()
        self.registry = FakeRegistry()
        self.addCleanup(self.registry.server_close)
        self.addCleanup(self.registry.shutdown)

    def artefacts(self, program="old"):
        """A release of an image for two processors."""
        self.layers(program)
        out = self.folder / f"{program}-out"
        shutil.copytree(self.folder / program, out / "oci")
        (out / "manifest.json").write_text(json.dumps({"version": "1", "commit": "c0ffee", "tagged": True}))
        return out

    def publish(self, out, *options, user="operator"):
        environment = {**os.environ, "REGISTRY_USER": user, "REGISTRY_PASSWORD": "secret"}
        command = (ROOT / "scripts/publish", out, "--registry", f"{self.registry.name}/mesh", *options)
        return run(*command, env=environment)

    def test_a_dry_run_sends_nothing(self):
        done = self.publish(self.artefacts(), "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("would be sent: mesh/navarch:1", done.stderr)
        self.assertEqual((self.registry.blobs, self.registry.manifests), ({}, {}))

    def test_an_image_is_there_for_both_processors(self):
        out = self.artefacts()
        done = self.publish(out)
        self.assertEqual(done.returncode, 0, done.stderr)
        index = json.loads(self.registry.manifests["mesh/navarch", "1"])
        read = layout.ReadLayout(out / "oci")
        self.assertEqual(index, read.load(read.names["navarch:1"]))

    def test_a_push_that_broke_is_continued_and_repeating_sends_nothing(self):
        out = self.artefacts()
        self.registry.fail_after = 2
        broken = self.publish(out)
        self.assertEqual(broken.returncode, 1)
        self.assertIn("out of room", broken.stderr)
        self.assertNotIn(("mesh/navarch", "1"), self.registry.manifests)

        self.registry.fail_after = None
        self.assertEqual(self.publish(out).returncode, 0)
        # Two configurations and three layers; the layer of packages is the same for both.
        self.assertEqual(self.registry.uploads, 5)
        self.assertEqual(self.publish(out).returncode, 0)
        self.assertEqual(self.registry.uploads, 5)

    def test_a_version_is_not_replaced(self):
        self.assertEqual(self.publish(self.artefacts()).returncode, 0)
        before = dict(self.registry.manifests)
        result = self.publish(self.artefacts("new"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("already", result.stderr)
        self.assertEqual(self.registry.manifests, before)

    def test_artefacts_of_an_untagged_commit_are_not_pushed(self):
        out = self.artefacts()
        (out / "manifest.json").write_text(json.dumps({"version": "1", "commit": "c0ffee", "tagged": False}))
        result = self.publish(out)
        self.assertEqual((result.returncode, self.registry.uploads), (1, 0))
        self.assertIn("no tag 1", result.stderr)
        self.assertEqual(self.publish(out, "--untagged").returncode, 0)

    def test_wrong_credentials_are_an_error(self):
        result = self.publish(self.artefacts(), user="stranger")
        self.assertEqual(result.returncode, 1)
        self.assertIn("401", result.stderr)

    def test_credentials_are_those_of_docker_login(self):
        known = {"auths": {self.registry.name: {"auth": FakeRegistry.USER}}}
        (self.folder / "config.json").write_text(json.dumps(known))
        environment = {**os.environ, "DOCKER_CONFIG": str(self.folder)}
        environment.pop("REGISTRY_USER", None)
        succeed(ROOT / "scripts/publish", self.artefacts(), "--registry", f"{self.registry.name}/mesh", env=environment)

    def test_each_image_is_signed_where_cosign_looks(self):
        out = self.artefacts()
        key = self.key()
        self.assertEqual(self.publish(out, "--key", key).returncode, 0)
        public = self.folder / "public"
        public.write_text(succeed("openssl", "pkey", "-in", key, "-pubout"))
        read = layout.ReadLayout(out / "oci")
        manifests = read.manifests(read.names["navarch:1"])
        self.assertEqual(len(manifests), 3)
        for manifest in manifests:
            tag = manifest["digest"].replace(":", "-") + ".sig"
            layer = json.loads(self.registry.manifests["mesh/navarch", tag])["layers"][0]
            payload = self.registry.blobs["mesh/navarch", layer["digest"]]
            signed = json.loads(payload)["critical"]["image"]["docker-manifest-digest"]
            self.assertEqual(signed, manifest["digest"])
            signature = layer["annotations"]["dev.cosignproject.cosign/signature"]
            self.assertTrue(self.verify(public, signature, payload))


if __name__ == "__main__":
    unittest.main()
