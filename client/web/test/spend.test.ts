import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { MemoryStore } from "../src/index.js";
import { compare, fromDouble, sum } from "../src/core/exact.js";
import { clientOf, Clock, Collector, DAY, MOODS, planOf, QUICK } from "./kit.js";

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("what left was spent, to the last bit, at most once a day and within every cap, whatever is recorded", async () => {
  const server = await Collector.start(planOf({ levels: { low: 0.1, mid: 0.7, high: 2.3 } }));
  const other = await Collector.start(planOf({ name: "other", levels: { low: 0.3 } }));
  for (let run = 0; run < 6; run++) {
    const [store, clock] = [new MemoryStore(), new Clock()];
    const life = [0.1, 0.25, 0.9, 3, 7, 20][run]!;
    const options = {
      store,
      clock: clock.read,
      caps: { life },
      delivery: { ...QUICK, batchAge: 60_000 },
    };
    const clients = ["low", "mid", "high"].map((level) =>
      clientOf(server.url, {
        ...options,
        levels: { mood: level },
        level: level === "high" ? "mid" : level,
        epsilon: 3,
      }),
    );
    clients.push(clientOf(other.url, { ...options, survey: "other" }));
    for (const client of clients) await client.waitReady();
    const before = [server.batches.length, other.batches.length];
    for (let day = 0; day < 8; day++) {
      for (let i = 0; i < 6; i++) {
        const client = clients[Math.floor(Math.random() * clients.length)]!;
        const answers: Record<string, unknown> = {};
        if (Math.random() < 0.7) answers.mood = Math.random() < 0.2 ? "none" : MOODS[i % 3];
        if (Math.random() < 0.7) answers.walked = i;
        await client.record(answers);
      }
      for (const client of clients) expect(await client.flush()).toBe(true);
      clock.now += DAY;
      server.serverTime = other.serverTime = clock.now / 1000;
      for (const client of clients) await client.trustClock();
    }
    const spent: number[] = [];
    const seen = new Set<string>();
    const days = new Map<string, number[]>();
    for (const [i, { batches }] of [server, other].entries()) {
      for (const { batch } of batches.slice(before[i])) {
        expect(batch.rows).toBeGreaterThan(0);
        for (const { attribute, level } of batch.columns) {
          const { plan } = clients[i * 3]!;
          const { epsilon } = plan.levels.get(level)!.mechanisms.get(attribute)!;
          const place = `${i} ${batch.period} ${attribute}`;
          expect(seen.has(place)).toBe(false);
          seen.add(place);
          spent.push(epsilon);
          const day = `${i} ${batch.period}`;
          days.set(day, [...(days.get(day) ?? []), epsilon]);
        }
      }
    }
    expect(compare(sum(spent), fromDouble(life))).toBeLessThanOrEqual(0);
    for (const [day, epsilons] of days) {
      const most = day.startsWith("0")
        ? Math.max(...clients.slice(0, 3).map((c) => c.recordEpsilon))
        : 0.3;
      expect(compare(sum(epsilons), fromDouble(most))).toBeLessThanOrEqual(0);
    }
    const told = await Promise.all([clients[0]!, clients[3]!].map((client) => client.spendings()));
    const life2 = told.flat().reduce((all, each) => all + each.life, 0);
    expect(life2).toBeCloseTo(
      spent.reduce((a, b) => a + b, 0),
      9,
    );
    expect(told.flat().reduce((all, each) => all + each.reports, 0)).toBe(spent.length);
  }
}, 30_000);
