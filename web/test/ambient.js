// Tests what the page shows of ambient mode, a rollout and a second replica.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { driven, everywhere, mesh, page, picture, row, state, to } from "./browser.js";

await driven(async () => {
  await replicas();
  await kinds();
  await waypoints();
  await stages();
  const views = [
    ["", "Overview"],
    ["proxies", "Proxies"],
    ["mesh/shop", "shop"],
    ["changes", "Changes"],
  ];
  await everywhere(views, "ambient-");
  await stopped();
});

/** The name of this replica, and the pods of the others. */
async function replicas() {
  await to("", "Overview");
  const part = page.getByRole("region", { name: "Replicas" });
  await part.getByText("istiod-a serves this page, and 7 proxies (5 sidecars, 1 waypoint, 1 ztunnel).").waitFor();
  await part.getByText("There is 1 other.").waitFor();
  await part.getByText("kubectl port-forward -n istio-system pod/istiod-b 15015:15014").waitFor();
  await picture("replicas");
}

async function kinds() {
  await to("proxies", "Proxies");
  await page.getByText("Proxies of istiod-a; 1 other replica has its own proxies.").waitFor();
  await page.getByLabel("Kind").selectOption("ztunnel");
  await row("ztunnel-1.istio-system").waitFor();
  // The row also exists before the filter is applied.
  await row("way-1.shop").waitFor({ state: "detached" });
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.getByLabel("Kind").selectOption("waypoint");
  await row("way-1.shop").getByText("waypoint", { exact: true }).waitFor();
  await row("ztunnel-1").waitFor({ state: "detached" });
}

async function waypoints() {
  await to("mesh", "Mesh");
  await row("shop").getByText("6 (1 waypoint)").waitFor();
  await row("istio-system").getByText("1 (1 ztunnel)").waitFor();
  await to("mesh/shop", "shop");
  await row("web.shop").getByText("shop/way").waitFor();
  await row("web.shop").getByText("1 of 1 endpoint behind ztunnel").waitFor();
  const graph = page.getByRole("group", { name: "Who may call which service" });
  await graph.getByRole("img", { name: "shop/way, waypoint" }).waitFor();
  const arrows = await graph.locator("g.line title").allTextContents();
  assert.ok(arrows.includes("anyone may call through waypoint shop/way: web"), arrows.join("; "));
  assert.ok(arrows.includes("waypoint shop/way handles the requests for web"), arrows.join("; "));
  assert.ok(!arrows.some((arrow) => arrow.startsWith("anyone may call web")), arrows.join("; "));
  await picture("services-waypoint");
}

/** Rewrites the rule of the reviews. */
function edit(mark, stages) {
  const file = `${mesh}/reviews.yaml`;
  const rule = readFileSync(file, "utf8").replace(/x: \S+?}/, `x: ${mark}}`).replace(/rollout: \S+?,/, `rollout: '${stages}',`);
  writeFileSync(file, rule);
}

/** A rollout that stays at its first stage appears without a reload, with its reason and its commands. */
async function stages() {
  await to("changes", "Changes");
  const part = page.getByRole("region", { name: "Rollouts" });
  // While it loads, its place is kept.
  await part.waitFor({ state: "detached" });
  edit("second", "50%");
  const one = part.locator("tbody tr");
  await one.getByText(state("rolling")).waitFor();
  await one.getByText("1 of 2 (50%)").waitFor();
  await one.getByText(/waits \d+ s for the end of its pause/).waitFor();
  await one.getByText("Commands").click();
  await one.getByText("navarch rollout promote virtualservice reviews -n shop").waitFor();
  await picture("rollouts");
  await others(one);
  await to("", "Overview");
  await page.getByRole("term").filter({ hasText: "rollouts" }).waitFor();
  await to("objects/VirtualService/shop/reviews", "VirtualService shop/reviews");
  await page.getByText(state("rollout: rolling")).waitFor();
}

/** Proxies that a stage does not wait for are counted; here the response is changed to have some. */
async function others(row) {
  await page.route("**/debug/rollout", async (route) => {
    const response = await route.fetch();
    const value = await response.json();
    for (const rollout of value.rollouts) Object.assign(rollout, { withoutIdentity: 2, leftBehind: 1 });
    await route.fulfill({ response, json: value });
  });
  await row.getByText("not waited for: 2 without an identity, 1 outside its namespace").waitFor();
  await page.unrouteAll({ behavior: "wait" });
}

/** A rollout that a proxy rejects stops, and shows the reason. */
async function stopped() {
  edit("bad-mark", "100%");
  await to("changes", "Changes");
  const one = page.getByRole("region", { name: "Rollouts" }).locator("tbody tr");
  await one.getByText(state("stopped")).waitFor();
  await one.getByText(/web-4\.shop.*no such header/).waitFor();
  await one.getByText("Editing the object starts it again.").waitFor();
}
