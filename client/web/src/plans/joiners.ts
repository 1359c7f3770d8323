/**
 * Whether all of a text can be seen, by one table of Unicode 14, and where a text may have characters that show
 * nothing themselves, but change what is beside them.
 *
 * They are U+200C and U+200D where UAX #31 of Unicode allows them (contexts A1, A2 and B), U+200D in an emoji that is
 * made of several, and U+FE0F behind an emoji that can be shown as text too.
 */

import { InvalidInput } from "../errors.js";
import { HEAP, JOINERS } from "./text.js";
import { EMOJI, KINDS, PRESENTED, SEEN } from "./unicode14.js";

const ZWNJ = "\u200c";
const ZWJ = "\u200d";
const AS_EMOJI = "\ufe0f";

/** An emoji made of several, and what may be left out of it. */
const CHAIN =
  /[^\u200c\u200d\ufe0f](?:[\ufe0f\u{1f3fb}-\u{1f3ff}])?(?:\u200d[^\u200c\u200d\ufe0f](?:[\ufe0f\u{1f3fb}-\u{1f3ff}])?)+/gu;
const COLOURS = /[\ufe0f\u{1f3fb}-\u{1f3ff}]/gu;

const [LETTERS, LEFT, RIGHT, VOWELS] = ["ADLR", "DL", "DR", "UW"] as const;
const [MARKS, WITH_CLASS, TRANSPARENT] = ["MNWV", "MV", "MNWVT"] as const;

/** A kind of `KINDS`, and its script's number; the marks of all scripts have 0. */
type Kind = readonly [kind: string, script: number];

/** What has no part in this, as what is beyond the ends of a text. */
const NONE: Kind = ["-", 0];

/** Throw `InvalidInput` for a text with a character that cannot be seen, or that could be written in another way. */
export function checkSeen(place: string, text: string, kind: "name" | "words"): void {
  const unseen = tables().unseen.exec(text)?.[0];
  if (unseen !== undefined) throw refused(place, text, unseen);
  if (HEAP.test(text)) {
    throw new InvalidInput(
      `${place}: ${JSON.stringify(text.slice(0, 40))}... has more than 30 combining marks in a row`,
    );
  }
  // Of characters of Unicode 14 the normal form is the same by every later version.
  if (text.normalize("NFC") !== text) {
    throw new InvalidInput(`${place}: ${JSON.stringify(text)} is not in Unicode's normal form NFC`);
  }
  const joiner = kind === "name" ? text.match(JOINERS)?.[0] : misplaced(text);
  if (joiner !== undefined) throw refused(place, text, joiner);
}

function refused(place: string, text: string, character: string): InvalidInput {
  const code = character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
  return new InvalidInput(
    `${place}: ${JSON.stringify(text)} contains U+${code}: expected characters of Unicode 14 that can be seen`,
  );
}

/** Return the first joiner that is not allowed where it is, in time linear in the length of the text. */
function misplaced(text: string): string | undefined {
  if (text.search(JOINERS) < 0) return undefined;
  const { kinds: known, emoji, presented } = tables();
  const inEmoji = new Set<number>();
  const characters = [...text];
  for (const { 0: chain, index } of text.matchAll(CHAIN)) {
    if (!emoji.has(chain.replace(COLOURS, ""))) continue;
    for (let at = 0; at < chain.length; at++) if (chain[at] === ZWJ) inEmoji.add(index + at);
  }
  const kinds = [NONE, ...characters.map((each) => known.get(each) ?? NONE), NONE];
  let index = 0;
  for (const [at, character] of characters.entries()) {
    const allowed =
      character === AS_EMOJI
        ? isPresented(characters, at, presented)
        : character === ZWJ
          ? inEmoji.has(index) ||
            (isAfterVirama(kinds, at + 1) && !VOWELS.includes(kinds[at + 2]![0]))
          : character !== ZWNJ || isBetween(kinds, at + 1);
    if (!allowed) return character;
    index += character.length;
  }
  return undefined;
}

/** Tell whether U+FE0F is behind an emoji that may have it: behind a digit only in a keycap. */
function isPresented(
  characters: readonly string[],
  at: number,
  presented: ReadonlySet<string>,
): boolean {
  const before = characters[at - 1] ?? "";
  return /^[#*0-9]$/.test(before) ? characters[at + 1] === "\u20e3" : presented.has(before);
}

/** Tell whether U+200C parts letters of one script that would join (A1), or comes behind a virama and before a
 * letter (A2). */
function isBetween(kinds: readonly Kind[], at: number): boolean {
  const [before, script] = kinds[beyond(kinds, at, -1, TRANSPARENT)]!;
  const [after, other] = kinds[beyond(kinds, at, 1, TRANSPARENT)]!;
  if (LEFT.includes(before) && RIGHT.includes(after) && script === other) return true;
  const [letter, own] = kinds[beyond(kinds, at, 1, WITH_CLASS)]!;
  return LETTERS.includes(letter) && isAfterVirama(kinds, at, own);
}

/** Tell whether there is a letter of the script, any by default, and its virama before a place. */
function isAfterVirama(kinds: readonly Kind[], at: number, script?: number): boolean {
  const [letter, own] = kinds[beyond(kinds, at, -1, MARKS)]!;
  const behind = kinds.slice(beyond(kinds, at, -1, WITH_CLASS) + 1, at);
  const viramas = behind.filter((each) => each[0] === "V" && each[1] === own);
  return LETTERS.includes(letter) && viramas.length > 0 && (script ?? own) === own;
}

/** Return the first place beside `at` whose kind is none of those to pass over. */
function beyond(kinds: readonly Kind[], at: number, step: 1 | -1, passed: string): number {
  do at += step;
  while (passed.includes(kinds[at]![0]));
  return at;
}

interface Tables {
  /** A character that no text may have, wherever it is. */
  readonly unseen: RegExp;
  readonly presented: ReadonlySet<string>;
  /** Emoji made of several, without U+FE0F and colours of skin. */
  readonly emoji: ReadonlySet<string>;
  readonly kinds: ReadonlyMap<string, Kind>;
}

let made: Tables | undefined;

function tables(): Tables {
  return (made ??= { unseen: unseen(), presented: presented(), emoji: emoji(), kinds: kinds() });
}

function unseen(): RegExp {
  const escaped = (code: number): string => `\\u{${code.toString(16)}}`;
  const seen = ranges(SEEN).map(([first, last]) => `${escaped(first)}-${escaped(last)}`);
  return new RegExp(`[^${seen.join("")}\u200c\u200d\ufe0f]`, "u");
}

function presented(): Set<string> {
  const found = new Set<string>();
  for (const [first, last] of ranges(PRESENTED)) {
    for (let code = first; code <= last; code++) found.add(String.fromCodePoint(code));
  }
  return found;
}

function emoji(): Set<string> {
  const lines = EMOJI.split("\n").map((line) => line.split(" "));
  const each = lines.flatMap(([firsts, ...others]) =>
    [...firsts!].flatMap((first) => others.map((rest) => `${first}~${rest}`)),
  );
  return new Set(each.map((text) => text.replaceAll("~", ZWJ)));
}

function kinds(): Map<string, Kind> {
  const found = new Map<string, Kind>();
  for (const [script, table] of KINDS.split("|").entries()) {
    let code = 0;
    for (const [, gap, kind, length] of table.matchAll(/([0-9a-z]*)([A-Z])([0-9a-z]*)/g)) {
      code += parseInt(gap || "0", 36);
      for (const end = code + parseInt(length || "1", 36); code < end; code++) {
        found.set(String.fromCodePoint(code), [kind!, script]);
      }
    }
  }
  return found;
}

/** Return the ranges of code points of a table, the first and the last of each. */
function ranges(table: string): [number, number][] {
  const lengths = table.split(" ").map((each) => parseInt(each, 36));
  const found: [number, number][] = [];
  let end = 0;
  for (let i = 0; i < lengths.length; i += 2) {
    const first = end + lengths[i]!;
    end = first + lengths[i + 1]!;
    found.push([first, end - 1]);
  }
  return found;
}
