import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { categorical, chain, clientOf, Clock, Collector, DAY, krr, MOODS, planOf } from "./kit.js";
import { live, OUTSIDE, PLAYS } from "./lives.js";

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test.each(PLAYS)(
  "two lives %s that differ in their answers send the same forms after the same calls",
  async (_, play) => {
    const [one, other] = [await live(1, 0, play), await live(1, 1, play)];
    expect(other).toEqual(one);
    expect(one.filter((each) => (each as unknown[])[1] === "Submit").length).toBeGreaterThan(2);
  },
  30_000,
);

test("memos that use up a cap are not seen in the other questions", async () => {
  const server = await Collector.start(
    planOf({
      attributes: [
        { ...categorical("mood", MOODS), memo: 2 },
        categorical("place", ["home", "work"]),
      ],
      levels: { only: 4 },
      mechanisms: () => [chain(3, 2, 0.2, 0.5), krr(2, 2)],
    }),
  );
  const drops: number[] = [];
  for (const life of [6, 9, 12]) {
    // One answers alike each day and pays for one memo, the other pays for a new one each day.
    const stories: unknown[][] = [];
    for (const others of [0, 1]) {
      const clock = new Clock();
      server.serverTime = clock.now / 1000;
      const client = clientOf(server.url, {
        clock: clock.read,
        caps: { life },
        vouched: () => true,
        level: "only",
        epsilon: 4,
        mayTellChanges: ["mood"],
      });
      expect(await client.waitReady(20_000)).toBe(true);
      const story: unknown[] = [];
      for (let day = 0; day < 5; day++) {
        const { taken, dropped } = await client.record({
          mood: MOODS[(others * day) % 3],
          place: "home",
        });
        story.push([taken, dropped]);
        if (Object.keys(dropped).length) drops.push(life);
        clock.now += DAY;
        server.serverTime = clock.now / 1000;
        await client.trustClock();
      }
      stories.push(story);
      await client.close(10);
    }
    expect(stories[1]).toEqual(stories[0]);
  }
  expect(new Set(drops)).toEqual(new Set([6, 9, 12]));
}, 30_000);

test("one bad answer changes nothing else in the record, whatever its methods do", async () => {
  const server = await Collector.start();
  for (const outside of OUTSIDE) {
    const client = clientOf(server.url);
    await client.waitReady();
    expect(await client.record({ mood: outside, walked: 3 })).toEqual({
      taken: ["mood", "walked"],
      dropped: {},
      invalid: ["mood"],
    });
  }
});
