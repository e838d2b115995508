// Tests how the page shows used, denied and allowed edges, with evidence of navarch scope.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { driven, everywhere, mesh, page, picture, row, state, to } from "./browser.js";

const EVIDENCE = `${mesh}/../calls.json`;
const FORGED = "<img src=x onerror=alert(1)>";
const graph = page.getByRole("group", { name: "Which workload calls which service" });
const edge = (name) => page.locator("tbody tr", { hasText: name });

await driven(async () => {
  await withoutEvidence();
  await calls();
  await unused();
  await oneWorkload();
  await forged();
  await everywhere([["mesh/bookshop/calls", "bookshop"]], "calls-");
});

async function withoutEvidence() {
  await to("mesh/bookshop", "bookshop");
  await page.getByRole("link", { name: "Who calls" }).click();
  await page.getByText("There is no evidence").waitFor();
  const other = `${mesh}/../other.json`;
  writeFileSync(other, "{}");
  await choose(other);
  await page.getByText("other.json is not the output of navarch scope").waitFor();
}

/** Chooses a file, as a user of the keyboard reaches it: by its label. */
async function choose(file) {
  await page.getByLabel("Choose evidence").setInputFiles(file);
}

async function calls() {
  await choose(EVIDENCE);
  await page.getByText("1 edge used, 1 denied.").waitFor();
  const used = edge("catalog.bookshop");
  await used.getByText(state("used")).waitFor();
  await used.getByText("1,000 requests").waitFor();
  await used.getByText("10 %").waitFor();
  await used.getByText(/ago$/).waitFor();
  const denied = edge("ledger.billing");
  await denied.getByText(state("denied")).waitFor();
  await denied.getByText("100 %").waitFor();

  assert.equal(await graph.locator("path.arrow.used").count(), 1);
  assert.equal(await graph.locator("path.arrow.failed").count(), 1, "a part of it is red");
  assert.equal(await graph.locator("path.arrow.denied:not(.cross)").count(), 1);
  assert.equal(await graph.locator("path.arrow.denied.cross").count(), 1);
  assert.equal(await graph.locator("path.arrow.allowed").count(), 0);
  const titles = await graph.locator("g.line title").allTextContents();
  assert.ok(titles.some((title) => title.startsWith("bookshop/web calls catalog.bookshop.svc.cluster.local: 42/h, 10 % failed")), titles.join("; "));
  assert.ok(titles.includes("bookshop/web was denied ledger.billing.svc.cluster.local: 5 calls"), titles.join("; "));
  await picture("calls");
}

async function unused() {
  await page.getByLabel("Allowed and never called").check();
  const allowed = edge("reviews.bookshop");
  await allowed.getByText("allowed and never called").waitFor();
  await allowed.getByText("never", { exact: true }).waitFor();
  await allowed.getByText("no proxy of a destination is connected").waitFor();
  const dashes = await graph.locator("path.arrow.allowed").first().evaluate((line) => getComputedStyle(line).strokeDasharray);
  assert.notEqual(dashes, "none");
  await picture("calls-allowed");
}

async function oneWorkload() {
  await page.getByLabel("Workload", { exact: true }).selectOption("web");
  await page.waitForFunction(() => window.location.hash === "#/mesh/bookshop/calls/web");
  await edge("reviews.bookshop").getByText("allowed and never called").waitFor();
  await page.getByLabel("Filter by workload").fill("ledger");
  await edge("catalog.bookshop").waitFor({ state: "detached" });
  await row("bookshop/web").getByText(state("denied")).waitFor();
  await graph.getByRole("link", { name: /^ledger\.billing/ }).click();
  await page.getByRole("heading", { level: 1, name: "billing" }).waitFor();
  await page.getByText("0 edges used, 1 denied.").waitFor();
}

/** The names in evidence are texts of others. */
async function forged() {
  const evidence = JSON.parse(readFileSync(EVIDENCE, "utf8"));
  evidence.evidence.workloads["bookshop/web"].calls[FORGED] = { requests: 1, connections: 0, failed: 0, denied: 0, lastSeen: null };
  const file = `${mesh}/../forged.json`;
  writeFileSync(file, JSON.stringify(evidence));
  await to("mesh/bookshop/calls", "bookshop");
  await choose(file);
  await edge(FORGED).getByText("the registry has no such host now").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
}
