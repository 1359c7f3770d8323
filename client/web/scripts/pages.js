// `npm run pages`: bundle what the server's web pages run in browsers into the Python package: parts of
// the SDK, and of Observable Plot, with the licences of what is in it and its hash in VENDOR.toml.
// With --check nothing is written: it fails where sdk.js is another one.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = `${root}../../server/hearsay_server/pages/static`;
const check = process.argv.includes("--check");

const inSdk = bundled(
  "sdk.js",
  `export { Client, HearsayError } from "./src/index.js";
   export { Preview } from "./src/preview.js";`,
  "Made of client/web by `make pages`; Apache-2.0. The parts of others: vendor/sdk.LICENSE.txt.",
);

if (check) process.exit();

writeFileSync(`${out}/vendor/sdk.LICENSE.txt`, licences(inSdk));

const version = JSON.parse(read("node_modules/@observablehq/plot/package.json")).version;
const packages = bundled(
  "vendor/plot.js",
  `export { areaY, axisX, axisY, dot, lineY, plot, rectY, ruleX, ruleY, text }
     from "@observablehq/plot";`,
  `Observable Plot ${version} and what it needs, bundled by \`make pages\`; see plot.LICENSE.txt.`,
);
writeFileSync(`${out}/vendor/plot.LICENSE.txt`, licences(packages));

const list = `${out}/vendor/VENDOR.toml`;
const hash = createHash("sha256")
  .update(readFileSync(`${out}/vendor/plot.js`))
  .digest("hex");
const [before, entry] = readFileSync(list, "utf8").split(/(?=\[\[files\]\]\nfile = "plot.js"\n)/);
const known = entry
  .replace(/^version = .*$/m, `version = "${version}"`)
  .replace(/^sha256 = .*$/m, `sha256 = "${hash}"`);
writeFileSync(list, before + known);

/** Bundle exports into one file; return the names of the packages of others that are in it. */
function bundled(file, contents, banner) {
  const made = buildSync({
    write: false,
    stdin: { contents, resolveDir: root, loader: "ts" },
    outfile: `${out}/${file}`,
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    metafile: true,
    banner: { js: `// ${banner}` },
  });
  const data = Buffer.from(made.outputFiles[0].contents);
  if (!check) writeFileSync(`${out}/${file}`, data);
  else if (!data.equals(readFileSync(`${out}/${file}`)))
    throw new Error(`${file} is not made of this code: make pages`);
  console.log(`${file}: ${data.length} bytes, ${gzipSync(data, { level: 9 }).length} gzipped`);
  const inputs = Object.keys(Object.values(made.metafile.outputs)[0].inputs);
  const names = inputs.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

/** Return the licences of packages, one after the other. */
function licences(packages) {
  const each = packages.map((name) => {
    const { version } = JSON.parse(read(`node_modules/${name}/package.json`));
    const file = ["LICENSE", "LICENSE.md"].find((file) =>
      existsSync(`${root}node_modules/${name}/${file}`),
    );
    return `${name} ${version}\n\n${read(`node_modules/${name}/${file}`).trim()}\n`;
  });
  return each.join(`\n${"-".repeat(80)}\n\n`);
}

function read(path) {
  return readFileSync(root + path, "utf8");
}
