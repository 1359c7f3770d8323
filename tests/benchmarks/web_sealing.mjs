// What it costs the TypeScript SDK to seal a record, beside the bare operations on X25519 that it cannot do without.
//
//     node tests/benchmarks/web_sealing.mjs
//
// Processor time of the process, in all its threads: what passes on the clock depends on what else runs. It reads /proc,
// so it needs Linux. Without Chromium (or CHROMIUM, its path) it measures Node alone.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundle, tool, WEB } from "./web_bundles.mjs";

const NAMES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM = process.env.CHROMIUM ?? NAMES.find((name) => existsSync(name));
const TURNS = 9;
const CALLS = 320;
const AT_ONCE = 32;
const BARE = "the ephemeral key and the Diffie-Hellman alone";
const SEALED = "a record of 512 bytes, sealed";

// `pair` is HPKE's work on the curve: nothing of it can be left out, or shared by two records.
const ENTRY = `
  import { encrypted } from "./src/sealed/hpke.js";
  const subtle = crypto.subtle;
  const algorithm = { name: "X25519" };
  const recipient = await subtle.generateKey(algorithm, true, ["deriveBits"]);
  const key = new Uint8Array(await subtle.exportKey("raw", recipient.publicKey));
  const [message, info] = [new Uint8Array(512), new Uint8Array(80)];
  async function pair() {
    const own = await subtle.generateKey(algorithm, false, ["deriveBits"]);
    const shared = { ...algorithm, public: recipient.publicKey };
    await subtle.exportKey("raw", own.publicKey);
    await subtle.deriveBits(shared, own.privateKey, 256);
  }
  export const calls = {
    ${JSON.stringify(BARE)}: pair,
    ${JSON.stringify(SEALED)}: () => encrypted(message, key, info),
  };
  export async function repeat(name, times, atOnce) {
    const from = performance.now();
    for (let i = 0; i < times; i += atOnce)
      await Promise.all(Array.from({ length: atOnce }, calls[name]));
    return performance.now() - from;
  }`;

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Return the processor time of a process so far, in all its threads, in us. */
function busy(pids) {
  let sum = 0;
  for (const pid of pids)
    for (const thread of readdirSync(`/proc/${pid}/task`))
      sum += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
  return sum / 1000;
}

/** Print a row for each call; `repeat` runs calls in the processes `pids` and returns the ms that passed. */
async function measured(where, pids, repeat) {
  const times = new Map();
  for (const name of [BARE, SEALED]) {
    await repeat(name, CALLS, AT_ONCE); // compiles
    for (const atOnce of [1, AT_ONCE])
      times.set(`${name}, ${atOnce} at once`, [name, atOnce, [], []]);
  }
  for (let turn = 0; turn < TURNS; turn++)
    for (const [name, atOnce, used, passed] of times.values()) {
      const before = busy(pids);
      passed.push(((await repeat(name, CALLS, atOnce)) * 1000) / CALLS);
      used.push((busy(pids) - before) / CALLS);
    }
  for (const [what, [, , used, passed]] of times) {
    const shown = [median(used), Math.min(...used), median(passed)].map((time) => time.toFixed(0));
    console.log(`| ${where}: ${what} | ${shown.join(" | ")} |`);
  }
}

/** Return the pids of the pages of the browsers that this process has started. */
function pages() {
  const parent = (pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  };
  return readdirSync("/proc").filter((pid) => {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer")) return false;
      let from = pid;
      while (from > 1 && from !== process.pid) from = parent(from);
      return from === process.pid;
    } catch {
      return false; // not a process, or one that has ended
    }
  });
}

const { entry, files } = bundle(ENTRY, WEB, false);
const script = files.get(entry);
console.log(`load average ${loadavg()[0].toFixed(1)}, Node ${process.versions.node}\n`);
console.log("| us a record | processor time, median | least | clock, median |\n|---|--:|--:|--:|");

const folder = mkdtempSync(join(tmpdir(), "hearsay-web-sealing-"));
try {
  writeFileSync(join(folder, "sealing.mjs"), script);
  const { repeat } = await import(pathToFileURL(join(folder, "sealing.mjs")));
  await measured("Node", [process.pid], repeat);
} finally {
  rmSync(folder, { recursive: true });
}

if (CHROMIUM) {
  const { chromium } = tool("playwright-core");
  const site = createServer((asked, answer) => {
    const isScript = asked.url === "/sealing.mjs";
    answer.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    answer.end(isScript ? script : "<!doctype html><title>Sealing</title>");
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${site.address().port}`);
  const repeat = (...given) =>
    page.evaluate(async (given) => (await import("/sealing.mjs")).repeat(...given), given);
  await measured("Chromium", pages(), repeat);
  await browser.close();
  site.close();
} else console.error("skipped: the measurements in Chromium, which is not there");
