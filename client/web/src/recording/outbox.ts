/**
 * The queue of reports: sealed into batches, kept until they are answered, then remembered.
 *
 * A batch is sealed before it leaves for the first time: its id and bytes are on the disk, and with
 * them the epsilon spent on it, so that every retry sends the same, whatever dies in between.
 */

import type { Coins } from "../coins.js";
import { uniform } from "../core/draws.js";
import { type Batch, compareBytes, encodeBatch } from "../plans/protobuf.js";
import { get, list, put, remove, type Work } from "../storage/store.js";
import {
  type BatchRow,
  type Code,
  EMPTY,
  hex,
  ordered,
  Places,
  type QueueRow,
  type ReportRow,
  unhex,
} from "./places.js";

/** Most batches, and most bytes of batches, that are remembered after they left. */
const KEPT = 100;
const KEPT_BYTES = 1 << 20;

/** Most ids kept of batches that the queue dropped after they may have left: the latest. */
const FORGETTABLE = 1000;

/** Most ids that one `Forget` may hold. */
const MOST_IDS = 256;

/** Batches that may wait for an answer before more are sealed: so reports that pile up while the server
 * is away go in large batches. Batches that the server put off do not count. */
const UNANSWERED = 8;

/** A batch that left the device, when (milliseconds since 1970), and what became of it. */
export interface Sent {
  readonly at: number;
  readonly became: string;
  readonly batch: Batch;
}

/**
 * The waiting reports and sent batches, exactly as the server sees them.
 *
 * `reports` are not in a batch yet, and each is shown as a batch of one row without an id; `batches`
 * are, and wait for an answer; `sent` are the last 100 that left, or 1 MiB of them.
 */
export interface Outbox {
  readonly reports: readonly Batch[];
  readonly batches: readonly Batch[];
  readonly sent: readonly Sent[];
}

/** The queue of a survey, as the sender looks at it. */
export interface Waiting {
  /** Reports that are not sealed (no more than one batch holds are counted), and their bytes. */
  readonly reports: number;
  readonly size: number;
  /** When the oldest report was made that is not sealed, and that is; Infinity: none. */
  readonly oldest: number;
  readonly oldestSealed: number;
  readonly batches: number;
  /** Whether anybody consents. */
  readonly consent: boolean;
  /** Whether the server is to be asked to forget batches. */
  readonly forgets: boolean;
}

/** Return the state of a survey's queue; of the reports, `most` are looked at. */
export function* waiting(places: Places, most: number): Work<Waiting> {
  const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
  const reports = yield* list<ReportRow>(places.reports, most);
  const batches = yield* list<BatchRow>(places.batches);
  const forgets = yield* list(places.forgets, 1);
  return {
    reports: reports.length,
    size: reports.reduce((size, [, report]) => size + report.size, 0),
    oldest: Math.min(...reports.map(([, report]) => report.at)),
    oldestSealed: Math.min(...batches.map(([, batch]) => batch.at)),
    batches: batches.length,
    consent: queue.people > 0,
    forgets: forgets.length > 0,
  };
}

/** Return the most bytes that a report takes in a batch. */
export function sizeOf(codes: readonly Code[]): number {
  // A character takes at most 3 bytes in UTF-8; the tags, lengths and presence bits less than 16.
  return codes.reduce(
    (size, c) => size + c.codes.length + 3 * (c.attribute.length + c.level.length) + 16,
    64,
  );
}

/** Queue a report, and drop the oldest while more than `limits` (reports, bytes) wait; return the queue
 * and how many reports were dropped. */
export function* add(
  places: Places,
  queue: QueueRow,
  report: ReportRow,
  limits: readonly [number, number],
): Work<{ queue: QueueRow; overflow: number }> {
  yield* put(places.reports + ordered(queue.next), report);
  let now = {
    ...queue,
    next: queue.next + 1,
    rows: queue.rows + 1,
    size: queue.size + report.size,
  };
  let overflow = 0;
  while (now.rows > limits[0] || now.size > limits[1]) {
    const { queue: less, rows } = yield* dropOldest(places, now, report.at);
    if (!rows) break;
    overflow += rows;
    now = less;
  }
  yield* put(places.queue, now);
  return { queue: now, overflow };
}

/** Drop a survey's oldest batch or, where there is none, report; a batch that may have left is kept
 * among the sent ones, and its id for the server to forget. */
function* dropOldest(
  places: Places,
  queue: QueueRow,
  at: number,
): Work<{ queue: QueueRow; rows: number }> {
  const [batch] = yield* list<BatchRow>(places.batches, 1);
  if (!batch) {
    const [report] = yield* list<ReportRow>(places.reports, 1);
    if (!report) return { queue, rows: 0 };
    yield* remove(report[0]);
    return { queue: less(queue, 1, report[1].size), rows: 1 };
  }
  const [key, row] = batch;
  yield* remove(key);
  let now = less(queue, row.rows.length, row.size);
  if (row.left) {
    now = yield* remember(places, now, at, "overflow", row);
    yield* put(`${places.gone}${row.period}/${row.id}`, 1);
    const gone = yield* list(places.gone);
    for (const [old] of gone.slice(0, -FORGETTABLE)) yield* remove(old);
  }
  return { queue: now, rows: row.rows.length };
}

/**
 * Turn waiting reports into batches: of one period and revision each, of at most `rows` rows and about
 * `size` bytes, the rows in random order. Return whether there may be more.
 *
 * In a strict transaction. The accounts of the people in them and their memos are written again, so that
 * all that was spent on a batch is on the disk with it, even if a relaxed transaction before is not.
 * `leaves` tells that a page may send them without looking here again: then they count as having left.
 */
export function* seal(
  places: Places,
  rows: number,
  size: number,
  leaves: boolean,
  coins: Coins,
): Work<boolean> {
  const batches = yield* list<BatchRow>(places.batches);
  const found = yield* list<ReportRow>(places.reports, rows);
  const free = UNANSWERED - batches.filter(([, batch]) => !batch.putOff).length;
  const groups = grouped(found, rows, size).slice(0, Math.max(0, free));
  if (!groups.length) return false;
  const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
  let { next } = queue;
  const again = new Set<string>();
  for (const group of groups) {
    for (const [key, report] of group) {
      yield* remove(key);
      for (const each of [Places.person(report.person), ...report.memos]) again.add(each);
    }
    const reports = shuffled(group, coins).map(([, report]) => report);
    const { period, revision } = reports[0]!;
    const id = hex(crypto.getRandomValues(new Uint8Array(16))); // never from the coins of a simulation
    yield* put(places.batches + ordered(next++), {
      ...sealed(places.name, { id, period, revision }, reports),
      at: Math.min(...reports.map((report) => report.at)),
      left: leaves,
      putOff: false,
    } satisfies BatchRow);
  }
  yield* put(places.queue, { ...queue, next });
  const keys = [...again];
  const values = yield* get(...keys);
  for (const [i, key] of keys.entries()) yield* put(key, values[i]);
  return found.length === rows;
}

function grouped(
  found: [string, ReportRow][],
  rows: number,
  size: number,
): [string, ReportRow][][] {
  const groups: [string, ReportRow][][] = [];
  const open = new Map<string, { group: [string, ReportRow][]; filled: number }>();
  for (const each of found) {
    const { revision, period, size: more } = each[1];
    let kind = open.get(revision + period);
    if (!kind || kind.group.length >= rows || kind.filled + more > size) {
      open.set(revision + period, (kind = { group: [], filled: 0 }));
      groups.push(kind.group);
    }
    kind.group.push(each);
    kind.filled += more;
  }
  return groups;
}

function shuffled<T>(values: readonly T[], coins: Coins): T[] {
  const found = [...values];
  for (let i = found.length - 1; i > 0; i--) {
    const j = uniform(i + 1, coins);
    [found[i], found[j]] = [found[j]!, found[i]!];
  }
  return found;
}

const utf8 = new TextEncoder();

/** What tells a batch from others. */
interface Head {
  readonly id: string;
  readonly period: string;
  readonly revision: string;
}

type Row = { readonly person: string; readonly codes: readonly Code[] };

function sealed(survey: string, head: Head, rows: readonly Row[]) {
  return {
    ...head,
    rows: rows.map(({ person, codes }) => ({ person, codes })),
    size: rows.reduce((size, { codes }) => size + sizeOf(codes), 0),
    bytes: encodeBatch(together(survey, head, rows)),
  };
}

/** Return a batch whose rows are these reports, in their order. */
export function together(survey: string, head: Head, rows: readonly Row[]): Batch {
  const columns = new Map<string, { code: Code; codes: (Uint8Array | undefined)[] }>();
  for (const [row, { codes }] of rows.entries()) {
    for (const code of codes) {
      const name = `${code.attribute}\0${code.level}`; // neither text has control characters
      let column = columns.get(name);
      if (!column) columns.set(name, (column = { code, codes: rows.map(() => undefined) }));
      column.codes[row] = code.codes;
    }
  }
  const named = [...columns].map(([name, column]) => [utf8.encode(name), column] as const);
  const inOrder = named.sort(([a], [b]) => compareBytes(a, b)).map(([, column]) => column);
  return {
    id: unhex(head.id),
    survey,
    revision: unhex(head.revision),
    period: head.period,
    rows: rows.length,
    columns: inOrder.map(({ code, codes }) => ({
      attribute: code.attribute,
      level: code.level,
      codes: joined(codes.filter((each) => each !== undefined)),
      present: present(codes),
    })),
  };
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Return which rows are there, one bit each, the first in the lowest bit; no bytes where all are. */
function present(rows: readonly unknown[]): Uint8Array {
  if (rows.every((row) => row !== undefined)) return new Uint8Array();
  const bits = new Uint8Array(Math.ceil(rows.length / 8));
  for (const [r, row] of rows.entries()) if (row !== undefined) bits[r >> 3]! |= 1 << (r & 7);
  return bits;
}

/** Note that a batch is about to leave; return it, or nothing where it does not wait any more. */
export function* depart(key: string, id: string): Work<BatchRow | undefined> {
  const [batch]: (BatchRow | undefined)[] = yield* get(key);
  if (batch?.id !== id) return undefined; // its person took back the consent, say
  if (!batch.left) yield* put(key, { ...batch, left: true });
  return batch;
}

/** Mark a batch as put off: the server may take it later, but not now. */
export function* putOff(key: string, id: string): Work<void> {
  const [batch]: (BatchRow | undefined)[] = yield* get(key);
  if (batch?.id === id && !batch.putOff) yield* put(key, { ...batch, putOff: true });
}

/** Remove a batch with a final answer from the queue, and count it; return whether it was there. */
export function* settle(
  places: Places,
  key: string,
  id: string,
  became: string,
  at: number,
): Work<boolean> {
  const [batch, queue = EMPTY] = yield* get(key, places.queue);
  if (batch?.id !== id) return false;
  yield* remove(key);
  const now = yield* remember(
    places,
    less(queue, batch.rows.length, batch.size),
    at,
    became,
    batch,
  );
  yield* put(places.queue, now);
  yield* count(places, { [became]: 1 });
  return true;
}

/** Keep a batch among the last that left. */
function* remember(
  places: Places,
  queue: QueueRow,
  at: number,
  became: string,
  row: BatchRow,
): Work<QueueRow> {
  const batch = together(places.name, row, row.rows);
  yield* put(places.sent + ordered(queue.next), { at, became, batch } satisfies Sent);
  const sent = [...queue.sent, row.size];
  let gone = 0;
  let bytes = sent.reduce((a, b) => a + b);
  while (sent.length - gone > KEPT || bytes > KEPT_BYTES) bytes -= sent[gone++]!;
  if (gone) for (const [key] of yield* list(places.sent, gone)) yield* remove(key);
  return { ...queue, next: queue.next + 1, sent: sent.slice(gone) };
}

function less(queue: QueueRow, rows: number, size: number): QueueRow {
  return { ...queue, rows: queue.rows - rows, size: queue.size - size };
}

/**
 * Drop one person's waiting reports, as "revoked"; return the queue and how many were dropped.
 *
 * A batch that may have left cannot be changed: the rows of others in it are dropped, too. It is kept
 * among the sent batches; with `forget`, its id is kept for the server to be asked. So are the ids of all
 * batches of the survey that the queue dropped after they may have left: the ledger no longer knows whose
 * rows they hold.
 */
export function* dropPerson(
  places: Places,
  queue: QueueRow,
  person: string,
  at: number,
  forget: boolean,
): Work<{ queue: QueueRow; dropped: number }> {
  let now = queue;
  for (const [key, report] of yield* list<ReportRow>(places.reports)) {
    if (report.person !== person) continue;
    yield* remove(key);
    now = less(now, 1, report.size);
  }
  for (const [key, batch] of yield* list<BatchRow>(places.batches)) {
    const others = batch.rows.filter((row) => row.person !== person);
    if (others.length === batch.rows.length) continue;
    if (others.length && !batch.left) {
      const kept = { ...batch, ...sealed(places.name, batch, others) }; // the server has not seen it
      yield* put(key, kept);
      now = less(now, batch.rows.length - others.length, batch.size - kept.size);
      continue;
    }
    yield* remove(key);
    now = less(now, batch.rows.length, batch.size);
    if (batch.left) {
      now = yield* remember(places, now, at, "revoked", batch);
      if (forget) yield* put(`${places.forgets}${batch.period}/${batch.id}`, 1);
    }
  }
  if (forget) {
    for (const [key] of yield* list(places.gone)) {
      yield* put(places.forgets + key.slice(places.gone.length), 1);
      yield* remove(key);
    }
  }
  const dropped = queue.rows - now.rows;
  if (dropped) yield* count(places, { revoked: dropped });
  return { queue: now, dropped };
}

/** Return the ids that the server is to forget, in lists of one period and at most 256 ids. */
export function* toForget(places: Places): Work<{ period: string; ids: string[] }[]> {
  const found: { period: string; ids: string[] }[] = [];
  for (const [key] of yield* list(places.forgets)) {
    const [period, id] = key.slice(places.forgets.length).split("/") as [string, string];
    const last = found.at(-1);
    if (last?.period === period && last.ids.length < MOST_IDS) last.ids.push(id);
    else found.push({ period, ids: [id] });
  }
  return found;
}

/** Remove ids from the list of batches that the server is to forget. */
export function* forgotten(places: Places, period: string, ids: readonly string[]): Work<void> {
  for (const id of ids) yield* remove(`${places.forgets}${period}/${id}`);
}

/** Return the waiting reports and sent batches, decoded. */
export function* view(places: Places): Work<Outbox> {
  const reports = yield* list<ReportRow>(places.reports);
  const batches = yield* list<BatchRow>(places.batches);
  const sent = yield* list<Sent>(places.sent);
  return {
    reports: reports.map(([, row]) => together(places.name, { ...row, id: "" }, [row])),
    batches: batches.map(([, row]) => together(places.name, row, row.rows)),
    sent: sent.map(([, each]) => each),
  };
}

/** Add to the counters of a survey. */
export function* count(places: Places, counts: Readonly<Record<string, number>>): Work<void> {
  const [before = {}] = yield* get(places.counters);
  const after = { ...before };
  for (const [name, number] of Object.entries(counts)) after[name] = (after[name] ?? 0) + number;
  yield* put(places.counters, after);
}
