import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { clientOf, Collector } from "./kit.js";
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
