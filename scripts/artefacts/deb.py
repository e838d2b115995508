"""The Debian package `navarch-agent`: the agent and Envoy, for machines outside of the cluster."""

import hashlib

from .archives import Entry, ar, tar_xz, with_folders
from .common import ARCHITECTURES, ROOT, SOURCE
from .programs import needed_glibc

NAME = "navarch-agent"
FILES = ROOT / "deploy/debian"
CONFFILES = ("/etc/logrotate.d/navarch-agent", "/var/lib/istio/envoy/sidecar.env")

# As in Istio's package, which this one replaces.
CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: Navarch maintainers <maintainers@users.noreply.github.com>
Installed-Size: {size}
Depends: {depends}
Provides: istio-sidecar
Conflicts: istio-sidecar
Replaces: istio-sidecar
Section: net
Priority: optional
Homepage: {homepage}
Description: Agent and Envoy that join a machine to a service mesh
 The machine becomes a workload of a mesh of Navarch or Istio, by the files that
 `istioctl x workload entry configure` writes for its WorkloadGroup.
"""


def contents(agent, envoy):
    """The files of the package."""
    return [
        Entry("./etc/logrotate.d/navarch-agent", FILES / "logrotate"),
        Entry("./lib/systemd/system/istio.service", FILES / "istio.service"),
        Entry("./usr/local/bin/envoy", envoy, 0o755),
        Entry("./usr/local/bin/istio-start.sh", FILES / "istio-start.sh", 0o755),
        Entry("./usr/local/bin/pilot-agent", agent, 0o755),
        Entry("./usr/share/doc/navarch-agent/copyright", ROOT / "LICENSE"),
        Entry("./var/lib/istio/envoy/sidecar.env", FILES / "sidecar.env"),
    ]


def control(release, architecture, files, agent):
    """The files that say what the package is, and what runs when it is installed."""
    glibc = needed_glibc(agent)
    depends = ["hostname", "iproute2", "iptables", "libgcc-s1", "passwd", "util-linux"]
    text = CONTROL.format(
        name=NAME,
        # A tilde comes before the end: 1.0.0~rc.1 is older than 1.0.0.
        version=release.version.replace("-", "~"),
        architecture=ARCHITECTURES[architecture],
        size=sum(-(-file.content.stat().st_size // 1024) for file in files),
        depends=", ".join([f"libc6 (>= {glibc})" if glibc else "libc6", *depends]),
        homepage=SOURCE,
    )
    sums = [f"{hashlib.md5(file.content.read_bytes()).hexdigest()}  {file.name[2:]}\n" for file in files]
    scripts = [Entry(f"./{name}", FILES / name, 0o755) for name in ("postinst", "postrm", "prerm")]
    return [
        Entry("./control", text.encode()),
        Entry("./conffiles", "".join(f"{file}\n" for file in CONFFILES).encode()),
        Entry("./md5sums", "".join(sums).encode()),
        *scripts,
    ]


def pack(release, architecture, agent, envoy, work, out):
    """Writes the package; gives its path."""
    folder = work / f"deb-{architecture}"
    folder.mkdir()
    files = contents(agent, envoy)
    members = [folder / name for name in ("debian-binary", "control.tar.xz", "data.tar.xz")]
    members[0].write_text("2.0\n")
    tar_xz(members[1], with_folders(control(release, architecture, files, agent)), release.epoch)
    tar_xz(members[2], with_folders(files), release.epoch)

    out.mkdir(parents=True, exist_ok=True)
    package = out / f"{NAME}_{release.version}_{ARCHITECTURES[architecture]}.deb"
    ar(package, members, release.epoch)
    return package
