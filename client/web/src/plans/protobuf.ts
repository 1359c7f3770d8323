/** Protobuf, as far as Hearsay's Collector needs it: a few messages, written in canonical bytes. */

import { InvalidInput } from "../errors.js";

/** How a field is written; "double?" and "message" are written whenever they are there. */
type Type = "string" | "bytes" | "bool" | "uint" | "double" | "double?" | "raw" | "uints" | "packed" | "message";

/** A field: its number, name and type, whether it is repeated, and the fields of a message. */
type Field = readonly [number: number, name: string, type: Type, many?: "many" | "map" | undefined, inner?: Schema];

/** The fields of a message, in the order of their numbers. */
type Schema = readonly Field[];

type Values = Record<string, unknown>;

const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// --- the messages of protos/hearsay/v1 ------------------------------------------------------------

export interface WireClass {
  values: string[];
  scale: number;
}

export interface WireCategorical {
  values: string[];
  sensitive: string[];
  classes: [name: string, value: WireClass][];
}

export interface WireNumeric {
  low: number;
  high: number;
  clamp: boolean;
  step: number;
}

export interface WireAttribute {
  name: string;
  title: string;
  /** The 8 bytes of a double, which devices do not use: kept to compare bytes. */
  weight?: Uint8Array;
  categorical?: WireCategorical;
  numeric?: WireNumeric;
  mechanism: string;
  cap?: number;
  memo: number;
}

export interface WireSurvey {
  name: string;
  title: string;
  period: string;
  levels: [name: string, epsilon: number][];
  attributes: WireAttribute[];
  budget: string;
  default_level: string;
  levels_differ_at_most?: number;
}

export interface WireMechanism {
  name: string;
  epsilon: number;
  parameters: { name: string; values: bigint[] }[];
}

export interface WireLevel {
  name: string;
  epsilon: number;
  mechanisms: WireMechanism[];
  chances: bigint[];
}

export interface WirePlan {
  survey?: WireSurvey;
  levels: WireLevel[];
}

/** The codes of one attribute at one level; see protos/hearsay/v1/collector.proto. */
export interface Column {
  attribute: string;
  level: string;
  codes: Uint8Array;
  present: Uint8Array;
}

/** Reports sent together; see protos/hearsay/v1/collector.proto. */
export interface Batch {
  id: Uint8Array;
  survey: string;
  revision: Uint8Array;
  period: string;
  rows: number;
  columns: Column[];
}

export interface PlanResponse {
  plan: Uint8Array;
  server_time: number;
}

export interface SubmitResponse {
  results: { status: number; reason: number; detail: string }[];
  server_time: number;
}

export interface ForgetRequest {
  survey: string;
  period: string;
  ids: Uint8Array[];
}

export interface ForgetResponse {
  results: number[];
  server_time: number;
}

const CLASS: Schema = [
  [1, "values", "string", "many"],
  [2, "scale", "double"],
];
const CATEGORICAL: Schema = [
  [1, "values", "string", "many"],
  [2, "sensitive", "string", "many"],
  [3, "classes", "message", "map", CLASS],
];
const NUMERIC: Schema = [
  [1, "low", "double"],
  [2, "high", "double"],
  [3, "clamp", "bool"],
  [4, "step", "double"],
];
const ATTRIBUTE: Schema = [
  [1, "name", "string"],
  [2, "title", "string"],
  [3, "weight", "raw"],
  [4, "categorical", "message", undefined, CATEGORICAL],
  [5, "numeric", "message", undefined, NUMERIC],
  [6, "mechanism", "string"],
  [7, "cap", "double?"],
  [8, "memo", "double"],
];
const SURVEY: Schema = [
  [1, "name", "string"],
  [2, "title", "string"],
  [3, "period", "string"],
  [4, "levels", "double", "map"],
  [5, "attributes", "message", "many", ATTRIBUTE],
  [6, "budget", "string"],
  [7, "default_level", "string"],
  [8, "levels_differ_at_most", "double?"],
];
const PARAMETER: Schema = [
  [1, "name", "string"],
  [2, "values", "packed"],
];
const MECHANISM: Schema = [
  [1, "name", "string"],
  [2, "epsilon", "double"],
  [3, "parameters", "message", "many", PARAMETER],
];
const LEVEL: Schema = [
  [1, "name", "string"],
  [2, "epsilon", "double"],
  [3, "mechanisms", "message", "many", MECHANISM],
  [4, "chances", "packed"],
];
const PLAN: Schema = [
  [1, "survey", "message", undefined, SURVEY],
  [2, "levels", "message", "many", LEVEL],
];
const COLUMN: Schema = [
  [1, "attribute", "string"],
  [2, "level", "string"],
  [3, "codes", "bytes"],
  [4, "present", "bytes"],
];
const BATCH: Schema = [
  [1, "id", "bytes"],
  [2, "survey", "string"],
  [3, "revision", "bytes"],
  [4, "period", "string"],
  [5, "rows", "uint"],
  [6, "columns", "message", "many", COLUMN],
];
const PLAN_RESPONSE: Schema = [
  [1, "plan", "bytes"],
  [2, "server_time", "uint"],
];
const RESULT: Schema = [
  [1, "status", "uint"],
  [2, "reason", "uint"],
  [3, "detail", "string"],
];
const SUBMIT_RESPONSE: Schema = [
  [1, "results", "message", "many", RESULT],
  [2, "server_time", "uint"],
];
const FORGET_REQUEST: Schema = [
  [1, "survey", "string"],
  [2, "period", "string"],
  [3, "ids", "bytes", "many"],
];
const FORGET_RESPONSE: Schema = [
  [1, "results", "uints"],
  [2, "server_time", "uint"],
];

/**
 * Return a plan's bytes as a message.
 *
 * Throws `InvalidInput` where they are no plan, have fields that this version does not know, or are not
 * the canonical serialisation of their plan: a server could mark a device by such differences.
 */
export function decodePlan(data: Uint8Array): WirePlan {
  const plan = decode(PLAN, data, true) as unknown as WirePlan;
  if (plan.survey?.attributes.some((each) => each.categorical && each.numeric)) {
    throw new InvalidInput("an attribute has two domains");
  }
  const canonical = encode(PLAN, plan as unknown as Values);
  if (canonical.length !== data.length || canonical.some((byte, i) => byte !== data[i])) {
    throw new InvalidInput(
      `these ${data.length} bytes are not the canonical serialisation of their plan: ` +
        "expected fields in the order of their numbers, maps sorted by key, nothing twice",
    );
  }
  return plan;
}

/** Return a plan as its canonical bytes. */
export function encodePlan(plan: WirePlan): Uint8Array {
  return encode(PLAN, plan as unknown as Values);
}

/** Return a batch as its canonical bytes. */
export function encodeBatch(batch: Batch): Uint8Array {
  return encode(BATCH, batch as unknown as Values);
}

/** Return a batch by its bytes; throw `InvalidInput` where they are none. */
export function decodeBatch(data: Uint8Array): Batch {
  return decode(BATCH, data) as unknown as Batch;
}

/** Return a GetPlanRequest as bytes. */
export function encodeGetPlanRequest(survey: string): Uint8Array {
  return encode([[1, "survey", "string"]], { survey });
}

/** Return a GetPlanResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeGetPlanResponse(data: Uint8Array): PlanResponse {
  return decode(PLAN_RESPONSE, data) as unknown as PlanResponse;
}

/** Return a SubmitRequest of batches that are encoded already, as bytes. */
export function encodeSubmitRequest(batches: readonly Uint8Array[]): Uint8Array {
  return encode([[1, "batches", "bytes", "many"]], { batches });
}

/** Return a SubmitResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeSubmitResponse(data: Uint8Array): SubmitResponse {
  return decode(SUBMIT_RESPONSE, data) as unknown as SubmitResponse;
}

/** Return a ForgetRequest as bytes. */
export function encodeForgetRequest(request: ForgetRequest): Uint8Array {
  return encode(FORGET_REQUEST, request as unknown as Values);
}

/** Return a ForgetResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeForgetResponse(data: Uint8Array): ForgetResponse {
  return decode(FORGET_RESPONSE, data) as unknown as ForgetResponse;
}

// --- writing --------------------------------------------------------------------------------------

const VARINT = 0;
const FIXED = 1;
const LENGTH = 2;

const wireType = (type: Type): number =>
  type === "bool" || type === "uint" ? VARINT : type === "double" || type === "double?" || type === "raw" ? FIXED : LENGTH;

function encode(schema: Schema, values: Values): Uint8Array {
  const out: number[] = [];
  write(schema, values, out);
  return Uint8Array.from(out);
}

function write(schema: Schema, values: Values, out: number[]): void {
  for (const field of schema) {
    const [number, name, type, many, inner] = field;
    const value = values[name];
    if (many === "many") {
      for (const each of value as unknown[]) writeField(field, each, out);
    } else if (many === "map") {
      const entries = (value as [string, unknown][]).map(([key, each]) => [utf8.encode(key), each] as const);
      for (const [key, each] of entries.sort(([a], [b]) => compareBytes(a, b))) {
        const entry: number[] = []; // both fields are written, also where they have their default
        writeField([1, "", "bytes"], key, entry);
        writeField([2, "", type, undefined, inner!], each, entry);
        writeField([number, "", "bytes"], entry, out);
      }
    } else if (value !== undefined && !isDefault(type, value)) {
      writeField(field, value, out);
    }
  }
}

/** Compare two arrays of bytes in lexical order, as the keys of maps are sorted. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    if (a[i] !== b[i]) return a[i]! - b[i]!;
  }
  return a.length - b.length;
}

function isDefault(type: Type, value: unknown): boolean {
  if (type === "double") return Object.is(value, 0); // -0 is written
  if (type === "double?" || type === "raw" || type === "message") return false;
  return !value || (value as { length?: number }).length === 0;
}

function writeField([number, , type, , inner]: Field, value: unknown, out: number[]): void {
  const wire = wireType(type);
  writeVarint(BigInt((number << 3) | wire), out);
  if (wire === VARINT) {
    writeVarint(BigInt(value as number | boolean), out);
    return;
  }
  const content = contentOf(type, inner, value);
  if (wire === LENGTH) writeVarint(BigInt(content.length), out);
  for (let i = 0; i < content.length; i++) out.push(content[i]!);
}

function contentOf(type: Type, inner: Schema | undefined, value: unknown): ArrayLike<number> {
  if (type === "string") return utf8.encode(value as string);
  if (type === "bytes" || type === "raw") return value as ArrayLike<number>;
  const out: number[] = [];
  if (type === "message") write(inner!, value as Values, out);
  else if (type === "packed" || type === "uints") {
    for (const each of value as bigint[]) writeVarint(BigInt(each), out);
  } else {
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setFloat64(0, value as number, true);
    return new Uint8Array(bytes.buffer);
  }
  return out;
}

function writeVarint(value: bigint, out: number[]): void {
  for (; value > 127n; value >>= 7n) out.push(Number(value & 127n) | 128);
  out.push(Number(value));
}

// --- reading --------------------------------------------------------------------------------------

/** Return the fields of a message; `strict` refuses fields that the schema lacks, and repetitions. */
function decode(schema: Schema, data: Uint8Array, strict = false): Values {
  const reader = new Reader(data);
  const values: Values = {};
  for (const [, name, type, many] of schema) {
    if (many || type === "packed" || type === "uints") values[name] = [];
    else if (type !== "message" && type !== "double?" && type !== "raw") values[name] = DEFAULTS[type];
  }
  const seen = new Set<number>();
  while (!reader.isDone) {
    const tag = Number(reader.varint());
    const field = schema.find(([number, , type, many]) => tag === ((number << 3) | (many === "map" ? LENGTH : wireType(type))));
    if (!field) {
      if (strict) throw new InvalidInput(`the plan has a field that this version does not know (tag ${tag})`);
      readUnknown(schema, values, tag, reader);
      continue;
    }
    const [number, name, type, many, inner] = field;
    if (strict && !many && seen.has(number)) throw new InvalidInput(`the plan has ${name} twice`);
    seen.add(number);
    const value = (many === "map" ? readEntry : readField)(type, inner, reader, strict);
    if (many) {
      const list = values[name] as unknown[];
      if (many === "map" && list.some((entry) => (entry as unknown[])[0] === (value as unknown[])[0])) {
        throw new InvalidInput(`${name} has a key twice`);
      }
      list.push(value);
    } else if (type === "packed" || type === "uints") values[name] = (values[name] as unknown[]).concat(value);
    else values[name] = value;
  }
  return values;
}

const DEFAULTS = { string: "", bytes: new Uint8Array(), bool: false, uint: 0, double: 0 };

/** Skip a field that the schema lacks; but take an enum of a repeated field that is not packed. */
function readUnknown(schema: Schema, values: Values, tag: number, reader: Reader): void {
  const wire = tag & 7;
  if (wire === VARINT) {
    const value = reader.varint();
    const unpacked = schema.find(([number, , type]) => type === "uints" && number === tag >> 3);
    if (unpacked) (values[unpacked[1]] as number[]).push(Number(value));
  } else if (wire === LENGTH) reader.take(Number(reader.varint()));
  else if (wire === FIXED || wire === 5) reader.take(wire === FIXED ? 8 : 4);
  else throw new InvalidInput(`no field of protobuf has the wire type ${wire}`);
}

function readEntry(type: Type, inner: Schema | undefined, reader: Reader, strict: boolean): unknown {
  const schema: Schema = [
    [1, "key", "string"],
    [2, "value", type, undefined, inner!],
  ];
  const { key, value } = decode(schema, reader.take(Number(reader.varint())), strict);
  return [key, value ?? decode(inner!, new Uint8Array())];
}

function readField(type: Type, inner: Schema | undefined, reader: Reader, strict: boolean): unknown {
  if (type === "bool") return reader.varint() !== 0n;
  if (type === "uint") return Number(BigInt.asIntN(64, reader.varint()));
  const content = reader.take(wireType(type) === FIXED ? 8 : Number(reader.varint()));
  if (type === "bytes" || type === "raw") return content.slice();
  if (type === "message") return decode(inner!, content, strict);
  if (type === "string") {
    try {
      return text.decode(content);
    } catch {
      throw new InvalidInput("a text is not valid UTF-8");
    }
  }
  if (type === "packed" || type === "uints") {
    const numbers = new Reader(content);
    const values: (bigint | number)[] = [];
    while (!numbers.isDone) values.push(type === "packed" ? numbers.varint() : Number(numbers.varint()));
    return values;
  }
  return new DataView(content.buffer, content.byteOffset).getFloat64(0, true);
}

class Reader {
  private at = 0;

  constructor(private readonly data: Uint8Array) {}

  get isDone(): boolean {
    return this.at === this.data.length;
  }

  take(count: number): Uint8Array {
    if (count > this.data.length - this.at) throw new InvalidInput("these bytes end within a field of protobuf");
    return this.data.subarray(this.at, (this.at += count));
  }

  varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1)[0]!;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    throw new InvalidInput("these bytes have a number of more than 64 bits");
  }
}
