// Bundles of the TypeScript SDK and of other SDKs for browsers, made alike by esbuild.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

export const WEB = fileURLToPath(new URL("../../client/web/", import.meta.url));
export const tool = createRequire(join(WEB, "package.json"));
const esbuild = tool("esbuild");

const VERSIONS = {
  "@mozilla/glean": "5.0.10",
  "@opentelemetry/api": "1.10.0",
  "@opentelemetry/exporter-metrics-otlp-http": "0.301.0",
  "@opentelemetry/sdk-metrics": "3.1.0",
  "@sentry/browser": "11.12.0",
};

// Each does the least that an app does with the SDK: set it up, and record one thing.
const PEERS = {
  "Glean.js 5.0.10": `
    import Glean from "@mozilla/glean/web";
    import Counter from "@mozilla/glean/private/metrics/counter";
    import Ping from "@mozilla/glean/private/ping";
    const ping = new Ping({ name: "daily", includeClientId: true, sendIfEmpty: false });
    const clicks = new Counter({
      category: "page", name: "clicks", sendInPings: ["daily"], lifetime: "ping", disabled: false,
    });
    export function start() { Glean.initialize("an-app", true, { channel: "test" }); }
    export function record() { clicks.add(1); }
    export function send() { ping.submit(); }`,
  "Sentry browser 11.12.0, errors": `
    import { captureException, init } from "@sentry/browser";
    export function start(dsn) { init({ dsn }); }
    export function record() { captureException(new Error("one")); }`,
  "OpenTelemetry metrics 3.1.0 and OTLP over HTTP": `
    import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
    import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
    let counter;
    export function start(url) {
      const exporter = new OTLPMetricExporter({ url });
      const readers = [new PeriodicExportingMetricReader({ exporter })];
      counter = new MeterProvider({ readers }).getMeter("an-app").createCounter("clicks");
    }
    export function record() { counter.add(1); }`,
};

/** Install the peers into a folder of the system's for temporary files; return its path. */
function installed() {
  const folder = join(tmpdir(), "hearsay-web-peers");
  const wanted = JSON.stringify({ private: true, dependencies: VERSIONS });
  const done = join(folder, "node_modules", ".installed");
  if (!existsSync(done)) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "package.json"), wanted);
    const options = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"];
    execFileSync("npm", ["install", ...options], { cwd: folder, stdio: ["ignore", 2, 2] });
    writeFileSync(done, "");
  }
  return folder;
}

/**
 * Bundle a source for browsers, minified. Return its files: `entry` is the path of the first one, and
 * `core` are the paths that a page loads before it runs. The others are imported dynamically; `with`
 * returns the paths of the core and of one of these, by the end of its source's name.
 */
export function bundle(source, folder, splitting = true) {
  const made = esbuild.buildSync({
    stdin: { contents: source, resolveDir: folder, sourcefile: "entry.js", loader: "js" },
    outdir: "/",
    write: false,
    bundle: true,
    splitting,
    format: "esm",
    target: "es2022",
    minify: true,
    metafile: true,
    platform: "browser",
    legalComments: "none",
    absWorkingDir: folder,
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const outputs = Object.entries(made.metafile.outputs).map(([path, about]) => [
    `/${path.split("/").at(-1)}`,
    about,
  ]);
  const imports = new Map(outputs);
  const [entry] = outputs.find(([, about]) => about.entryPoint === "entry.js");
  const from = (...paths) => {
    const found = new Set();
    const follow = (path) => {
      if (found.has(path)) return;
      found.add(path);
      for (const each of imports.get(path).imports) {
        if (each.kind === "import-statement") follow(`/${each.path.split("/").at(-1)}`);
      }
    };
    paths.forEach(follow);
    return [...found];
  };
  const files = new Map(made.outputFiles.map((file) => [file.path, file.text]));
  const later = (source) =>
    outputs.filter(([, about]) => about.entryPoint?.endsWith(source)).map(([path]) => path);
  return { entry, core: from(entry), with: (source) => from(entry, ...later(source)), files };
}

/** Return the bytes of some files of a bundle: minified, and each compressed by gzip. */
export function size({ files }, paths) {
  const texts = paths.map((path) => files.get(path));
  return {
    minified: texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0),
    gzip: texts.reduce((sum, text) => sum + gzipSync(text, { level: 9 }).length, 0),
  };
}

export function peers() {
  const folder = installed();
  return Object.entries(PEERS).map(([name, source]) => [name, bundle(source, folder)]);
}

// An app that records into IndexedDB and sends over HTTP, by the whole of the SDK's public face.
export function ours() {
  return bundle('export * from "./src/index.js";', WEB);
}
