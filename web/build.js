// Builds the page into the folder that is named, or out/: a document, a script, a style sheet and an icon, under fixed names. The same
// sources give the same bytes: nothing in them tells of the machine or the moment.

import { cpSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { build } from "esbuild";

const out = process.argv[2] ?? "out";
mkdirSync(out, { recursive: true });
cpSync("static", out, { recursive: true });
// The license of what is built in goes with it.
const preact = dirname(createRequire(import.meta.url).resolve("preact/package.json"));
const license = readFileSync(join(preact, "LICENSE"), "utf8").trim();
await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: `${out}/assets`,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  banner: { js: `/*! Preact\n${license}\n*/` },
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
