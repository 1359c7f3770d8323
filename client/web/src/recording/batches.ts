/** Batches as values: reports as rows, and their bytes. */

import { type Batch, compareBytes, encodeBatch } from "../plans/protobuf.js";
import { type Code, unhex } from "./places.js";

/** Return the most bytes that a report takes in a batch. */
export function sizeOf(codes: readonly Code[], properties: readonly string[] = []): number {
  // A character takes at most 3 bytes in UTF-8; the tags, lengths and presence bits less than 18.
  return codes.reduce(
    (size, c) =>
      size + c.codes.length + 3 * (c.attribute.length + c.level.length + (c.map?.length ?? 0)) + 18,
    64 + properties.reduce((size, value) => size + 3 * value.length + 6, 0),
  );
}

const utf8 = new TextEncoder();

/** What tells a batch from others, and what its rows share. */
export interface Head {
  readonly id: string;
  readonly period: string;
  readonly revision: string;
  /** As of a `ReportRow`. */
  readonly panel?: number;
  readonly properties?: readonly string[];
}

/** One row of a batch: whose it is, and its codes. */
export type Row = { readonly person: string; readonly codes: readonly Code[] };

/** Return what the ledger keeps of a batch of these rows, in this order. */
export function sealed(survey: string, head: Head, rows: readonly Row[]) {
  return {
    ...head,
    rows: rows.map(({ person, codes }) => ({ person, codes })),
    size: rows.reduce((size, { codes }) => size + sizeOf(codes, head.properties), 0),
    bytes: encodeBatch(together(survey, head, rows)),
  };
}

/** Return a batch whose rows are these reports, in their order. */
export function together(survey: string, head: Head, rows: readonly Row[]): Batch {
  const columns = new Map<string, { code: Code; codes: (Uint8Array | undefined)[] }>();
  for (const [row, { codes }] of rows.entries()) {
    for (const code of codes) {
      // No text has control characters.
      const name = `${code.attribute}\0${code.level}\0${code.map ?? ""}`;
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
      map: code.map ?? "",
    })),
    panel: head.panel ?? 0,
    properties: [...(head.properties ?? [])],
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
