/** Where a ledger keeps what: the keys of its storage, and the rows behind them. */

import type { Caps } from "../choices.js";
import { InvalidInput } from "../errors.js";

/** The key of the ledger's own row. */
export const LEDGER = "ledger";

/** The form of all rows; a ledger of another one is left alone. */
export const VERSION = 1;

/** Which ledger this is, and since when. */
export interface LedgerRow {
  readonly version: number;
  /** Random, so that a ledger that was cleared and made anew is known as another one. */
  readonly id: string;
  /** Keys the hashes of people's names. */
  readonly salt: string;
  /** When it was made, in milliseconds; null where it is known that there was none before. */
  readonly created: number | null;
  /** Whether the server has confirmed the clock by which it was made. */
  readonly confirmed: boolean;
}

/** One person: what was spent in all surveys, and what the person chose. */
export interface PersonRow {
  /** As `Account.dump`. */
  readonly accounts: string;
  /** The surveys that the person consents to. */
  readonly consents: readonly string[];
  /** The person's own caps for life, over all surveys. */
  readonly life: Caps;
  /** The person's other caps, by survey. */
  readonly caps: readonly (readonly [string, Caps])[];
  /** Whether the app vouched that this person had never answered before. */
  readonly vouched: boolean;
}

export const NOBODY: PersonRow = { accounts: "", consents: [], life: {}, caps: [], vouched: false };

/** When the server was last asked, and what time it said. */
export interface TimeRow {
  /** When the plan was last asked for, in milliseconds. */
  readonly fetched: number;
  /** The server's latest time, in milliseconds; 0 where none was heard. */
  readonly serverTime: number;
}

/** The queue of a survey: what waits, in batches or not. */
export interface QueueRow {
  /** The number of the next report, batch or sent batch. */
  readonly next: number;
  readonly rows: number;
  readonly size: number;
  /** How many people consent. */
  readonly people: number;
  /** The bytes of the sent batches that are remembered, the oldest first. */
  readonly sent: readonly number[];
}

export const EMPTY: QueueRow = { next: 0, rows: 0, size: 0, people: 0, sent: [] };

/** The codes of one report for one question. */
export interface Code {
  readonly attribute: string;
  readonly level: string;
  /** The map that was chosen; absent where there was none. */
  readonly map?: string;
  readonly codes: Uint8Array;
}

/** One waiting report. */
export interface ReportRow {
  /** The id that a record was sealed with which is split between two servers; absent where a batch gives reports one. */
  readonly id?: string;
  readonly at: number;
  readonly person: string;
  readonly period: string;
  readonly revision: string;
  /** The person's panel; absent where the survey has none. */
  readonly panel?: number;
  /** The values of public properties; absent where the survey has none. */
  readonly properties?: readonly string[];
  readonly size: number;
  readonly codes: readonly Code[];
  /** The keys of the memos that were drawn for it. */
  readonly memos: readonly string[];
}

/** One sealed batch. Its id and bytes stay the same until the server has answered. */
export interface BatchRow {
  readonly id: string;
  readonly period: string;
  readonly revision: string;
  /** As of a `ReportRow`. */
  readonly panel?: number;
  readonly properties?: readonly string[];
  readonly at: number;
  readonly size: number;
  readonly bytes: Uint8Array;
  /** The reports in it, in its order. */
  readonly rows: readonly { readonly person: string; readonly codes: readonly Code[] }[];
  /** Whether the server may have it. */
  readonly left: boolean;
  /** Whether the server would not take it yet. */
  readonly putOff: boolean;
}

/** The keys of one survey's rows. */
export class Places {
  /** The bytes of the one plan that was accepted. */
  readonly plan: string;
  readonly time: string;
  readonly queue: string;
  readonly counters: string;
  readonly reports: string;
  readonly batches: string;
  readonly sent: string;
  /** Batches that the server is to forget. */
  readonly forgets: string;
  /** Batches that were dropped after they may have left: the server could be asked to forget them. */
  readonly gone: string;
  readonly #memos: string;

  constructor(readonly name: string) {
    let text: string;
    try {
      text = encodeURIComponent(name);
    } catch {
      throw new InvalidInput("the survey's name is no valid Unicode");
    }
    this.plan = `plan/${text}`;
    this.time = `time/${text}`;
    this.queue = `queue/${text}`;
    this.counters = `counters/${text}`;
    this.reports = `reports/${text}/`;
    this.batches = `batches/${text}/`;
    this.sent = `sent/${text}/`;
    this.forgets = `forgets/${text}/`;
    this.gone = `gone/${text}/`;
    this.#memos = `memos/${text}/`;
  }

  /** Return the key of a person's row. */
  static person(key: string): string {
    return `people/${key}`;
  }

  /** Return the beginning of the keys of a person's memos by one mechanism. */
  memos(person: string, attribute: string, mechanism: string): string {
    return `${this.#memos}${person}/${encodeURIComponent(attribute)}/${mechanism}/`;
  }
}

/** Return a number as text that sorts as the number does. */
export function ordered(number: number): string {
  return String(number).padStart(16, "0");
}

/** Return bytes in hexadecimal. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the bytes of hexadecimal digits. */
export function unhex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Tell whether two byte strings are the same. */
export function areSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
