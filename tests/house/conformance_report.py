#!/usr/bin/env python3
"""Tests of scripts/conformance-report; tests/house/conformance_report.rs runs them."""

import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

REPORT = """apiVersion: gateway.networking.k8s.io/v1
date: "2026-11-28T12:00:00Z"
gatewayAPIChannel: experimental
gatewayAPIVersion: v1.6.0
implementation:
  contact:
  - https://github.com/navarch/navarch/issues/new
  organization: navarch
  project: navarch
  url: https://github.com/navarch/navarch
  version: 1.32.0-navarch.0f092f87
kind: ConformanceReport
mode: default
profiles:
- core:
    result: success
    statistics:
      Failed: 0
      Passed: 36
      Skipped: 0
  name: GATEWAY-HTTP
  summary: Core tests succeeded.
"""

GATEWAY_API = "gateway-api/v1.6/navarch"
EXTENSION = "gateway-api-inference-extension/v1.6.0/gateway/navarch"


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.into = self.folder / "into"

    def file(self, text):
        """Files a report of this text."""
        report = self.folder / "report.yaml"
        report.write_text(text, encoding="utf-8")
        command = [ROOT / "scripts/conformance-report", "--into", self.into, report]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_rejected(self, text, reason):
        done = self.file(text)
        self.assertEqual(done.returncode, 1)
        self.assertIn(reason, done.stderr)
        self.assertFalse(self.into.exists())

    def test_a_report_is_copied_as_it_is_under_the_projects_name_for_it(self):
        done = self.file(REPORT)
        copy = self.into / GATEWAY_API / "experimental-1.32.0-navarch.0f092f87-default-report.yaml"
        self.assertEqual(done.stdout, f"{copy}\n", done.stderr)
        self.assertEqual(copy.read_text(encoding="utf-8"), REPORT)

    def test_a_report_of_the_inference_extension_is_filed_by_its_version_and_profile(self):
        text = "GatewayAPIInferenceExtensionVersion: v1.6.0\n" + REPORT.replace("GATEWAY-HTTP", "Gateway")
        self.file(text)
        copy = self.into / EXTENSION / "1.32.0-navarch.0f092f87-default-gateway-report.yaml"
        self.assertEqual(copy.read_text(encoding="utf-8"), text)
        readme = (self.into / EXTENSION / "README.md").read_text(encoding="utf-8")
        self.assertIn("| v1.6.0 | Gateway | [1.32.0-navarch.0f092f87]", readme)
        self.assertIn("make gie-conformance conformance-report", readme)

    def test_the_readme_lists_all_reports_with_links_to_their_sources(self):
        self.file(REPORT)
        self.file(REPORT.replace("1.32.0-navarch.0f092f87", "1.0.0"))
        readme = (self.into / GATEWAY_API / "README.md").read_text(encoding="utf-8")
        rows = [line for line in readme.splitlines() if line.startswith("| experimental")]
        tree = "https://github.com/navarch/navarch/tree"
        self.assertEqual(len(rows), 2)
        self.assertIn(f"[1.0.0]({tree}/1.0.0) | default | [1.0.0 report](./experimental-1.0.0-", rows[0])
        self.assertIn(f"({tree}/0f092f87)", rows[1])

    def test_a_report_of_a_changed_clone_is_rejected(self):
        for version in ("1.32.0-navarch.0f092f87-dirty", "1.32.0-navarch.dev"):
            self.assert_rejected(REPORT.replace("1.32.0-navarch.0f092f87", version), "no snapshot")

    def test_a_report_with_a_failed_or_skipped_test_is_rejected(self):
        for outcome, result in (("failed", "failure"), ("skipped", "partial")):
            text = REPORT.replace("result: success", f"{outcome}Tests:\n    - HTTPRouteWeight\n    result: {result}")
            self.assert_rejected(text, f"tests {outcome}: HTTPRouteWeight")

    def test_a_report_without_a_contact_is_rejected(self):
        contact = "  contact:\n  - https://github.com/navarch/navarch/issues/new\n"
        self.assert_rejected(REPORT.replace(contact, ""), "implementation.contact")


if __name__ == "__main__":
    unittest.main()
