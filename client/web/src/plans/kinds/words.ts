/** Answers that are words: written in an alphabet, from no list. Errors about an answer tell its type only. */

import type { Coins } from "../../coins.js";
import { uniform } from "../../core/draws.js";
import { InvalidInput } from "../../errors.js";
import type { Mechanism } from "../../mechanisms/mechanism.js";
import { normal } from "../text.js";
import { check, type Encoded, Kind } from "./index.js";

const MOST_LETTERS = 31;
const LONGEST = 12;
const MOST_CANDIDATES = 4096;

/** The most cohorts of RAPPOR: a device draws one for life, and sends it in the clear. */
const MOST_COHORTS = 16;

/**
 * An answer that is a word: 1 to `longest` letters of `alphabet`.
 *
 * An answer is read in NFC, without spaces (U+0020) around it. A letter that the alphabet lacks counts as its lower
 * case, or else its upper case, where the alphabet has that. Throws `InvalidInput` for an alphabet, a `longest` or
 * candidates that docs/wire.md refuses.
 */
export class Strings extends Kind {
  readonly name = "words";
  readonly kind = "strings";
  /** Letters, or of `rappor` the text itself. */
  readonly inputs = ["word", "text"] as const;
  readonly letters: readonly string[];
  readonly #places: ReadonlyMap<string, number>;

  constructor(
    readonly alphabet: string,
    readonly longest: number,
    readonly candidates: readonly string[],
  ) {
    super([alphabet, `${longest} at most`, ...candidates]);
    const letters = [...alphabet];
    this.letters = letters;
    this.#places = new Map(letters.map((letter, place) => [letter, place]));
    check(
      letters.length >= 2 && letters.length <= MOST_LETTERS,
      `alphabet must have 2 to ${MOST_LETTERS} letters, got ${letters.length}`,
    );
    check(this.#places.size === letters.length, "the letters of alphabet must differ");
    check(
      !letters.some((letter) => /^[ \p{M}]$/u.test(letter)),
      "the letters of alphabet must be seen by themselves",
    );
    const pairs = letters.flatMap((one) => letters.map((other) => one + other)).join("");
    check(pairs.normalize("NFC") === pairs, "alphabet has letters that NFC joins");
    check(
      longest >= 1 && longest <= LONGEST,
      `longest must lie in 1..${LONGEST}, the most letters of a word, got ${longest}`,
    );
    check(
      candidates.length <= MOST_CANDIDATES,
      `there may be ${MOST_CANDIDATES} candidates, got ${candidates.length}`,
    );
    check(new Set(candidates).size === candidates.length, "candidates must differ");
    for (const word of candidates) {
      const own = [...word];
      const isWord = own.length >= 1 && own.length <= longest;
      check(
        isWord && own.every((letter) => this.#places.has(letter)),
        `candidates must be words of at most ${longest} letters of the alphabet`,
      );
    }
  }

  /** Return an answer as a word of the domain; throw `InvalidInput` where it is none. */
  encode(answer: unknown): string {
    if (typeof answer !== "string")
      throw new InvalidInput(`must be a word, got a ${typeof answer}`);
    const given = [...trimmed(normal(answer))];
    const word = given.map((each) => {
      const cases = [each, each.toLowerCase(), each.toUpperCase()];
      const letter = cases.find((one) => this.#places.has(one));
      if (letter === undefined)
        throw new InvalidInput(`must be written in ${this.alphabet}, got another character`);
      return letter;
    });
    check(
      word.length >= 1 && word.length <= this.longest,
      `must have 1 to ${this.longest} letters, got another number`,
    );
    return word.join("");
  }

  /** Return a word of the longest length, of letters drawn uniformly: where words are found none of so many gains. */
  anything(coins: Coins): string {
    return Array.from(
      { length: this.longest },
      () => this.letters[uniform(this.letters.length, coins)]!,
    ).join("");
  }

  /** Return a word as a mechanism takes it: the places of its letters in the alphabet, counted from 1. */
  override settled(word: Encoded): readonly number[] {
    return [...(word as string)].map((letter) => this.#places.get(letter)! + 1);
  }

  override checkMemo(): void {}

  override async check(mechanism: Mechanism, memo: number): Promise<void> {
    await super.check(mechanism, memo);
    const { name, integers } = mechanism;
    const isRappor = name === "rappor";
    check(
      isRappor === memo > 0,
      `a memo of words goes with rappor, and rappor with a memo: got ${name}`,
    );
    const letters = this.letters.map((letter) => letter.codePointAt(0));
    const one = (field: string): number => Number(integers.get(field)![0]);
    const isFor = isRappor
      ? this.candidates.length > 0 &&
        one("cohorts") <= MOST_COHORTS &&
        this.candidates.length < one("cohorts") * one("bits")
      : `${integers.get("alphabet")}` === `${letters}` &&
        Number(integers.get("lengths")!.at(-1)) === this.longest;
    check(isFor, `${name} does not fit these words`);
  }
}

/** Return a text without U+0020 at its ends, in time linear in its length. */
function trimmed(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && text[start] === " ") start += 1;
  while (end > start && text[end - 1] === " ") end -= 1;
  return text.slice(start, end);
}
