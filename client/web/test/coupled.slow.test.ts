import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { live, PLAYS } from "./lives.js";

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

const SEEDS = Array.from({ length: 12 }, (_, seed) => seed + 2);

test.each(PLAYS.flatMap(([name, play]) => SEEDS.map((seed) => [name, seed, play] as const)))(
  "two lives %s that differ in their answers send the same forms in many more runs (%i)",
  async (_, seed, play) => {
    const [one, other] = [await live(seed, 0, play), await live(seed, 2, play)];
    expect(other).toEqual(one);
  },
  30_000,
);
