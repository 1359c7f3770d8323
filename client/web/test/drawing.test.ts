/** What the SDK draws comes from the platform's cryptographic generator, whatever is drawn. */

import { readdirSync, readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SystemCoins } from "../src/coins.js";
import { hex } from "../src/recording/places.js";
import { Collector, readyOf } from "./kit.js";

/** All that `crypto.getRandomValues` gave, in hex. */
const drawn: string[] = [];

beforeEach(() => {
  drawn.length = 0;
  const given = crypto.getRandomValues.bind(crypto);
  vi.spyOn(crypto, "getRandomValues").mockImplementation((array) => {
    given(array);
    drawn.push(hex(array as unknown as Uint8Array));
    return array;
  });
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("the coins are the bytes of crypto.getRandomValues, each once and in order", () => {
  const coins = new SystemCoins();
  const parts = [coins.bytes(1), coins.bytes(5000), new Uint8Array(7)];
  coins.fill(parts[2]!);
  const word = coins.uint32();
  parts.push(Uint8Array.of(word, word >>> 8, word >>> 16, word >>> 24));
  expect(drawn.join("").startsWith(parts.map(hex).join(""))).toBe(true);
  expect(drawn.map((block) => block.length / 2)).toEqual([4096, 4096]);
});

test("the ids of batches and of ledgers are drawn by themselves, of 16 bytes", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  await client.record({ mood: "good", walked: 3 });
  expect(await client.flush(5000)).toBe(true);
  const ids = drawn.filter((each) => each.length === 32);
  expect(ids).toContain(hex(server.batches[0]!.batch.id));
  expect(ids.length).toBeGreaterThanOrEqual(3); // and the ledger's id and salt
});

// Both are forbidden by name: a call that a test does not reach would go unnoticed.
const SOURCES = new URL("../src/", import.meta.url);
const PAGES = new URL("../../../server/hearsay_server/pages/static/", import.meta.url);
const EXAMPLES = new URL("../../../examples/web/", import.meta.url);

function* written(): Generator<[string, string]> {
  for (const folder of [SOURCES, PAGES, EXAMPLES]) {
    for (const name of readdirSync(folder, { recursive: true }) as string[]) {
      // The pages' sdk.js is made of the sources, with a package that draws names of elements.
      if (!/\.([jt]s|mjs|html)$/.test(name) || /^(sdk|vendor)\b/.test(name)) continue;
      yield [name, readFileSync(new URL(name, folder), "utf8")];
    }
  }
}

test("no source names Math.random, or a generator besides crypto.getRandomValues", () => {
  const other =
    /\bMath\s*(\.\s*random\b|\[)|\brandomUUID\b|\bnode:crypto\b|\{[^}]*\brandom\b[^}]*\}\s*=\s*Math\b/;
  const files = [...written()];
  expect(files.length).toBeGreaterThan(70);
  const lines = files.flatMap(([name, text]) => text.split("\n").map((line) => `${name}: ${line}`));
  expect(lines.filter((line) => other.test(line))).toEqual([
    // How long to wait until the next try, which tells nothing of anybody.
    "sending/sender.ts:     return Math.max(retryAfter, wait * (0.5 + Math.random() / 2));",
  ]);
});

test("no source calls a server but by the one fetch of sending/connect.ts", () => {
  const ways = /\bfetch\(|\bsendBeacon\b|\bXMLHttpRequest\b|\bWebSocket\b|\bEventSource\b/g;
  const found = [...written()].flatMap(([name, text]) =>
    [...text.matchAll(ways)]
      .filter(({ index }) => !/(\.|async )$/.test(text.slice(0, index)))
      .map(([way]) => `${name}: ${way}`),
  );
  expect(found).toEqual(["sending/connect.ts: fetch("]);
});
