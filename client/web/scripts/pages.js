// `npm run pages`: bundle what the server's pages run of the SDK into one file of the Python package.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = `${root}../../server/hearsay_server/pages/static/sdk.js`;
buildSync({
  stdin: {
    contents: `
      export { Client, HearsayError } from "./src/index.js";
      export { Preview } from "./src/preview.js";`,
    resolveDir: root,
    loader: "ts",
  },
  outfile: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  banner: { js: "// Made of client/web by `make pages`; Apache-2.0." },
});
const made = readFileSync(out);
console.log(`sdk.js: ${made.length} bytes, ${gzipSync(made, { level: 9 }).length} gzipped`);
