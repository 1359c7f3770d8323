/** The one-bit mean mechanism, and the window mechanisms: piecewise and square wave. */

import type { Coins } from "../coins.js";
import { coin, point, uniform } from "../core/draws.js";
import { type Fraction, fraction, ONE } from "../core/exact.js";
import {
  type Chance,
  flipRatio,
  HALF,
  type Integers,
  type Kind,
  littleEndian,
  type Parts,
  widthOf,
} from "./mechanism.js";

/** The most steps of the grid that numbers are rounded to. */
export const MAX_GRID = 2048;

/** The most codes of a mechanism of numbers: a tally counts every one. */
const MAX_CODES = 2 ** 16;

/**
 * Round a number in [-1, 1] at random to -1 or 1, then flip it with flip / 2^64.
 *
 * Source: Duchi, Jordan and Wainwright, "Minimax optimal procedures for locally private estimation", JASA
 * 113(521), 2018, for one dimension.
 */
export const onebit: Kind = {
  fields: ["flip"],
  make(given) {
    const flip = given.chance("flip", HALF);
    return {
      width: 1,
      ratio: flipRatio(flip),
      draw: (value, coins) => Uint8Array.of(point(value, 1, coins) ^ Number(coin(flip, coins))),
    };
  },
};

/**
 * Draw uniformly from a window that moves with the number, or from all codes.
 *
 * Sources: Wang, Xiao, Yang et al., "Collecting and analyzing multidimensional data with local differential
 * privacy", ICDE 2019, for the piecewise mechanism; Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li, "Estimating
 * numerical distributions under local differential privacy", SIGMOD 2020, for the square wave.
 */
export const windowed: Kind = {
  fields: ["grid", "window", "resample"],
  make(given): Parts {
    const { grid, codes, ratio, report } = readWindow(given);
    const width = widthOf(codes);
    return {
      width,
      ratio,
      draw: (value, coins) => littleEndian(report(point(value, grid, coins), coins), width),
    };
  },
};

/** What the window mechanisms and the hybrid share. */
export interface Window {
  readonly grid: number;
  readonly codes: number;
  readonly ratio: Fraction;
  report(point: number, coins: Coins): number;
}

/** Return the window mechanism of a plan's integers; throw `InvalidInput` where they are none. */
export function readWindow(given: Integers): Window {
  const grid = given.within("grid", 1, MAX_GRID);
  const window = given.within("window", 1, MAX_CODES - grid);
  const resample: Chance = given.chance("resample");
  const codes = grid + window;
  return {
    grid,
    codes,
    ratio: fraction(
      resample.t * BigInt(window) + (ONE - resample.t) * BigInt(codes),
      resample.t * BigInt(window),
    ),
    report: (at, coins) =>
      coin(resample, coins) ? uniform(codes, coins) : at + uniform(window, coins),
  };
}
