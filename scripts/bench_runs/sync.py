"""Runs of `navarch-load sync`, and the figures in their reports."""

import json
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def command(programs, measurement, result, *arguments):
    """The command line of a measurement of navarch-load that starts its own control plane."""
    return [programs / "navarch-load", measurement, programs / "navarch", ROOT, result, *arguments]


def sync(programs, work, arguments, istiod=None):
    """The report of one run against Navarch, or the istiod in a folder, on an API server."""
    result = work / "sync.json"
    plane = ["--istiod", istiod] if istiod else []
    subprocess.run(
        command(programs, "sync", result, *plane, *arguments),
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads(result.read_text(encoding="utf-8"))


def rounded(value):
    """Three significant digits."""
    value = float(f"{value:.3g}")
    return int(value) if value == int(value) else value


def megabytes(kilobytes):
    """KiB, the unit of /proc, as 10^6 bytes."""
    return kilobytes * 1024 / 1e6


def sent(step):
    """MB that all proxies together received in a step: the first sync, a change, a reconnect."""
    return sum(count["bytes"] for count in step["counts"]) / 1e6


def changed(report, what, value):
    """The median of the changes of a kind in a run."""
    return statistics.median(value(change) for change in report["changes"] if change["what"] == what)
