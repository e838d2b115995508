// Tests what the page shows of several replicas with navarch dashboard.

import assert from "node:assert/strict";
import { driven, everywhere, page, picture, row, to } from "./browser.js";

await driven(async () => {
  await to("proxies", "Proxies");
  await row("web-0.bookshop").waitFor();
  await row("web-1.bookshop").waitFor();
  await page.getByText(/^Proxies of 127\.0\.0\.1:\d+ \(1\), 127\.0\.0\.1:\d+ \(1\)\.$/).waitFor();
  await page.getByRole("columnheader", { name: "Replica" }).waitFor();
  const places = await page.locator("tbody tr td:last-child").allInnerTexts();
  assert.equal(new Set(places).size, 2, places.join(", "));
  await picture("proxies-of-replicas");
  // A request about one proxy is answered by the replica that it is connected to.
  for (const name of ["web-0.bookshop", "web-1.bookshop"]) {
    await to("proxies", "Proxies");
    await row(name).getByRole("link").click();
    await page.getByText("outbound|9080||reviews.bookshop.svc.cluster.local").first().waitFor();
  }
  await everywhere([["proxies", "Proxies"]], "replicas-");
});
