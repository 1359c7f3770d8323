import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterEach, expect, test, vi } from "vitest";
import { Preview } from "../src/preview.js";
import type { Domain } from "../src/plans/kinds/index.js";
import { parsePlan } from "../src/plans/plan.js";
import { categorical, chain, Collector, krr, numeric, onebit, planOf, readyOf } from "./kit.js";
import { ScriptedCoins } from "./scripted.js";

const ANSWERS = { mood: "good", walked: 6.5 };

afterEach(() => vi.unstubAllGlobals());

/** Have every way out of this process, and every ledger, throw. */
function shut(): void {
  for (const name of ["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "indexedDB"]) {
    vi.stubGlobal(name, () => {
      throw new Error(`${name} was used`);
    });
  }
}

test("the same coins make the codes that a client sends", async () => {
  const collector = await Collector.start();
  const seed = Uint8Array.of(7);
  const client = await readyOf(collector.url, { level: "loose", coins: new ScriptedCoins(seed) });
  await client.record(ANSWERS);
  const [report] = (await client.outbox()).reports;
  const preview = await Preview.of(planOf(), { level: "loose" }, new ScriptedCoins(seed));
  const shown = await preview.record(ANSWERS);
  expect(shown.leaving.map(({ question, code }) => [question, [...code]])).toEqual(
    report!.columns.map(({ attribute, codes }) => [attribute, [...codes]]),
  );
});

test("every plan of the conformance vectors is played without a network and without a ledger", async () => {
  shut();
  const file = new URL("../../../protos/conformance/plans.json", import.meta.url);
  const { plans } = JSON.parse(readFileSync(file, "utf8")) as {
    plans: { plan: string; accepted: boolean }[];
  };
  for (const { plan } of plans.filter((each) => each.accepted)) {
    const data = Uint8Array.from(Buffer.from(plan, "hex"));
    const { levels } = await parsePlan(data);
    for (const level of [...levels.keys()].slice(-1)) {
      const preview = await Preview.of(data, { level });
      const answers: Record<string, unknown> = {};
      for (const [name, { domain }] of preview.plan.attributes) {
        answers[name] = answerOf(domain);
      }
      const { leaving, invalid } = await preview.record(answers);
      expect(invalid).toEqual([]);
      expect(leaving.length).toBeGreaterThan(0);
      const { mechanisms } = levels.get(level)!;
      for (const { question, code } of leaving) {
        expect(code.length).toBe(mechanisms.get(question)!.width);
      }
    }
  }
});

test("a memo is repeated from call to call, and another device draws its own", async () => {
  const plan = planOf({
    attributes: [categorical("mood", ["bad", "good"], { memo: 1 })],
    mechanisms: (_, epsilon) => [krr(2, epsilon)],
  });
  const preview = await Preview.of(plan, { level: "strict" });
  const codes = async (of: Preview): Promise<number> =>
    (await of.record({ mood: "bad" })).leaving[0]!.code[0]!;
  const first = await codes(preview);
  for (let i = 0; i < 50; i++) expect(await codes(preview)).toBe(first);
  const others = new Set<number>();
  for (let i = 0; i < 50; i++) others.add(await codes(preview.another()));
  expect(others.size).toBe(2);
});

test("a memo with fresh noise is not repeated bit by bit", async () => {
  const plan = planOf({
    attributes: [categorical("mood", ["bad", "good"], { memo: 2 })],
    levels: { strict: 1 },
    mechanisms: () => [chain(2, 1, 0.3, 0.34)],
  });
  const preview = await Preview.of(plan);
  const seen = new Set<number>();
  for (let i = 0; i < 60; i++) {
    seen.add((await preview.record({ mood: "bad" })).leaving[0]!.code[0]!);
  }
  expect(seen.size).toBe(2);
});

test("a survey of one record per person is another person's each time", async () => {
  const preview = await Preview.of(planOf({ period: "" }));
  for (let i = 0; i < 3; i++) expect((await preview.record(ANSWERS)).leaving.length).toBe(2);
});

test("of questions that are drawn the others are idle, and a panel is kept", async () => {
  const plan = planOf({
    attributes: [categorical("mood", ["bad", "good"]), numeric("walked", 0, 20)],
    chances: [2n ** 63n, 2n ** 63n],
    mechanisms: (_, epsilon) => [krr(2, epsilon), onebit(epsilon)],
    panels: 16,
  });
  const preview = await Preview.of(plan);
  const first = await preview.record({ mood: "bad", walked: 3 });
  expect(first.leaving.length).toBe(1);
  expect(Object.values(first.dropped)).toEqual(["idle"]);
  expect(first.panel).toBeGreaterThan(0);
  expect((await preview.record({ mood: "bad" })).panel).toBe(first.panel);
});

test("an answer outside the domain is named, and a random one takes its place", async () => {
  const preview = await Preview.of(planOf());
  const shown = await preview.record({ mood: "none of these", walked: 1 });
  expect(shown.invalid).toEqual(["mood"]);
  expect(shown.leaving.length).toBe(2);
  await expect(preview.record({ weight: 1 })).rejects.toThrow("no attribute");
  await expect(Preview.of(planOf(), { level: "none" })).rejects.toThrow("level must be one of");
});

test("the script of the server's pages is made of this code", () => {
  execFileSync(process.execPath, ["scripts/pages.js", "--check"], {
    cwd: new URL("..", import.meta.url),
  });
});

/** Return an answer of a domain, as a person gives it. */
function answerOf(domain: Domain): unknown {
  switch (domain.kind) {
    case "categorical":
      return domain.values[0];
    case "set":
      return [domain.values[0]];
    case "ratings":
      return { [domain.keys[0]!]: domain.low };
    case "strings":
      return domain.candidates[0] ?? [...domain.alphabet][0];
    default:
      return domain.low;
  }
}
