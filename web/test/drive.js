// Tests every view of the page on the sample mesh with real Envoys.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { address, driven, everywhere, mesh, page, picture, row, state, to } from "./browser.js";

const VIEWS = [
  ["", "Overview"],
  ["mesh", "Mesh"],
  ["proxies", "Proxies"],
  ["objects", "Objects"],
  ["changes", "Changes"],
  ["certificates", "Certificates"],
  ["trace", "Trace a request"],
  ["plan", "Plan a change"],
];

/** Responses about the roots of the mesh. */
const OF_ROOTS = /\/ca(\?|$)/;

await driven(async () => {
  await to("", "Overview");
  await page.getByText("broken").first().waitFor();
  assert.match(await page.title(), /^Overview · Navarch$/);

  await proxies();
  await changes();
  await proxiesAfterwards();
  await objects();
  await theMesh();
  await certificates();
  await signers();
  await trace();
  await plan();
  await keyboard();
  await everywhere([...VIEWS, ["mesh/billing", "billing"]]);
  await crowded();
}, gone);

async function proxies() {
  await to("proxies", "Proxies");
  for (const name of ["gateway-1.istio-system", "shopper-1.bookshop", "web-0.bookshop"]) await row(name).waitFor();
  await page.getByText("6 proxies").waitFor();
  await page.getByLabel("Filter by name").fill("gateway router");
  await row("gateway-1").waitFor();
  await row("web-0").waitFor({ state: "detached" });
  await page.getByText("1 proxies", { exact: true }).or(page.getByText("1 proxy")).waitFor();
  await page.getByLabel("Filter by name").fill("nothing like it");
  await page.getByText("No matching proxy.").waitFor();
}

/** A change and its progress up to the last proxy appear without a reload. */
async function changes() {
  await to("objects/VirtualService/bookshop/reviews", "VirtualService bookshop/reviews");
  await page.getByText("It affects 5 proxies: acknowledged by 5,").waitFor();
  await to("changes", "Changes");
  const file = `${mesh}/reviews-routing.yaml`;
  const text = readFileSync(file, "utf8").replace("weight: 90", "weight: 70").replace("weight: 10", "weight: 30");
  const newest = page.locator("tbody tr").filter({ hasText: "VirtualService bookshop/reviews" }).first();
  writeFileSync(file, text.replace("name: split", "name: canary"));
  await newest.getByText("1 rejected").waitFor();
  await newest.getByText("3 acknowledged").waitFor();
  await newest.getByText("1 pending").waitFor();
  await picture("changes");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused.").waitFor();
}

async function proxiesAfterwards() {
  await to("proxies", "Proxies");
  await row("web-3").getByText(state("refused")).first().waitFor();
  await row("web-3").getByText("Didn't find a registered implementation").waitFor();
  await row("web-2").getByText(state("lagging")).first().waitFor();
  await row("web-2").getByText(/no response yet to .*rds/).waitFor();
  await row("gateway-1").getByText(state("synced")).first().waitFor();
  const first = await page.locator("tbody th").first().innerText();
  assert.equal(first, "web-3.bookshop", "the worst comes first");
  await picture("proxies");
  await page.getByLabel("State").selectOption("lagging");
  await row("web-3").waitFor({ state: "detached" });
  assert.equal(await page.locator("tbody tr").count(), 1);

  await page.getByRole("link", { name: "web-2.bookshop" }).click();
  await page.getByRole("heading", { level: 1, name: /^web-2\.bookshop/ }).waitFor();
  await to("proxies", "Proxies");
  await page.getByRole("link", { name: "shopper-1.bookshop" }).click();
  await page.getByRole("heading", { level: 1, name: /^shopper-1\.bookshop/ }).waitFor();
  await page.getByLabel("Type").selectOption("rds");
  const route = page.getByRole("button", { name: /rds 9080/ });
  await route.click();
  assert.equal(await route.getAttribute("aria-expanded"), "true");
  await page.getByRole("link", { name: "VirtualService bookshop/reviews" }).first().waitFor();
  await page.locator("pre").getByText('"canary"').first().waitFor();
  await page.getByRole("heading", { name: "Last pushes" }).waitFor();
  await picture("proxy");
}

async function objects() {
  await to("objects", "Objects");
  await row("reports/broken").getByText(state("rejected")).first().waitFor();
  await row("reports/broken").getByText(/error: .*weight/).first().waitFor();
  await row("bookshop/reviews").filter({ hasText: "VirtualService" }).getByText("acknowledged by 3 of 5").waitFor();
  await picture("objects");
  await page.getByLabel("Show").selectOption("problems");
  await row("bookshop/reviews").first().waitFor({ state: "detached" });
  await page.getByLabel("Show").selectOption("");
  await row("bookshop/reviews").filter({ hasText: "VirtualService" }).getByRole("link").click();
  await page.getByRole("heading", { level: 1, name: "VirtualService bookshop/reviews" }).waitFor();
  await page.getByText("It affects 5 proxies: acknowledged by 3, pending at 1, rejected by 1.").waitFor();
}

async function theMesh() {
  await to("mesh", "Mesh");
  const graph = page.getByRole("group", { name: "Which namespace may call which" });
  await graph.getByRole("link", { name: /^billing/ }).waitFor();
  assert.ok((await graph.locator("path.arrow").count()) >= 3, "reports and bookshop to billing, istio-system to bookshop");
  await row("billing").getByText("1 mTLS only").waitFor();
  await row("billing").getByText("1 plain text only").waitFor();
  await picture("mesh");
  await graph.getByRole("link", { name: /^billing/ }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "billing" }).waitFor();
  const ledger = row("ledger.billing");
  await ledger.getByText("mTLS only").waitFor();
  await ledger.getByText("namespace reports, bookshop/storefront").waitFor();
  await ledger.getByText("for certain requests only").waitFor();
  await row("archive.billing").getByText(state("nobody")).waitFor();
  await picture("services");
}

async function certificates() {
  await to("certificates", "Certificates");
  await page.getByText("One root signs, and only it is trusted.").waitFor();
  await page.getByText("signs", { exact: true }).waitFor();
  await picture("certificates");
}

/** This control plane signs itself: the response gets a signer, which is unavailable for one namespace. */
async function signers() {
  const signer = {
    name: "cert-manager",
    namespaces: [],
    unavailable: [{ namespace: "billing", why: "no Issuer in the namespace" }],
    lastSuccess: "2026-11-01T10:00:00Z",
    chain: [],
    roots: [],
    missing: [],
  };
  const withSigner = async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), signers: [signer] } });
  };
  await page.route(OF_ROOTS, withSigner);

  await to("certificates", "Certificates");
  await page.reload();
  await row("cert-manager").getByText("unavailable for 1 namespace").waitFor();
  await row("billing").getByText("no Issuer in the namespace").waitFor();
  await picture("signers");
  await page.unroute(OF_ROOTS);
}

async function trace() {
  await to("trace", "Trace a request");
  await page.getByLabel("From the proxy").fill("web-0.bookshop");
  await page.getByLabel("To the host").fill("reviews");
  await page.getByLabel("Port").fill("9080");
  await page.getByRole("button", { name: "Trace" }).click();
  await page.getByText("reviews is Service bookshop/reviews").waitFor();
  await picture("trace");
  await page.getByLabel("Port").fill("9999");
  await page.keyboard.press("Enter");
  await page.getByText("has no port 9999").waitFor();
  await page.getByText(state("it fails")).waitFor();
  // A request that enters at the gateway, with a token.
  await page.getByLabel("From the proxy").fill("gateway-1.istio-system");
  await page.getByLabel("To the host").fill("shop.example.com");
  await page.getByLabel("Port").fill("");
  await page.getByLabel("Claims of the token").fill('{"iss": "https://issuer.example", "sub": "me"}');
  await page.getByRole("button", { name: "Trace" }).click();
  await page.getByText("has a host that matches shop.example.com").first().waitFor();
  await page.getByText("does not check tokens").first().waitFor();
  await picture("trace-gateway");
  await page.getByLabel("Claims of the token").fill("none");
  await page.getByRole("button", { name: "Trace" }).click();
  await page.getByText("The claims of a token must be a JSON object").waitFor();
}

async function plan() {
  await to("plan", "Plan a change");
  const text = readFileSync(`${mesh}/reviews-routing.yaml`, "utf8").replace("weight: 70", "weight: 0").replace("weight: 30", "weight: 100");
  await page.getByLabel("Objects to add or change").fill(text);
  await page.getByRole("button", { name: "Plan" }).click();
  await page.getByText("of 6 proxies would receive changes").waitFor();
  await page.getByRole("heading", { name: "Requests with a different route" }).waitFor();
  await page.locator("tbody").getByText("v2 100 %").first().waitFor();
  await page.locator("summary").first().click();
  await page.locator("pre .plus").first().waitFor();
  await picture("plan");
  await page.getByLabel("Objects to add or change").fill("kind: VirtualService\napiVersion: networking.istio.io/v1\nmetadata: {name: x}\nspec: {}");
  await page.getByRole("button", { name: "Plan" }).click();
  await page.getByText(/error: .*has no routes/).waitFor();
}

/** From the address bar to a proxy and back without a mouse. */
async function keyboard() {
  await to("proxies", "Proxies");
  await row("gateway-1").waitFor();
  await page.reload();
  await row("gateway-1").waitFor();
  await page.keyboard.press("Tab");
  const skip = page.getByRole("link", { name: "Skip to content" });
  assert.ok(await skip.evaluate((link) => link === document.activeElement), "the first stop leads past the views");
  const outline = await skip.evaluate((link) => getComputedStyle(link).outlineStyle);
  assert.notEqual(outline, "none", "the stop is seen");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  await page.keyboard.press("/");
  assert.ok(await page.evaluate(() => document.activeElement?.classList.contains("filter")), "/ leads to the filter");
  await page.getByRole("link", { name: "web-3.bookshop" }).focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "web-2.bookshop");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: /^web-3/ }).waitFor();
  await page.waitForFunction(() => document.activeElement?.tagName === "H1");
  // All controls can be focused, and have a name.
  for (const [place, heading] of VIEWS) {
    await to(place, heading);
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll("a, button, input, select, textarea")]
        .filter((element) => element.tabIndex >= 0 && !(element.textContent.trim() || element.labels?.length || element.ariaLabel))
        .map((element) => element.outerHTML),
    );
    assert.deepEqual(nameless, [], `${heading}: these have no name`);
    assert.equal(await page.locator("main").count(), 1);
    assert.equal(await page.locator("h1").count(), 1);
  }
}

/** Too many arrows are drawn for one box at a time; a filter reduces them. */
async function crowded() {
  const name = (n) => `crowd${String(n % 20).padStart(2, "0")}`;
  const crowd = Array.from({ length: 20 }, (_, n) => {
    const callers = Array.from({ length: 10 }, (_, next) => name(n + next + 1)).join(", ");
    return `apiVersion: v1
kind: Service
metadata: {name: one, namespace: ${name(n)}}
spec: {clusterIP: None, ports: [{port: 80, name: http}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: some, namespace: ${name(n)}}
spec: {rules: [{from: [{source: {namespaces: [${callers}]}}]}]}
`;
  });
  writeFileSync(`${mesh}/crowd.yaml`, crowd.join("---\n"));
  await to("mesh", "Mesh");
  await page.getByText("arrows are too many to draw at once").waitFor();
  const arrows = page.locator("path.arrow");
  assert.equal(await arrows.count(), 0);
  await page.locator("svg a", { hasText: "crowd07" }).focus();
  await page.waitForFunction(() => document.querySelectorAll("path.arrow").length === 20);
  await picture("mesh-crowded");
  await page.getByLabel("Filter by namespace").fill("crowd07");
  await page.getByText("arrows are too many to draw at once").waitFor({ state: "detached" });
  await page.waitForFunction(() => document.querySelectorAll("path.arrow").length === 20);
}

/** If there is no response, the page reports it and keeps the last content. */
async function gone() {
  await to("proxies", "Proxies");
  await row("gateway-1").waitFor();
  await page.route("**/debug/**", (route) => route.abort());
  await page.getByText("Navarch does not answer.").waitFor();
  await page.getByText(state("no answer")).waitFor();
  await row("gateway-1").waitFor();
  await page.unroute("**/debug/**");
  await page.getByText("Navarch does not answer.").waitFor({ state: "detached" });
}
