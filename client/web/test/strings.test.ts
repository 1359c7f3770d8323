/** Answers that are words. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Agreement } from "../src/index.js";
import { InvalidInput } from "../src/errors.js";
import { spelled } from "../src/plans/kinds/names.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireAttribute } from "../src/plans/protobuf.js";
import { Strings } from "../src/plans/kinds/words.js";
import { checkTexts } from "../src/plans/text.js";
import { Collector, krr, over64, planOf, readyOf, revisionOf } from "./kit.js";

const word = (more: object = {}): WireAttribute => ({
  name: "word",
  title: "",
  mechanism: "",
  memo: 0,
  strings: { alphabet: "abc'", longest: 6, candidates: [], ...more },
});

const prefixHashing = (alphabet = "abc'", lengths = [4n, 6n]) => ({
  name: "prefix_hashing",
  epsilon: 4,
  parameters: [
    { name: "alphabet", values: [...alphabet].map((letter) => BigInt(letter.codePointAt(0)!)) },
    { name: "buckets", values: [64n] },
    { name: "chances", values: lengths.map(() => (1n << 64n) / BigInt(lengths.length)) },
    { name: "lengths", values: lengths },
    { name: "resample", values: [over64(64 / (64 + Math.exp(4) - 1)) + (1n << 20n)] },
  ],
});

const draft = (attribute = word(), mechanism = prefixHashing()) => ({
  attributes: [attribute],
  levels: { only: 4 },
  mechanisms: () => [mechanism],
});

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("a word is recorded, and what is none is replaced and counted as invalid", async () => {
  const server = await Collector.start(planOf(draft()));
  const client = await readyOf(server.url, { epsilon: 4 });
  expect(await client.record({ word: " ABC'a " })).toEqual({
    taken: ["word"],
    dropped: {},
    invalid: [],
  });
  const [column] = (await client.outbox()).reports[0]!.columns;
  expect(column!.codes.length).toBe(6);
  expect([0, 1]).toContain(column!.codes[0]); // one of two groups
  for (const answer of ["", "abcd", "aaaaaaa", 7, ["a"]]) {
    const strict = await readyOf(server.url, { epsilon: 4, strict: true });
    await expect(strict.record({ word: answer })).rejects.toThrow(/^word must /);
  }
});

test("an answer of many spaces is read in time linear in its length", () => {
  const words = new Strings("abc", 6, []);
  const start = process.cpuUsage().user;
  expect(() => words.encode(`a${" ".repeat(300_000)}a`)).toThrow(InvalidInput);
  expect(process.cpuUsage().user - start).toBeLessThan(5e6); // microseconds; by the square, a minute
  expect(words.encode("   ab  ")).toBe("ab");
});

test("an agreement lists the alphabet, the most letters and the candidates", async () => {
  const plan = planOf(draft(word({ candidates: ["ab", "c"] })));
  const agreement: Agreement = {
    survey: "daily",
    revision: revisionOf(plan),
    period: "P1D",
    domains: { word: ["abc'", "6 at most", "ab", "c"] },
    levels: { only: 4 },
    defaultLevel: "only",
    plan: Buffer.from(plan).toString("base64"),
  };
  const server = await Collector.start(plan);
  const client = await readyOf(server.url, { agreement });
  expect((await client.record({ word: "abca" })).taken).toEqual(["word"]);
});

test.each<[string, Parameters<typeof planOf>[0], RegExp | undefined]>([
  ["words", draft(), undefined],
  ["words seen whole", draft(word(), prefixHashing("abc'", [6n, 6n])), undefined],
  ["other letters", draft(word(), prefixHashing("abcd")), /does not fit these words/],
  ["longer words", draft(word({ longest: 7 })), /does not fit these words/],
  ["values", draft(word(), krr(4, 4)), /does not fit strings answers/],
  ["a memo", draft({ ...word(), memo: 2 }), /a memo of words goes with rappor/],
  ["one letter", draft(word({ alphabet: "a" })), /2 to 31 letters/],
  ["a mark", draft(word({ alphabet: "ab\u0363" })), /seen by themselves/],
])("a plan of %s is judged", async (_, given, reason) => {
  const parsing = parsePlan(planOf(given));
  if (reason) await expect(parsing).rejects.toThrow(reason);
  else expect((await parsing).attributes.get("word")!.domain.kind).toBe("strings");
});

test("a heap of marks is refused in a text and as an answer before it is normalised", async () => {
  const heap = `a${"\u0301\u0327".repeat(1 << 18)}`; // which takes minutes
  await expect(checkTexts([["title", heap, "words"]])).rejects.toThrow(/30 combining marks/);
  expect(() => new Strings("abc", 5, []).encode(heap)).toThrow(InvalidInput);
  expect(spelled(heap)).toBe(heap);
  await checkTexts([["title", `\u00e1${"\u0301".repeat(30)}`, "words"]]);
});
