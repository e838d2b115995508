"""The Helm charts, as archives and as OCI artefacts."""

import re
from datetime import datetime, timezone

from .archives import Entry, tar_gz
from .common import ROOT, SOURCE, Fault
from .layout import MANIFEST

CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def metadata(chart):
    """The fields of a Chart.yaml, whose values are words alone."""
    fields = {}
    for line in (chart / "Chart.yaml").read_text().splitlines():
        found = re.fullmatch(r'(\w+): (?:"([^"]*)"|([^"\[{&*!|>%@].*))', line)
        if not found:
            raise Fault(f"{chart}/Chart.yaml: a line that is no field with a word: {line}")
        fields[found[1]] = found[2] if found[2] is not None else found[3]
    return fields


def pack(release, layout, out):
    """Writes each chart's archive, and lists it in the layout; gives their names with the archives' paths."""
    packed = {}
    for chart in sorted(path.parent for path in (ROOT / "deploy/charts").glob("*/Chart.yaml")):
        fields = metadata(chart)
        if fields["version"] != release.version:
            raise Fault(f"the chart {chart.name} is of version {fields['version']}, not {release.version}")

        files = [path for path in chart.rglob("*") if path.is_file()]
        entries = [Entry(f"{chart.name}/{path.relative_to(chart)}", path) for path in files]
        archive = out / "charts" / f"{chart.name}-{release.version}.tgz"
        tar_gz(archive, entries, release.epoch)
        add(release, layout, fields, archive)
        packed[chart.name] = archive
    return packed


def add(release, layout, fields, archive):
    created = datetime.fromtimestamp(release.epoch, timezone.utc).isoformat().replace("+00:00", "Z")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add_json(fields, CONFIG),
        "layers": [layout.add_bytes(archive.read_bytes(), CONTENT)],
        "annotations": {
            "org.opencontainers.image.created": created,
            "org.opencontainers.image.description": fields["description"],
            "org.opencontainers.image.revision": release.commit,
            "org.opencontainers.image.source": SOURCE,
            "org.opencontainers.image.title": fields["name"],
            "org.opencontainers.image.version": fields["version"],
        },
    }
    layout.add(f"charts/{fields['name']}:{release.version}", layout.add_json(manifest, MANIFEST))
