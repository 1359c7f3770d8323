/** What Skellam noise of many devices promises, exactly; Python's `ldp.two_servers.account` is the same. */

import {
  approximate,
  certainlyAtMost,
  compare,
  type Fraction,
  fraction,
  fromDouble,
} from "../core/exact.js";

/** Integer orders of the Renyi divergence. */
const ORDERS = [...Array.from({ length: 63 }, (_, i) => i + 2), 96, 128, 256, 512, 1024];

/** The largest exponent of e: no delta that a plan may have needs more. */
const MOST_EXPONENT = fraction(128n);

/**
 * Return rho such that the Renyi divergence of a sum is at most a rho at each order a >= 1, between any two records
 * whose L1 distance and squared L2 distance are at most these; `variance` is that of the honest devices' noise.
 *
 * Source: Agarwal, Kairouz and Liu, "The Skellam mechanism for differentially private federated learning", NeurIPS 2021.
 */
export function rhoOf(l1: bigint, squared: bigint, { n, d }: Fraction): Fraction {
  // squared / 2v + (squared + 3 l1) / 2v^2
  return fraction(squared * n * d + (squared + 3n * l1) * d * d, 2n * n * n);
}

/**
 * Tell whether rho certainly gives (epsilon, delta)-DP, for delta >= 1e-50.
 *
 * Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, proposition 12:
 * at an order a it does where (a - 1)^(a - 1) / (a^a delta) <= e^((a - 1) (epsilon - a rho)).
 */
export function keeps(rho: Fraction, epsilon: number, delta: number): boolean {
  const [allowed, chance] = [fromDouble(epsilon), fromDouble(delta)];
  const rate = approximate(rho);
  // The logarithm of how far the right side is above the left one, in doubles: which orders are worth an exact look.
  const gain = (a: number): number =>
    (a - 1) * (epsilon - a * rate - Math.log(a - 1)) + a * Math.log(a) + Math.log(delta);
  const likely = ORDERS.filter((a) => gain(a) > -1).sort((a, b) => gain(b) - gain(a));
  return likely.some((order) => {
    const a = BigInt(order);
    const left = allowed.n * rho.d - a * rho.n * allowed.d;
    if (left <= 0n) return false;
    const power = fraction((a - 1n) * left, allowed.d * rho.d);
    const ratio = fraction((a - 1n) ** (a - 1n) * chance.d, a ** a * chance.n);
    return certainlyAtMost(ratio, compare(power, MOST_EXPONENT) < 0 ? power : MOST_EXPONENT);
  });
}
