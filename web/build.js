// Builds the page into the folder that is named, or out/: a document, a script, a style sheet and an icon, under fixed names. The same
// sources give the same bytes: nothing in them tells of the machine or the moment.

import { cpSync, mkdirSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2] ?? "out";
mkdirSync(out, { recursive: true });
cpSync("static", out, { recursive: true });
await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: `${out}/assets`,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
