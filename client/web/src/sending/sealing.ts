/** Seal waiting reports into batches, which then keep their id and bytes; for a shuffler each by itself. */

import type { Coins } from "../coins.js";
import { uniform } from "../core/draws.js";
import type { Plan } from "../plans/plan.js";
import { sealed } from "../recording/batches.js";
import { count } from "../recording/outbox.js";
import {
  areSame,
  type BatchRow,
  EMPTY,
  hex,
  ordered,
  Places,
  type QueueRow,
  type ReportRow,
} from "../recording/places.js";
import { get, list, put, remove, type Store, transact, type Work } from "../storage/store.js";

/** Batches that may wait for an answer before more are sealed: so reports that pile up while the server
 * is away go in large batches. Batches that the server put off do not count. */
const UNANSWERED = 8;

/** The same for sealed records, which are batches of one row each. */
const UNANSWERED_SEALED = 256;

/**
 * Turn waiting reports into batches: of one period, panel and properties each, of at most `rows` rows and
 * about `size` bytes, the rows in random order. Return whether there may be more.
 *
 * `kept` is the ledger's plan, of this `revision`: where another one has taken its place, nothing is done. What waits of
 * another revision is dropped, and counted as "refused": its own plan may have had it sealed, or split.
 *
 * They are the oldest reports or, in a survey with panels or properties, all of the kind of some that are drawn: few are
 * of one kind there, and the oldest alone would make small batches, which would leave in the order in which people
 * answered.
 *
 * In a strict transaction. The accounts of the people in them and their memos are written again, so that
 * all that was spent on a batch is on the disk with it, even if a relaxed transaction before is not.
 * `leaves` tells that a page may send them without looking here again: then they count as having left.
 */
export function* seal(
  places: Places,
  kept: Uint8Array | undefined,
  revision: string,
  rows: number,
  size: number,
  leaves: boolean,
  coins: Coins,
): Work<boolean> {
  const batches = yield* list<BatchRow>(places.batches);
  const free = UNANSWERED - batches.filter(([, batch]) => !batch.putOff).length;
  if (free <= 0) return false;
  let found = yield* list<ReportRow>(places.reports, rows);
  const [first] = found;
  const isGrouped = first?.[1].panel || first?.[1].properties;
  if (isGrouped) found = shuffled(yield* list<ReportRow>(places.reports), coins);
  const stale = found.filter(([, report]) => report.revision !== revision);
  const fresh = found.filter(([, report]) => report.revision === revision);
  const groups = grouped(fresh, rows, size).slice(0, free);
  if (!found.length || !(yield* isKept(places, kept))) return false;
  yield* dropStale(places, stale);
  const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
  let { next } = queue;
  const again = new Set<string>();
  for (const group of groups) {
    for (const [key, report] of group) {
      yield* remove(key);
      for (const each of [Places.person(report.person), ...report.memos]) again.add(each);
    }
    const reports = shuffled(group, coins).map(([, report]) => report);
    const { period, panel, properties } = reports[0]!;
    const id = hex(crypto.getRandomValues(new Uint8Array(16))); // never from the coins of a simulation
    yield* put(places.batches + ordered(next++), {
      ...sealed(
        places.name,
        { id, period, revision, ...(panel && { panel }), ...(properties && { properties }) },
        reports,
      ),
      at: Math.min(...reports.map((report) => report.at)),
      left: leaves,
      putOff: false,
    } satisfies BatchRow);
  }
  yield* put(places.queue, { ...queue, next });
  yield* written([...again]);
  return found.length === rows;
}

/** Tell whether the ledger's plan is this one, still. */
function* isKept(places: Places, plan: Uint8Array | undefined): Work<boolean> {
  const [kept]: (Uint8Array | undefined)[] = yield* get(places.plan);
  return kept !== undefined && plan !== undefined && areSame(kept, plan);
}

/** Drop waiting reports that are there still. */
function* dropStale(places: Places, stale: readonly [string, ReportRow][]): Work<void> {
  if (!stale.length) return;
  const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
  let { rows, size } = queue;
  for (const [key, report] of stale) {
    const [here] = yield* get(key);
    if (!here) continue;
    yield* remove(key);
    [rows, size] = [rows - 1, size - report.size];
    yield* count(places, { refused: 1 });
  }
  yield* put(places.queue, { ...queue, rows, size });
}

/** Write rows again, as they are. */
function* written(keys: readonly string[]): Work<void> {
  const values = yield* get(...keys);
  for (const [i, key] of keys.entries()) yield* put(key, values[i]);
}

/**
 * Turn waiting reports into sealed records: each a batch of its own, in random order.
 *
 * A record that is split between two servers was sealed when it was made, and keeps its id.
 * What waits of another revision is dropped as by `seal`, and nothing is done where another plan took the place of this one.
 * Records are sealed outside of the transaction that keeps them, which waits for no key; a report that was dropped
 * meanwhile stays dropped. `leaves` is as of `seal`.
 */
export async function sealSingly(
  store: Store,
  places: Places,
  plan: Plan,
  leaves: boolean,
  coins: Coins,
): Promise<void> {
  const records = plan.sealing && (await import("../sealed/records.js"));
  const found = await transact(store, "read", function* (): Work<[string, ReportRow][]> {
    const batches = yield* list<BatchRow>(places.batches);
    const free = UNANSWERED_SEALED - batches.filter(([, batch]) => !batch.putOff).length;
    return free > 0 ? yield* list<ReportRow>(places.reports, free) : [];
  });
  const stale = found.filter(([, report]) => report.revision !== plan.revision);
  const fresh = found.filter(([, report]) => report.revision === plan.revision);
  // All at once: Node spreads the calls of Web Crypto over its threads.
  const made = await Promise.all(
    shuffled(fresh, coins).map(async ([key, report]) => {
      const { period, revision, panel, properties, at } = report;
      // Never from the coins of a simulation.
      const id = report.id ?? hex(crypto.getRandomValues(new Uint8Array(16)));
      const head = {
        id,
        period,
        revision,
        ...(panel && { panel }),
        ...(properties && { properties }),
      };
      const batch = sealed(places.name, head, [report]);
      if (!records) return { key, report, batch: { ...batch, at } };
      const bytes = await records.seal(plan, period, { batch: batch.bytes });
      return { key, report, batch: { ...batch, bytes, at } };
    }),
  );
  if (!found.length) return;
  await transact(store, "strict", function* (): Work<void> {
    if (!(yield* isKept(places, plan.data))) return;
    yield* dropStale(places, stale);
    const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
    let { next } = queue;
    const again = new Set<string>();
    for (const { key, report, batch } of made) {
      const [here] = yield* get(key);
      if (!here) continue;
      yield* remove(key);
      yield* put(places.batches + ordered(next++), { ...batch, left: leaves, putOff: false });
      for (const each of [Places.person(report.person), ...report.memos]) again.add(each);
    }
    yield* put(places.queue, { ...queue, next });
    yield* written([...again]);
  });
}

function grouped(
  found: [string, ReportRow][],
  rows: number,
  size: number,
): [string, ReportRow][][] {
  const groups: [string, ReportRow][][] = [];
  const open = new Map<string, { group: [string, ReportRow][]; filled: number }>();
  for (const each of found) {
    const { revision, period, panel, properties, size: more } = each[1];
    const shared = JSON.stringify([revision, period, panel, properties]);
    let kind = open.get(shared);
    if (!kind || kind.group.length >= rows || kind.filled + more > size) {
      open.set(shared, (kind = { group: [], filled: 0 }));
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
