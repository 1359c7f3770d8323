import { expect, test } from "vitest";
import {
  certainlyAtMost,
  compare,
  doubleAbove,
  expBelow,
  fraction,
  fromDouble,
  sum,
} from "../src/core/exact.js";
import { doubleBelow, logAbove } from "../src/core/logarithm.js";

const doubles = [
  0,
  1,
  -1,
  0.1,
  1 / 3,
  5e-324,
  2.2250738585072014e-308,
  1.7976931348623157e308,
  31.999999999999996,
  2 ** 60,
];

test.each(doubles)("the fraction of %o is the double, exactly", (x) => {
  const { n, d } = fromDouble(x);
  expect(d > 0n).toBe(true);
  // The division is exact, because d is a power of two and n has at most 53 bits beside twos.
  const shift = d.toString(2).length - 1;
  expect(Number(n) * 2 ** -Math.floor(shift / 2) * 2 ** -Math.ceil(shift / 2)).toBe(x);
});

test("sums of doubles are exact", () => {
  expect(compare(sum([0.1, 0.2]), fromDouble(0.1 + 0.2))).toBe(-1); // the sum of doubles rounds up
  expect(compare(sum([0.5, 0.25]), fromDouble(0.75))).toBe(0);
  expect(compare(sum([]), fraction(0n))).toBe(0);
});

test("roundings of a fraction to doubles are its neighbours", () => {
  const third = fraction(1n, 3n);
  expect(doubleBelow(third)).toBe(1 / 3);
  expect(doubleAbove(third)).toBe(0.33333333333333337);
  expect(doubleAbove(fraction(3n, 4n))).toBe(0.75);
  expect(doubleBelow(fraction(1n, 10n ** 400n))).toBe(0);
  expect(doubleAbove(fraction(1n, 10n ** 400n))).toBe(5e-324);
});

test("the bound of e^1 is the number of 60 digits before e rounded to 60 digits", () => {
  // e = 2.718281828459045235360287471352662497757247093699959574966967627..., rounded to ...697.
  const { n, d } = expBelow(fraction(1n));
  expect((n * 10n ** 59n) / d).toBe(271828182845904523536028747135266249775724709369995957496696n);
});

test("the logarithm of a ratio is a double whose exponential certifies it, and no more than two above", () => {
  for (const x of [1e-9, 0.1, 1, 2.5, 31.99]) {
    for (const ratio of [
      expBelow(fromDouble(x)),
      fraction(BigInt(Math.ceil(Math.exp(x) * 2 ** 60)), 2n ** 60n),
    ]) {
      const epsilon = logAbove(ratio);
      expect(certainlyAtMost(ratio, fromDouble(epsilon))).toBe(true);
      expect(certainlyAtMost(ratio, fromDouble(epsilon * (1 - 2 ** -51)))).toBe(false);
    }
  }
  expect(logAbove(fraction(7n, 7n))).toBe(0);
});
