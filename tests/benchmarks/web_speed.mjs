// What the TypeScript SDK costs a page and a Node process, beside other SDKs for browsers.
//
//     node tests/benchmarks/web_speed.mjs
//
// It needs Chromium (or CHROMIUM, its path), and the project installed in .venv (or TEST_PYTHON).

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { bundle, peers, tool, WEB } from "./web_bundles.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PYTHON = process.env.TEST_PYTHON ?? join(ROOT, ".venv/bin/python");
const NAMES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM = process.env.CHROMIUM ?? NAMES.find((name) => existsSync(name));

const values = JSON.stringify(Array.from({ length: 1024 }, (_, i) => `v${i}`));
const numeric = "[attributes.numeric]\nlow = 0\nhigh = 1\n";
const SURVEYS = {
  // An app's record: two attributes.
  daily: `period = "P1D"\ndefault_level = "one"\n[levels]\none = 2.0
    [[attributes]]\nname = "mood"\nmechanism = "krr"
    [attributes.categorical]\nvalues = ["good", "so so", "bad"]
    [[attributes]]\nname = "walked"\nmechanism = "onebit"\n${numeric}`,
  // One report of 1,024 values by each mechanism.
  wide: `period = "P1D"\ndefault_level = "one"\n[levels]\none = 2.0
    [[attributes]]\nname = "krr"\nmechanism = "krr"\n[attributes.categorical]\nvalues = ${values}
    [[attributes]]\nname = "oue"\nmechanism = "oue"\n[attributes.categorical]\nvalues = ${values}`,
};

/** Return the agreements on the surveys, as `hearsay codegen` writes them. */
async function agreements(folder) {
  const packages = [ROOT, join(ROOT, "client/python"), join(ROOT, "server")].join(":");
  const env = { ...process.env, PYTHONPATH: packages };
  const found = {};
  for (const [name, rest] of Object.entries(SURVEYS)) {
    writeFileSync(join(folder, `${name}.toml`), `name = "${name}"\n${rest}`);
    const given = ["codegen", join(folder, `${name}.toml`), "--typescript"];
    const source = execFileSync(PYTHON, ["-m", "hearsay_server", ...given], { env });
    const { code } = tool("esbuild").transformSync(source, { loader: "ts", format: "esm" });
    writeFileSync(join(folder, `${name}.mjs`), code);
    found[name] = (await import(pathToFileURL(join(folder, `${name}.mjs`)))).AGREEMENT;
  }
  return found;
}

/** What both Node and the page run. It is sent to the page as text, so it refers to nothing outside. */
const MEASURES = `
  const median = (times) => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)];
  const p99 = (times) => times.toSorted((a, b) => a - b)[Math.floor(times.length * 0.99)];

  /** The median time of a call in us, of runs of 200 calls. */
  function each(call) {
    const runs = [];
    for (let run = 0; run < 60; run++) {
      const from = performance.now();
      for (let i = 0; i < 200; i++) call(i);
      runs.push(((performance.now() - from) * 1000) / 200);
    }
    return median(runs.slice(20)); // without those that the compiler was still busy with
  }

  /** Reports by k-RR and OUE, in us. */
  async function reports(sdk, wide) {
    const plan = await sdk.parsePlan(Uint8Array.from(atob(wide.plan), (c) => c.charCodeAt(0)));
    const coins = new sdk.SystemCoins();
    const found = {};
    for (const [name, mechanism] of plan.levels.get("one").mechanisms) {
      found[name] = each((i) => mechanism.randomize(i, coins));
    }
    return found;
  }

  /** Constructors and records with a store, in us. The server is one that nobody reaches. */
  async function records(sdk, daily, makeStore, people) {
    const options = { url: "https://hearsay.invalid", agreement: daily, vouched: () => true };
    const delivery = { batchAge: 3600e3, firstWait: 3600e3 };
    const made = [];
    for (let i = 0; i < 101; i++) {
      const from = performance.now();
      const client = new sdk.Client({ ...options, store: makeStore(), disabled: false });
      made.push((performance.now() - from) * 1000);
      await client.close(0);
    }
    const client = new sdk.Client({ ...options, store: makeStore(), delivery });
    const persons = [];
    for (let i = 0; i < people; i++) {
      persons.push(client.person("person " + i));
      await persons[i].grant();
    }
    await persons[0].waitReady(5000);
    const times = [];
    let taken = 0;
    for (const [i, person] of persons.entries()) {
      if (i === 100) await globalThis.begin?.();
      const from = performance.now();
      taken += (await person.record({ mood: "good", walked: 0.5 })).taken.length;
      times.push((performance.now() - from) * 1000);
    }
    const main = await globalThis.end?.();
    if (taken !== 2 * people) throw new Error("only " + taken + " were taken");
    await client.close(0);
    return {
      constructor: median(made),
      cold: made[0],
      record: median(times),
      p99: p99(times),
      main: main === undefined ? undefined : main / (people - 100),
    };
  }
`;

const ENTRY = `export * from "./src/index.js";
  export { parsePlan } from "./src/plans/plan.js";
  export { SystemCoins } from "./src/coins.js";`;

const { median } = new Function(`${MEASURES}; return { median };`)();

/** Write a bundle into a folder; return the URL of its entry. */
function written(folder, { entry, files }) {
  for (const [path, text] of files) writeFileSync(join(folder, `.${path}`), text);
  return pathToFileURL(join(folder, `.${entry}`)).href;
}

function inNode(folder, sdk, { daily, wide }) {
  const run = join(folder, "node.mjs");
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  writeFileSync(
    run,
    `console.warn = () => undefined;
    const from = performance.now();
    const sdk = await import(${JSON.stringify(sdk)});
    const imported = performance.now() - from;
    const daily = ${JSON.stringify(daily)};
    const client = new sdk.Client({ url: "https://hearsay.invalid", agreement: daily, consent: true,
      store: new sdk.MemoryStore(), vouched: () => true });
    await client.waitReady(5000);
    const { taken } = await client.record({ mood: "good", walked: 0.5 });
    if (taken.length !== 2) throw new Error("nothing was taken");
    const first = performance.now() - from;
    await client.close(0);
    ${MEASURES}
    const full = process.argv[2] === "full";
    console.log(JSON.stringify({ imported, first, ...(full ? {
      ...(await records(sdk, daily, () => new sdk.MemoryStore(), 3000)),
      ...(await reports(sdk, ${JSON.stringify(wide)})) } : {}) }));
    process.exit(0);`,
  );
  const once = (...given) => JSON.parse(execFileSync(process.execPath, [run, ...given]));
  const starts = Array.from({ length: 11 }, () => once());
  return {
    ...once("full"),
    imported: median(starts.map((each) => each.imported)),
    first: median(starts.map((each) => each.first)),
  };
}

async function inChromium({ daily, wide }) {
  const { chromium } = tool("playwright-core");
  const sdk = bundle(ENTRY, WEB);
  const whole = bundle(ENTRY, WEB, false);
  const others = peers().map(([name, { files }]) => [name, [...files.values()].join("\n")]);
  const site = createServer((asked, answer) => {
    // Isolated pages have timers of 5 us, others of 100.
    answer.setHeader("cross-origin-opener-policy", "same-origin");
    answer.setHeader("cross-origin-embedder-policy", "require-corp");
    const script = sdk.files.get(asked.url);
    answer.setHeader("content-type", script ? "text/javascript" : "text/html");
    answer.end(script ?? "<!doctype html><title>Measured</title>");
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${site.address().port}`;
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  /** Open the page in a new profile and use it. */
  const using = async (use) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(origin);
    try {
      return await use(page, context);
    } finally {
      await context.close();
    }
  };
  const found = {};
  found.memory = await using((page) =>
    page.evaluate(
      `(async () => { ${MEASURES} console.warn = () => undefined;
        const sdk = await import("${sdk.entry}");
        const { daily, wide } = ${JSON.stringify({ daily, wide })};
        return { ...(await records(sdk, daily, () => new sdk.MemoryStore(), 2000)),
          ...(await reports(sdk, wide)) }; })()`,
    ),
  );
  found.indexedDb = await using(async (page, context) => {
    const session = await context.newCDPSession(page);
    // Its processor time, not the time that passes: other processes do not count.
    await session.send("Performance.enable", { timeDomain: "threadTicks" });
    let began = 0;
    const busy = async () => {
      const { metrics } = await session.send("Performance.getMetrics");
      return metrics.find((each) => each.name === "TaskDuration").value * 1e6;
    };
    await page.exposeFunction("begin", async () => {
      began = await busy();
    });
    await page.exposeFunction("end", async () => (await busy()) - began);
    return page.evaluate(
      `(async () => { ${MEASURES} console.warn = () => undefined;
        const sdk = await import("${sdk.entry}");
        return records(sdk, ${JSON.stringify(daily)}, () => new sdk.IndexedDbStore(), 1100); })()`,
    );
  });
  // Imports from memory, set-up and the first record, in a new profile each; the SDKs take turns.
  const starts = new Map([["Hearsay", []], ...others.map(([name]) => [name, []])]);
  for (let turn = 0; turn < 11; turn++) {
    for (const [name, code] of [["Hearsay", whole.files.get(whole.entry)], ...others]) {
      starts.get(name).push(
        await using((page) =>
          page.evaluate(
            async ([name, code, daily, origin]) => {
              console.warn = () => undefined;
              const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
              const from = performance.now();
              const sdk = await import(url);
              const imported = performance.now() - from;
              if (name === "Hearsay") {
                const client = new sdk.Client({
                  url: origin,
                  agreement: daily,
                  consent: true,
                  vouched: () => true,
                });
                await client.waitReady(5000);
                const { taken } = await client.record({ mood: "good", walked: 0.5 });
                if (taken.length !== 2) throw new Error("nothing was taken");
              } else {
                sdk.start(name.startsWith("Sentry") ? origin.replace("//", "//a@") + "/1" : origin);
                sdk.record();
              }
              return { imported, first: performance.now() - from };
            },
            [name, code, daily, origin],
          ),
        ),
      );
    }
  }
  found.starts = [...starts].map(([name, runs]) => ({
    name,
    imported: median(runs.map((run) => run.imported)),
    first: median(runs.map((run) => run.first)),
  }));
  await browser.close();
  site.close();
  return found;
}

const folder = mkdtempSync(join(tmpdir(), "hearsay-web-speed-"));
try {
  const agreed = await agreements(folder);
  const node = inNode(folder, written(folder, bundle(ENTRY, WEB)), agreed);
  const us = (time) => (time === undefined ? "" : time.toPrecision(3));
  const ms = (time) => time.toFixed(1);
  console.log(`load average ${loadavg()[0].toFixed(1)}, Node ${process.versions.node}\n`);
  const page = CHROMIUM ? await inChromium(agreed) : undefined;
  if (!page) console.error("skipped: the measurements in Chromium, which is not there");
  const rows = [["Node, in memory", node]];
  if (page)
    rows.push(["Chromium, in memory", page.memory], ["Chromium, IndexedDB", page.indexedDb]);
  console.log("| us | constructor, median | the first |  `record`, median | p99 | main thread |");
  console.log("|---|--:|--:|--:|--:|--:|");
  for (const [name, { constructor: made, cold, record, p99, main }] of rows) {
    console.log(`| ${name} | ${[made, cold, record, p99, main].map(us).join(" | ")} |`);
  }
  console.log("\n| one report, us | k-RR, 1,024 values | OUE, 1,024 values |\n|---|--:|--:|");
  for (const [name, { krr, oue }] of rows.slice(0, 2)) {
    console.log(`| ${name.split(",")[0]} | ${us(krr)} | ${us(oue)} |`);
  }
  console.log("\n| ms, medians of 11 | import | until the first record |\n|---|--:|--:|");
  console.log(`| Hearsay, Node, in memory | ${ms(node.imported)} | ${ms(node.first)} |`);
  for (const { name, imported, first } of page?.starts ?? []) {
    console.log(`| ${name}, Chromium | ${ms(imported)} | ${ms(first)} |`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
