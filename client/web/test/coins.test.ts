import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { SystemCoins } from "../src/coins.js";
import { coin, distinct, pick, cumulated, threshold, toss, uniform } from "../src/core/draws.js";
import { sha256AtOnce } from "../src/mechanisms/sha256.js";
import { ScriptedCoins } from "./scripted.js";

// Statistics of the platform's own coins: each bound is missed by chance less than once in 10^9 runs.
const SIX_SIGMA = 6.2;

function expectShare(hits: number, n: number, p: number): void {
  expect(Math.abs(hits - n * p)).toBeLessThan(SIX_SIGMA * Math.sqrt(n * p * (1 - p)) + 1);
}

const coins = new SystemCoins();

test("every bit of the system's coins is fair", () => {
  const n = 100_000;
  const ones = new Array<number>(32).fill(0);
  for (let i = 0; i < n; i++) {
    const word = coins.uint32();
    for (let bit = 0; bit < 32; bit++) ones[bit]! += (word >>> bit) & 1;
  }
  for (const hits of ones) expectShare(hits, n, 0.5);
});

test("bytes that were handed out are not handed out again, across blocks and kinds of requests", () => {
  const seen = new Set<string>();
  for (let i = 0; i < 3000; i++) {
    const found = Buffer.from(coins.bytes(8 + (i % 5)))
      .toString("hex")
      .slice(0, 16);
    const word = coins.uint32().toString(16) + coins.uint32().toString(16) + "w";
    expect(seen.has(found) || seen.has(word)).toBe(false);
    seen.add(found).add(word);
  }
});

test("used bytes are erased from the block", () => {
  const fresh = new SystemCoins();
  const { block } = fresh as unknown as { block: Uint8Array };
  fresh.uint32();
  fresh.bytes(1001);
  expect(block.subarray(0, 1005).every((byte) => byte === 0)).toBe(true);
  expect(block.subarray(1005).some((byte) => byte !== 0)).toBe(true);
});

test("a request larger than a block is served whole", () => {
  const large = coins.bytes(100_000);
  const zeros = large.filter((byte) => byte === 0).length;
  expectShare(zeros, large.length, 1 / 256);
});

test("the stream is the same however it is asked for", () => {
  const whole = new ScriptedCoins(Uint8Array.of(7)).bytes(96);
  const parts = new ScriptedCoins(Uint8Array.of(7));
  const view = new DataView(whole.buffer);
  expect(parts.uint32()).toBe(view.getUint32(0, true));
  expect(parts.bytes(3)).toEqual(whole.slice(4, 7));
  expect(parts.uint32()).toBe(view.getUint32(7, true));
  expect(parts.bytes(20)).toEqual(whole.slice(11, 31));
  expect(parts.uint32()).toBe(view.getUint32(31, true)); // across the end of a block
  const rest = new Uint8Array(61);
  parts.fill(rest);
  expect(rest).toEqual(whole.slice(35));
});

test("coins fall below their threshold as often as it says", () => {
  const [n, t] = [200_000, (1n << 64n) / 10n];
  let hits = 0;
  for (let i = 0; i < n; i++) hits += Number(coin(threshold(t), coins));
  expectShare(hits, n, 0.1);
});

test("tossed coins are ones as often as their threshold says, in every place", () => {
  const n = 20_000;
  const ones = new Array<number>(24).fill(0);
  for (let i = 0; i < n; i++) {
    const row = toss(threshold((3n << 64n) / 10n), 3, coins);
    for (let bit = 0; bit < 24; bit++) ones[bit]! += (row[bit >> 3]! >> (bit & 7)) & 1;
  }
  for (const hits of ones) expectShare(hits, n, 0.3);
});

test.each([3, 1000, 2 ** 26 + 1])("uniform integers below %o are uniform", (m) => {
  const n = 60_000;
  let [low, outside] = [0, 0];
  for (let i = 0; i < n; i++) {
    const drawn = uniform(m, coins);
    if (!(drawn >= 0 && drawn < m && Number.isInteger(drawn))) outside++;
    low += Number(drawn < Math.floor(m / 3));
  }
  expect(outside).toBe(0);
  expectShare(low, n, Math.floor(m / 3) / m);
});

test("a subset has every member as often", () => {
  const n = 30_000;
  const hits = new Array<number>(7).fill(0);
  for (let i = 0; i < n; i++) for (const member of distinct(7, 3, coins)) hits[member]!++;
  for (const each of hits) expectShare(each, n, 3 / 7);
});

test("outcomes are picked as often as they weigh, and those of weight 0 never", () => {
  const n = 50_000;
  const quarter = 1n << 62n;
  const hits = [0, 0, 0, 0, 0];
  const weights = cumulated([0n, quarter, 0n, 3n * quarter, 0n]);
  for (let i = 0; i < n; i++) hits[pick(weights, coins)]!++;
  expectShare(hits[1]!, n, 0.25);
  expect(hits[1]! + hits[3]!).toBe(n);
});

test("the hash of messages is SHA-256, in one block and in more", () => {
  for (let length = 0; length <= 130; length++) {
    const message = new ScriptedCoins(Uint8Array.of(length)).bytes(length);
    expect(Buffer.from(sha256AtOnce(message)).toString("hex")).toBe(
      createHash("sha256").update(message).digest("hex"),
    );
  }
});
