// Starts Chromium with the page, and has checks for all views. tests/page/browser.rs passes the addresses.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { createRequire } from "node:module";

const scene = JSON.parse(process.argv[2]);
export const { page: address, pictures, mesh } = scene;
const { chromium } = createRequire(`${scene.modules}/`)("playwright-core");

const TIMEOUT = 20_000;
export const WIDE = { width: 1280, height: 860 };
export const PHONE = { width: 360, height: 740 };

const context = await chromium.launchPersistentContext(scene.profile, {
  executablePath: "/usr/bin/chromium",
  headless: true,
  viewport: WIDE,
  colorScheme: "light",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
context.setDefaultTimeout(TIMEOUT);
export const page = context.pages()[0] ?? (await context.newPage());

// Errors of the browser, and requests to other hosts than Navarch. The CA is enabled, so its page does not respond with 404.
const complaints = [];
page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));
page.on("request", (request) => {
  if (!request.url().startsWith(address)) complaints.push(`asks ${request.url()}`);
});

/** Goes to a view and waits for its heading. */
export async function to(place, heading) {
  await page.goto(`${address}#/${place}`);
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
}

export async function picture(name) {
  const file = `${pictures}/${name}.png`;
  await page.screenshot({ path: file, animations: "disabled" });
  assert.ok(statSync(file).size > 5_000, `${name} is a picture of something`);
}

/** Nothing is wider than the window: wide parts scroll on their own. */
export async function fits(what) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= window, `${what} is ${wide} wide in a window of ${window}`);
}

/** Every text is legible: its contrast is at least 4.5:1. */
export async function legible(what) {
  const dim = await page.evaluate(async () => {
    // Colours change slowly where a view stays while the scheme changes.
    await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
    const parse = (text) => {
      const canvas = document.createElement("canvas");
      const paper = canvas.getContext("2d");
      paper.fillStyle = text;
      paper.fillRect(0, 0, 1, 1);
      return [...paper.getImageData(0, 0, 1, 1).data];
    };
    const over = ([r, g, b, a], ground) => [r, g, b].map((c, i) => (c * a + ground[i] * (255 - a)) / 255);
    const ground = (element) => {
      const own = parse(getComputedStyle(element).backgroundColor);
      if (own[3] === 255) return own.slice(0, 3);
      return over(own, element.parentElement ? ground(element.parentElement) : [255, 255, 255]);
    };
    const light = (colour) => {
      const [r, g, b] = colour.map((c) => ((c /= 255), c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const element of document.querySelectorAll("main *, header *, footer *")) {
      const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!text || !element.checkVisibility() || element.closest("svg, :disabled, .hidden, .skip")) continue;
      const [own, below] = [over(parse(getComputedStyle(element).color), ground(element)), ground(element)];
      const [a, b] = [light(own), light(below)].sort((a, b) => b - a);
      if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${element.textContent.trim()} (${((a + 0.05) / (b + 0.05)).toFixed(1)})`);
    }
    return found;
  });
  assert.deepEqual(dim, [], `${what}: these cannot be read well`);
}

/** A state, whose sign stands before the word. */
export const state = (word) => new RegExp(`^\\W*${word}$`);
export const row = (name) => page.locator("tbody tr", { has: page.getByRole("rowheader", { name }) });

/** Runs all checks, and prints the page if one fails. `last` runs when errors of the browser are expected. */
export async function driven(all, last = async () => {}) {
  try {
    await all();
    assert.deepEqual(complaints, [], "the browser complains");
    await last();
    console.log("all views work");
  } catch (error) {
    await page.screenshot({ path: `${pictures}/failed.png` }).catch(() => {});
    console.log(await page.locator("main").innerText().catch(() => ""));
    console.log(complaints.join("\n"));
    throw error;
  } finally {
    await context.close();
  }
}

/** Checks these views in light and dark, wide and narrow; `named` is the prefix of the pictures. */
export async function everywhere(views, named = "") {
  for (const colorScheme of ["light", "dark"]) {
    for (const size of [WIDE, PHONE]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize(size);
      for (const [place, heading] of views) {
        await to(place, heading);
        await page.waitForFunction(() => !document.querySelector("main")?.textContent.includes("Loading…"));
        const what = `${heading}, ${colorScheme}, ${size.width}`;
        await fits(what);
        await legible(what);
        if (colorScheme === "dark" || size === PHONE) {
          await picture(`${named}${place.replace("/", "-") || "overview"}-${colorScheme}-${size.width}`);
        }
      }
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(WIDE);
}
