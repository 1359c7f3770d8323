/** RAPPOR: words that are kept for life. */

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { SystemCoins } from "../src/coins.js";
import { InvalidInput } from "../src/errors.js";
import { blake2b } from "../src/mechanisms/blake2b.js";
import { build, type Mechanism } from "../src/mechanisms/index.js";
import { Memoizer } from "../src/plans/memo.js";

const [EIGHTH, QUARTER] = [1n << 61n, 1n << 62n];

const rappor = (bits = 12n, cohorts = 4n): Promise<Mechanism> =>
  build(
    "rappor",
    8,
    new Map([
      ["bits", [bits]],
      ["cohorts", [cohorts]],
      ["hashes", [2n]],
      ["instantaneous", [3n * QUARTER, QUARTER]],
      ["permanent", [7n * EIGHTH, EIGHTH]],
    ]),
  );

test("without salt and person the hash is BLAKE2b-512", () => {
  for (const length of [0, 1, 127, 128, 129, 255, 256, 257, 1000]) {
    const message = Uint8Array.from({ length }, (_, i) => (i * i) % 251);
    const words = blake2b(message, "", [0n, 0n]);
    expect(Buffer.from(words.buffer).toString("hex")).toBe(
      createHash("blake2b512").update(message).digest("hex"),
    );
  }
});

test("a device that no enrolment gives, a memo that is no code, and what is no text are refused", async () => {
  const memoizer = await Memoizer.of(await rappor());
  const coins = new SystemCoins();
  const device = memoizer.enroll(coins);
  expect(device.length).toBe(2);
  const memo = memoizer.memoize(device, "word", coins);
  expect(memo.length).toBe(4);
  expect([...memo.subarray(0, 2)]).toEqual([...device]);
  for (const other of [Uint8Array.of(4, 0), Uint8Array.of(0, 1), Uint8Array.of(0)])
    expect(() => memoizer.key(other, "word")).toThrow(InvalidInput);
  for (const value of [3, NaN, "\ud800"])
    expect(() => memoizer.memoize(device, value, coins)).toThrow(InvalidInput);
  for (const other of [Uint8Array.of(4, 0, 0, 0), Uint8Array.of(0, 0, 0, 16), memo.subarray(1)])
    expect(() => memoizer.report(other, coins)).toThrow(InvalidInput);
});

test("a memo is kept under the word's filter, of any number of bits, and not under the word", async () => {
  const memoizer = await Memoizer.of(await rappor(1n << 16n));
  const device = Uint8Array.of(3, 0);
  const salt = new Uint8Array(16);
  const keys = ["a", "b", "c"].map((word) => memoizer.key(device, word) as bigint);
  for (const key of keys) expect(key.toString(2).replaceAll("0", "").length).toBe(2);
  expect(new Set(keys.map((key) => memoizer.hidden(salt, key))).size).toBe(3);
  expect(memoizer.hidden(salt, memoizer.key(device, "a"))).toBe(memoizer.hidden(salt, keys[0]!));
});

test("each bit of a report is 1 as often as both rounds say", async () => {
  const mechanism = await rappor(8n, 1n);
  const memoizer = await Memoizer.of(mechanism);
  const filter = Number(memoizer.key(Uint8Array.of(0, 0), "word"));
  const n = 20_000;
  const ones = new Array<number>(8).fill(0);
  const coins = new SystemCoins();
  for (let i = 0; i < n; i++) {
    const code = mechanism.randomize("word", coins)[2]!;
    for (let bit = 0; bit < 8; bit++) ones[bit]! += (code >> bit) & 1;
  }
  ones.forEach((count, bit) => {
    const chance = (filter >> bit) & 1 ? 11 / 16 : 5 / 16;
    expect(Math.abs(count / n - chance)).toBeLessThan(6 * Math.sqrt((chance * (1 - chance)) / n));
  });
});
