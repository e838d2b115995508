// Drives what a mesh of ambient mode, with a change in stages and a second replica, adds to the page.

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

/** Which replica this is, and where the others are. */
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
  await page.getByText("Those of istiod-a; 1 other replica has proxies of their own.").waitFor();
  await page.getByLabel("Kind").selectOption("ztunnel");
  await row("ztunnel-1.istio-system").waitFor();
  // The row is there before the filter is answered, too.
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
  const arrows = await graph.locator("path.arrow title").allTextContents();
  assert.ok(arrows.includes("anyone may call, by waypoint shop/way: web"), arrows.join("; "));
  assert.ok(arrows.includes("waypoint shop/way takes the requests for web"), arrows.join("; "));
  assert.ok(!arrows.some((arrow) => arrow.startsWith("anyone may call web")), arrows.join("; "));
  await picture("services-waypoint");
}

/** Writes the rule of the reviews anew. */
function edit(mark, stages) {
  const file = `${mesh}/reviews.yaml`;
  const rule = readFileSync(file, "utf8").replace(/x: \S+?}/, `x: ${mark}}`).replace(/rollout: \S+?,/, `rollout: '${stages}',`);
  writeFileSync(file, rule);
}

/** A change that stays at its first stage is seen without asking again, with what it waits for and what can be ordered. */
async function stages() {
  await to("changes", "Changes");
  const part = page.getByRole("region", { name: "Changes in stages" });
  // While it is asked for, its place is kept.
  await part.waitFor({ state: "detached" });
  edit("second", "50%");
  const one = part.locator("tbody tr");
  await one.getByText(state("rolling")).waitFor();
  await one.getByText("1 of 2 (50%)").waitFor();
  await one.getByText(/waits \d+ s for the end of its pause/).waitFor();
  await one.getByText("Orders").click();
  await one.getByText("navarch rollout promote virtualservice reviews -n shop").waitFor();
  await picture("rollouts");
  await to("", "Overview");
  await page.getByRole("term").filter({ hasText: "changes in stages" }).waitFor();
  await to("objects/VirtualService/shop/reviews", "VirtualService shop/reviews");
  await page.getByText(state("a change is rolling")).waitFor();
}

/** One that a proxy refuses is stopped, and says why. */
async function stopped() {
  edit("bad-mark", "100%");
  await to("changes", "Changes");
  const one = page.getByRole("region", { name: "Changes in stages" }).locator("tbody tr");
  await one.getByText(state("stopped")).waitFor();
  await one.getByText(/web-4\.shop.*no such header/).waitFor();
  await one.getByText("Editing the object starts it again.").waitFor();
}
