/** Small finite fields: arithmetic modulo a prime, or tables. */

import { isPrime } from "./hashing.js";

/** The largest order that is not a prime. */
const MAX_EXTENSION = 256;

/** The field of `order` elements, which are the integers 0..order-1. */
export interface Field {
  add(a: number, b: number): number;
  multiply(a: number, b: number): number;
  negative(a: number): number;
  /** Return 1 / a, for a > 0. */
  inverse(a: number): number;
}

/** Return the field of a prime below 2^16, or of a prime power up to 256; undefined where there is none. */
export function fieldOf(order: number): Field | undefined {
  if (isPrime(order)) return primeField(order);
  if (order < 2 || order > MAX_EXTENSION) return undefined;
  let prime = 2;
  while (order % prime) prime++;
  const degree = Math.round(Math.log(order) / Math.log(prime));
  return prime ** degree === order ? extension(prime, degree) : undefined;
}

function primeField(order: number): Field {
  const multiply = (a: number, b: number): number => (a * b) % order;
  return {
    add: (a, b) => (a + b) % order,
    multiply,
    negative: (a) => (order - a) % order,
    inverse(a) {
      let power = 1; // a^(order - 2), by Fermat
      for (let rest = order - 2; rest; rest = Math.floor(rest / 2)) {
        if (rest % 2) power = multiply(power, a);
        a = multiply(a, a);
      }
      return power;
    },
  };
}

/**
 * Return the field of prime^degree elements: an element's digits to the base `prime` are the coefficients of
 * its polynomial, modulo the primitive x^degree - r(x) whose r has the smallest number.
 */
function extension(prime: number, degree: number): Field {
  const order = prime ** degree;
  const last = order - 1;
  let powers: number[] = [];
  for (let r = 1; powers.length !== last; r++) powers = powersOfX(prime, degree, r);
  const logarithm = new Map(powers.map((power, i) => [power, i]));
  /** Combine two elements digit by digit. */
  const byDigits = (a: number, b: number, digit: (x: number, y: number) => number): number => {
    let result = 0;
    for (let place = 1; place < order; place *= prime) {
      result += digit(Math.floor(a / place) % prime, Math.floor(b / place) % prime) * place;
    }
    return result;
  };
  return {
    add: (a, b) => byDigits(a, b, (x, y) => (x + y) % prime),
    multiply: (a, b) => (a && b ? powers[(logarithm.get(a)! + logarithm.get(b)!) % last]! : 0),
    negative: (a) => byDigits(a, 0, (x) => (prime - x) % prime),
    inverse: (a) => powers[(last - logarithm.get(a)!) % last]!,
  };
}

/** Return 1, x, x^2, ... modulo x^degree = r(x), up to the first repetition of 1 or to 0. */
function powersOfX(prime: number, degree: number, r: number): number[] {
  const tail = Array.from({ length: degree }, (_, i) => Math.floor(r / prime ** i) % prime);
  const powers = [1];
  let element = tail.map((_, i) => Number(i === 0));
  for (;;) {
    const top = element[degree - 1]!;
    element = tail.map((t, i) => ((i ? element[i - 1]! : 0) + top * t) % prime);
    const number = element.reduce((sum, digit, i) => sum + digit * prime ** i, 0);
    if (number <= 1 || powers.length >= prime ** degree) return powers;
    powers.push(number);
  }
}
