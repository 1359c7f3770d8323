/**
 * The queue of reports: sealed into batches, kept until they are answered, then remembered.
 *
 * A batch is sealed before it leaves for the first time: its id and bytes are on the disk, and with
 * them the epsilon spent on it, so that every retry sends the same, whatever dies in between.
 */

import type { Batch } from "../plans/protobuf.js";
import { get, list, put, remove, type Work } from "../storage/store.js";
import { sealed, together } from "./batches.js";
import {
  type BatchRow,
  EMPTY,
  ordered,
  type Places,
  type QueueRow,
  type ReportRow,
} from "./places.js";

/** Most batches, and most bytes of batches, that are remembered after they left. */
const KEPT = 100;
const KEPT_BYTES = 1 << 20;

/** Most ids kept of batches that the queue dropped after they may have left: the latest. */
const FORGETTABLE = 1000;

/** Most ids that one `Forget` may hold. */
const MOST_IDS = 256;

/** A batch that left the device, when (milliseconds since 1970), and what became of it. */
export interface Sent {
  readonly at: number;
  readonly became: string;
  readonly batch: Batch;
}

/**
 * The waiting reports and sent batches, exactly as the server sees them.
 *
 * `reports` are not in a batch yet, and each is shown as a batch of one row, without an id unless it is split between
 * two servers; `batches`
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
    yield* keepGone(places, row);
  }
  return { queue: now, rows: row.rows.length };
}

/** Keep the id of a batch that was dropped after it may have left, for the server to forget. */
function* keepGone(places: Places, { period, id }: BatchRow): Work<void> {
  yield* put(`${places.gone}${period}/${id}`, 1);
  const gone = yield* list(places.gone);
  for (const [old] of gone.slice(0, -FORGETTABLE)) yield* remove(old);
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

/** Drop all that waits of a survey, counted as `became`, and its requests to forget. */
export function* dropAll(places: Places, became: string): Work<void> {
  const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
  const reports = yield* list(places.reports);
  const batches = yield* list(places.batches);
  const ids = [...(yield* list(places.forgets)), ...(yield* list(places.gone))];
  for (const [key] of [...reports, ...batches, ...ids]) yield* remove(key);
  yield* put(places.queue, { ...queue, rows: 0, size: 0 });
  yield* count(places, { [became]: reports.length + batches.length });
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
 * among the sent batches, and its id for the server to forget. With `forget` the server is asked to forget
 * all such batches of the survey, also those that were dropped before: the ledger no longer knows whose rows
 * they hold.
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
      else yield* keepGone(places, batch);
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
    reports: reports.map(([, row]) => together(places.name, { ...row, id: row.id ?? "" }, [row])),
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
