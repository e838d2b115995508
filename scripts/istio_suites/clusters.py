"""The clusters that suites run on: each a node of scripts/cluster."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts/cluster"

# The networks of the only cluster are those of scripts/cluster/up.
ALONE = {}

# Those of two, which differ from it, so that both beds can run at the same time. Addresses of load balancers are apart from
# ClusterIPs: in the other cluster nothing must answer at the latter.
PAIR = [
    {
        "CLUSTER_NAME": "first",
        "NODE_NAME": "first",
        "NODE_NET": "10.252.0",
        "POD_CIDR": "10.246.0.0/16",
        "SERVICE_CIDR": "10.100.0.0/16",
        "BALANCER_NET": "10.102",
    },
    {
        "CLUSTER_NAME": "second",
        "NODE_NAME": "second",
        "NODE_NET": "10.253.0",
        "POD_CIDR": "10.247.0.0/16",
        "SERVICE_CIDR": "10.101.0.0/16",
        "BALANCER_NET": "10.103",
    },
]

# The device in both nodes that joins them.
WIRE = "wire"

# The share of the CPU that all pods of a cluster together get. With the default, 1024, they weigh as much as one process outside.
POD_CPU_SHARES = 6000


def run(*command, **options):
    """Runs a command to its end, and gives its output."""
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([str(word) for word in command], check=True, text=True, **options).stdout


class Cluster:
    """A cluster of one node, with addresses for Services of type LoadBalancer."""

    def __init__(self, folder, networks, environment):
        self.folder = folder
        self.images = folder / "images"
        self.kubeconfig = folder / "kubeconfig"
        self.networks = networks
        self.environment = dict(environment, KUBECONFIG=str(self.kubeconfig))
        self.balance = None
        self.images.mkdir(parents=True, exist_ok=True)

    def start(self, names):
        """Starts the node with the images of its folder, which get further names."""
        variables = dict(os.environ, **self.networks)
        run(SCRIPTS / "up", self.folder, env=variables)
        self.tag_images(names)
        self.raise_cpu_shares()
        self.balance = subprocess.Popen([SCRIPTS / "balance", self.folder], env=variables, start_new_session=True)

    def stop(self, keep):
        """Ends what runs, and removes the folder; with `keep` only the addresses of load balancers end."""
        if self.balance:
            os.killpg(self.balance.pid, signal.SIGTERM)
            self.balance.wait()
        if not keep:
            run(SCRIPTS / "down", self.folder)
            shutil.rmtree(self.folder)

    def share_images(self, other):
        """Gives another cluster the images of this one; the files are the same."""
        for archive in self.images.glob("*.tar"):
            copy = other.images / archive.name
            copy.unlink(missing_ok=True)
            os.link(archive, copy)

    def tag_images(self, names):
        """Gives images the further names that pods use."""
        socket = self.folder / "run/containerd/containerd.sock"
        for name, others in names.items():
            run("ctr", "--address", socket, "-n", "k8s.io", "images", "tag", "--force", name, *others)

    def raise_cpu_shares(self):
        """Lets the pods have the machine, where cgroups are those of version 1."""
        # The name that scripts/cluster/settings gives the cgroup of this cluster.
        group = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        shares = Path(f"/sys/fs/cgroup/cpu/cluster-{group}/cpu.shares")
        if shares.exists():
            shares.write_text(f"{POD_CPU_SHARES}\n")

    def process(self):
        """The id of the node's first process."""
        return (self.folder / "pid").read_text(encoding="utf-8").split()[0]

    def in_network(self, *command):
        """Runs a command in the node's network."""
        return run("nsenter", "-t", self.process(), "-n", *command)

    def kubectl(self, *words):
        return run("kubectl", *words, env=self.environment, stderr=subprocess.DEVNULL)

    def denied(self):
        """The requests of the control plane that Istio's roles did not allow."""
        return run(SCRIPTS / "denied", self.folder).splitlines()

    def clean(self):
        """Removes what a suite left on the cluster."""
        own = {"default", "kube-system", "kube-public", "kube-node-lease"}
        names = self.kubectl("get", "namespaces", "-o", "name").split()
        left = [name for name in names if name.removeprefix("namespace/") not in own]
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
            self.kubectl("delete", kind, "--all")
        if left:
            self.delete(left)

    def remove_gateway_api(self):
        """Removes the kinds of the Gateway API, which suites leave. `istioctl analyze` waits without end
        for those of another cluster, whose role for readers allows Gateways alone."""
        names = self.kubectl("get", "crds", "-o", "name").split()
        kinds = [name for name in names if name.endswith(".gateway.networking.k8s.io")]
        if kinds:
            self.kubectl("delete", *kinds)

    def delete(self, namespaces):
        """Deletes namespaces. The controller sometimes leaves an empty one for minutes: that one is
        finalized in its place."""
        try:
            self.kubectl("delete", *namespaces, "--ignore-not-found", "--timeout=120s")
        except subprocess.CalledProcessError:
            for name in namespaces:
                self.finalize(name)

    def finalize(self, name):
        text = self.kubectl("get", name, "-o", "json", "--ignore-not-found")
        if not text:
            return
        namespace = json.loads(text)
        conditions = {each["type"]: each["status"] for each in namespace["status"].get("conditions", [])}
        if conditions.get("NamespaceContentRemaining") != "False":
            raise SystemExit(f"istio-suites: {name} is not empty after two minutes of its deletion")

        namespace["spec"]["finalizers"] = []
        path = f"/api/v1/namespaces/{namespace['metadata']['name']}/finalize"
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(namespace, file)
            file.flush()
            self.kubectl("replace", "--raw", path, "-f", file.name)


def link(one, other):
    """Joins the nodes of two clusters, as two networks are joined: from each, the other's API server
    and the addresses of its load balancers are reached, but no pod and no ClusterIP."""
    if f" {WIRE}@" in one.in_network("ip", "-o", "link"):
        return
    end = ("type", "veth", "peer", "name", WIRE, "netns", other.process())
    run("ip", "link", "add", WIRE, "netns", one.process(), *end)

    for here, there in ((one, other), (other, one)):
        own = f"{here.networks['NODE_NET']}.1"
        far = f"{there.networks['NODE_NET']}.1"
        here.in_network("ip", "link", "set", WIRE, "up")
        here.in_network("ip", "route", "add", far, "dev", WIRE, "src", own)
        here.in_network("ip", "route", "add", f"{there.networks['BALANCER_NET']}.0.0/16", "via", far, "src", own)
        # The other node has no route to the pods of this one.
        rule = ("POSTROUTING", "--out-interface", WIRE, "--jump", "SNAT", "--to-source", own)
        here.in_network("iptables", "--wait", "--table", "nat", "--append", *rule)
