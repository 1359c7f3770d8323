// Bundle the example page, and serve it with the headers that a page of its kind should have.
//
//     node examples/web/serve.mjs [--server http://127.0.0.1:8080] [--port 8000]

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = fileURLToPath(new URL(".", import.meta.url));
const web = fileURLToPath(new URL("../../client/web/", import.meta.url));
const { build } = createRequire(`${web}package.json`)("esbuild");

const { values } = parseArgs({
  options: {
    server: { type: "string", default: "http://127.0.0.1:8080" },
    port: { type: "string", default: "8000" },
  },
});

const made = await build({
  entryPoints: [`${here}app.ts`],
  outdir: "/",
  write: false,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  // An app installs the package, and needs no alias.
  alias: { "hearsay-ldp": `${web}dist/index.js` },
  define: { SERVER: JSON.stringify(values.server) },
});

const scripts = made.outputFiles.map((file) => [file.path, ["text/javascript", file.contents]]);
const files = new Map([
  ["/", ["text/html; charset=utf-8", readFileSync(`${here}index.html`)]],
  ["/style.css", ["text/css; charset=utf-8", readFileSync(`${here}style.css`)]],
  ...scripts,
]);

// The page may call the Hearsay server and nobody else, and nothing may be added to the page.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src data:",
  `connect-src ${values.server}`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const server = createServer((asked, answer) => {
  const [type, body] = files.get(new URL(asked.url ?? "/", "http://localhost").pathname) ?? [];
  answer.setHeader("content-security-policy", policy);
  answer.setHeader("referrer-policy", "no-referrer");
  answer.setHeader("x-content-type-options", "nosniff");
  answer.writeHead(body ? 200 : 404, { "content-type": type ?? "text/plain" });
  answer.end(body ?? "There is no such page.");
});
server.listen(Number(values.port), "127.0.0.1", () => {
  console.log(`the page is at http://127.0.0.1:${server.address().port}`);
});
