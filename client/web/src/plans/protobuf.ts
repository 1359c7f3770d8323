/** Protobuf, as far as Hearsay's Collector needs it: a few messages, written in canonical bytes. */

import { InvalidInput } from "../errors.js";

const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

type Values = Record<string, unknown>;

// --- the messages of protos/hearsay/v1 ------------------------------------------------------------

export interface WireClass {
  values: string[];
  scale: number;
}

export interface WireCategorical {
  values: string[];
  sensitive: string[];
  classes: [name: string, value: WireClass][];
  maps: [name: string, value: { sensitive: string[] }][];
}

export interface WireNumeric {
  low: number;
  high: number;
  clamp: boolean;
  step: number;
  bins: number;
  sensitive: { low: number; high: number }[];
  resolution: { upto: number; within: number }[];
  cap: number;
  edges: number[];
}

/** The fields of an attribute that say what its answers can be: it has one of them. */
export const FIELDS = ["categorical", "numeric", "set", "ratings", "strings"] as const;

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
  set?: { values: string[]; at_most: number; clamp: boolean };
  ratings?: { keys: string[]; low: number; high: number; at_most: number; clamp: boolean };
  strings?: { alphabet: string; longest: number; candidates: string[] };
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
  views: { attributes: string[] }[];
  panels: number;
  properties: { name: string; title: string; values: string[] }[];
  sealing?: WireSealing;
  two_servers?: WireTwoServers;
}

/** How records are split between two servers; `variance` in units of 1/1024. */
export interface WireTwoServers {
  least: number;
  colluding: number;
  delta: number;
  scale: number;
  bits: number;
  variance: number;
  leader_key: Uint8Array;
  helper_key: Uint8Array;
  helper: string;
}

/** How records are sealed; the keys' `since` are in seconds since 1970. */
export interface WireSealing {
  least: number;
  size: number;
  keys: { public: Uint8Array; since: number }[];
  rotate_days: number;
  key_count: number;
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
  mapped: WireMechanism[];
}

export interface WirePlan {
  survey?: WireSurvey;
  levels: WireLevel[];
}

/** The codes of one question at one level and map; see protos/hearsay/v1/collector.proto. */
export interface Column {
  attribute: string;
  level: string;
  codes: Uint8Array;
  present: Uint8Array;
  /** The map that was chosen; "" where there was none. */
  map: string;
}

/** Reports sent together; see protos/hearsay/v1/collector.proto. */
export interface Batch {
  id: Uint8Array;
  survey: string;
  revision: Uint8Array;
  period: string;
  rows: number;
  columns: Column[];
  /** The panel of all rows; 0 where the survey has none. */
  panel: number;
  /** The value of each of the survey's properties, in its order; "" where the app gave none. */
  properties: string[];
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

/** What is inside of a sealed record, as bytes: a batch of one row, or a request to forget one. */
export type SealedContent = { batch: Uint8Array } | { forget: { period: string; id: Uint8Array } };

/** One record, sealed to the collector; see protos/hearsay/v1/shuffler.proto. */
export interface SealedRecord {
  survey: string;
  revision: Uint8Array;
  period: string;
  /** The place of the key among those of the plan. */
  key: number;
  sealed: Uint8Array;
}

/**
 * The fields of each message, numbered from 1 in this order or as "@" says, as name:type.
 *
 * A small type is s (string), b (bytes), t (bool), u (integer of up to 53 bits), d (double), o (optional double),
 * r (8 bytes that are a double), f (packed doubles), e (packed enums) or p (packed 64-bit integers); a capital names a message. "*"
 * says repeated, "%" a map from strings.
 */
const MESSAGES: Readonly<Record<string, string>> = {
  Class: "values:s* scale:d",
  Map: "sensitive:s*",
  Categorical: "values:s* sensitive:s* classes:Class% maps:Map%",
  Numeric:
    "low:d high:d clamp:t step:d bins:u sensitive:Region* resolution:Resolution* cap:d edges:f",
  Region: "low:d high:d",
  Resolution: "upto:d within:d",
  Attribute:
    "name:s title:s weight:r categorical:Categorical numeric:Numeric mechanism:s cap:o memo:d set:Set ratings:Ratings strings:Strings",
  Set: "values:s* at_most:u clamp:t",
  Ratings: "keys:s* low:d high:d at_most:u clamp:t",
  Strings: "alphabet:s longest:u candidates:s*",
  Survey:
    "name:s title:s period:s levels:d% attributes:Attribute* budget:s default_level:s levels_differ_at_most:o views:View* panels:u properties:Property* sealing:Sealing@13 two_servers:TwoServers@14",
  Sealing: "least:u size:u keys:SealingKey* rotate_days:u key_count:u",
  SealingKey: "public:b since:u",
  TwoServers:
    "least:u colluding:u delta:d scale:u bits:u variance:u leader_key:b helper_key:b helper:s",
  Property: "name:s title:s values:s*",
  View: "attributes:s*",
  Parameter: "name:s values:p",
  Mechanism: "name:s epsilon:d parameters:Parameter*",
  Level: "name:s epsilon:d mechanisms:Mechanism* chances:p mapped:Mechanism*",
  Plan: "survey:Survey levels:Level*",
  Column: "attribute:s level:s codes:b present:b map:s",
  Batch: "id:b survey:s revision:b period:s rows:u columns:Column* panel:u properties:s*",
  Sealed: "batch:b forget:Forget",
  Forget: "period:s id:b",
  SealedRecord: "survey:s revision:b period:s key:u sealed:b",
  PlanRequest: "survey:s",
  PlanResponse: "plan:b server_time:u",
  SubmitRequest: "batches:b*",
  Result: "status:u reason:u detail:s",
  SubmitResponse: "results:Result* server_time:u",
  ForgetRequest: "survey:s period:s ids:b*",
  ForgetResponse: "results:e server_time:u",
};

interface Field {
  readonly number: number;
  readonly name: string;
  readonly type: string;
  readonly many: string;
  readonly wire: number;
}

const VARINT = 0;
const FIXED = 1;
const LENGTH = 2;

const cache = new Map<string, Field[]>();

function fieldsOf(message: string): Field[] {
  let fields = cache.get(message);
  if (!fields) {
    fields = MESSAGES[message]!.split(" ").map((text, i) => {
      const [, name, type, many, number] = /(\w+):(\w+)([*%]?)@?(\d*)/.exec(
        text,
      ) as unknown as string[];
      return fieldOf(Number(number) || i + 1, name!, type!, many);
    });
    cache.set(message, fields);
  }
  return fields;
}

function fieldOf(number: number, name: string, type: string, many = ""): Field {
  const wire =
    many === "%" ? LENGTH : "tu".includes(type) ? VARINT : "dor".includes(type) ? FIXED : LENGTH;
  return { number, name, type, many, wire };
}

/** The fields of a map's entry. */
const entryOf = (type: string): Field[] => [fieldOf(1, "key", "s"), fieldOf(2, "value", type)];

/**
 * Return a plan's bytes as a message.
 *
 * Throws `InvalidInput` where they are no plan, have fields that this version does not know, or are not
 * the canonical serialisation of their plan: a server could mark a device by such differences.
 */
export function decodePlan(data: Uint8Array): WirePlan {
  const plan = decode(fieldsOf("Plan"), data, true) as unknown as WirePlan;
  if (plan.survey?.attributes.some((wire) => FIELDS.filter((field) => wire[field]).length > 1)) {
    throw new InvalidInput("an attribute has two domains");
  }
  const canonical = encode("Plan", plan as unknown as Values);
  if (canonical.length !== data.length || canonical.some((byte, i) => byte !== data[i])) {
    throw new InvalidInput(
      `these ${data.length} bytes are not the canonical serialisation of their plan (docs/wire.md)`,
    );
  }
  return plan;
}

/** Return a plan as its canonical bytes. */
export function encodePlan(plan: WirePlan): Uint8Array {
  return encode("Plan", plan as unknown as Values);
}

/** Return a batch as its canonical bytes. */
export function encodeBatch(batch: Batch): Uint8Array {
  return encode("Batch", batch as unknown as Values);
}

/** Return a batch by its bytes; throw `InvalidInput` where they are none. */
export function decodeBatch(data: Uint8Array): Batch {
  return decode(fieldsOf("Batch"), data) as unknown as Batch;
}

/** Return how many bytes a column takes in a batch, without its tag and length. */
export function columnBytes(column: Column): number {
  return encode("Column", column as unknown as Values).length;
}

/** Return what is inside of a sealed record as bytes. */
export function encodeSealed(content: SealedContent): Uint8Array {
  return encode("Sealed", content as unknown as Values);
}

/** Return a sealed record as bytes. */
export function encodeSealedRecord(record: SealedRecord): Uint8Array {
  return encode("SealedRecord", record as unknown as Values);
}

/** Return a GetPlanRequest as bytes. */
export function encodeGetPlanRequest(survey: string): Uint8Array {
  return encode("PlanRequest", { survey });
}

/** Return a GetPlanResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeGetPlanResponse(data: Uint8Array): PlanResponse {
  return decode(fieldsOf("PlanResponse"), data) as unknown as PlanResponse;
}

/** Return a SubmitRequest of batches that are encoded already, as bytes. */
export function encodeSubmitRequest(batches: readonly Uint8Array[]): Uint8Array {
  return encode("SubmitRequest", { batches });
}

/** Return a SubmitResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeSubmitResponse(data: Uint8Array): SubmitResponse {
  return decode(fieldsOf("SubmitResponse"), data) as unknown as SubmitResponse;
}

/** Return a ForgetRequest as bytes. */
export function encodeForgetRequest(request: ForgetRequest): Uint8Array {
  return encode("ForgetRequest", request as unknown as Values);
}

/** Return a ForgetResponse by its bytes; throw `InvalidInput` where they are none. */
export function decodeForgetResponse(data: Uint8Array): ForgetResponse {
  return decode(fieldsOf("ForgetResponse"), data) as unknown as ForgetResponse;
}

// --- writing --------------------------------------------------------------------------------------

function encode(message: string, values: Values): Uint8Array {
  return Uint8Array.from(write(fieldsOf(message), values, []));
}

function write(fields: readonly Field[], values: Values, out: number[]): number[] {
  for (const field of fields) {
    const { name, type, many } = field;
    const value = values[name];
    if (many === "*") {
      for (const each of value as unknown[]) writeField(field, each, out);
    } else if (many) {
      const entries = (value as [string, unknown][]).map(
        (entry) => [utf8.encode(entry[0]), entry] as const,
      );
      for (const [, [key, each]] of entries.sort(([a], [b]) => compareKeys(a, b))) {
        const [first, second] = entryOf(type); // both are written, also where they have their default
        const entry = writeField(second!, each, writeField(first!, key, []));
        writeField({ ...field, type: "b" }, entry, out);
      }
    } else if (!isDefault(type, value)) writeField(field, value, out);
  }
  return out;
}

/** Compare two keys of a map as the server's protobuf sorts them: in lexical order, but a key comes after those
 * that begin with it. */
function compareKeys(a: Uint8Array, b: Uint8Array): number {
  const shared = Math.min(a.length, b.length);
  return compareBytes(a.subarray(0, shared), b.subarray(0, shared)) || b.length - a.length;
}

/** Compare two arrays of bytes in lexical order. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const at = a.findIndex((byte, i) => byte !== b[i]);
  return at < 0 ? a.length - b.length : a[at]! - (b[at] ?? -1);
}

/** Return whether a value is not written: fields with presence are where they are there. */
function isDefault(type: string, value: unknown): boolean {
  if (value === undefined || Object.is(value, 0)) return value === undefined || type !== "o";
  return value === false || (value as { length?: number }).length === 0;
}

function writeField({ number, type, wire }: Field, value: unknown, out: number[]): number[] {
  writeVarint((number << 3) | wire, out);
  if (wire === VARINT) return writeVarint(value as number, out);
  const content = contentOf(type, value);
  if (wire === LENGTH) writeVarint(content.length, out);
  for (let i = 0; i < content.length; i++) out.push(content[i]!);
  return out;
}

function contentOf(type: string, value: unknown): ArrayLike<number> {
  if (type === "s") return utf8.encode(value as string);
  if (type === "b" || type === "r") return value as ArrayLike<number>;
  if (type === "p" || type === "e")
    return (value as bigint[]).reduce<number[]>((out, each) => writeVarint(each, out), []);
  if (type === "f") return (value as number[]).flatMap((each) => [...doubleOf(each)]);
  if (type.length > 1) return write(fieldsOf(type), value as Values, []);
  return doubleOf(value as number);
}

function doubleOf(value: number): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setFloat64(0, value, true);
  return new Uint8Array(bytes.buffer);
}

function writeVarint(number: bigint | number | boolean, out: number[]): number[] {
  let value = BigInt.asUintN(64, BigInt(number)); // as of an int64 that is negative
  for (; value > 127n; value >>= 7n) out.push(Number(value & 127n) | 128);
  out.push(Number(value));
  return out;
}

// --- reading --------------------------------------------------------------------------------------

const DEFAULTS: Readonly<Record<string, unknown>> = {
  s: "",
  b: new Uint8Array(),
  t: false,
  u: 0,
  d: 0,
};

/** Return the fields of a message; `strict` refuses fields that are unknown, and repetitions. */
function decode(fields: readonly Field[], data: Uint8Array, strict = false): Values {
  const reader = new Reader(data);
  const values: Values = {};
  for (const { name, type, many } of fields)
    values[name] = many || "pef".includes(type) ? [] : DEFAULTS[type];
  const seen = new Set<unknown>();
  while (!reader.isDone) {
    const tag = Number(reader.varint());
    const field = fields.find(({ number, wire }) => tag === ((number << 3) | wire));
    if (!field) {
      if (strict)
        throw new InvalidInput(`the plan has a field that this version does not know (tag ${tag})`);
      readUnknown(fields, values, tag, reader);
      continue;
    }
    const { name, type, many } = field;
    let value = readField(many === "%" ? "b" : type, reader, strict);
    if (many === "%") {
      const entry = decode(entryOf(type), value as Uint8Array, strict);
      value = [entry.key, entry.value ?? decode(fieldsOf(type), new Uint8Array())];
    }
    const once = many === "%" ? (value as unknown[])[0] : many ? {} : field;
    if (strict && seen.has(once)) throw new InvalidInput(`the plan has ${name} twice`);
    seen.add(once);
    if (many) (values[name] as unknown[]).push(value);
    else values[name] = value;
  }
  return values;
}

/** Skip a field that is unknown; but take an enum of a repeated field that is not packed. */
function readUnknown(fields: readonly Field[], values: Values, tag: number, reader: Reader): void {
  const wire = tag & 7;
  if (wire === VARINT) {
    const value = Number(reader.varint());
    const unpacked = fields.find(({ number, type }) => type === "e" && number === tag >> 3);
    if (unpacked) values[unpacked.name] = [...(values[unpacked.name] as number[]), value];
  } else if (wire === LENGTH) reader.content();
  else if (wire === FIXED || wire === 5) reader.take(wire === FIXED ? 8 : 4);
  else throw new InvalidInput(`no field of protobuf has the wire type ${wire}`);
}

function readField(type: string, reader: Reader, strict: boolean): unknown {
  if (type === "t") return reader.varint() !== 0n;
  if (type === "u") return Number(BigInt.asIntN(64, reader.varint()));
  const content = "dor".includes(type) ? reader.take(8) : reader.content();
  if (type === "b" || type === "r") return content.slice();
  if (type === "s") {
    try {
      return text.decode(content);
    } catch {
      throw new InvalidInput("a text is not valid UTF-8");
    }
  }
  if (type === "p" || type === "e") {
    const numbers: (bigint | number)[] = [];
    for (const rest = new Reader(content); !rest.isDone;)
      numbers.push(type === "p" ? rest.varint() : Number(rest.varint()));
    return numbers;
  }
  if (type === "f") {
    const numbers: unknown[] = [];
    for (const rest = new Reader(content); !rest.isDone;)
      numbers.push(readField("d", rest, strict));
    return numbers;
  }
  if (type.length > 1) return decode(fieldsOf(type), content, strict);
  return new DataView(content.buffer, content.byteOffset).getFloat64(0, true);
}

class Reader {
  private at = 0;

  constructor(private readonly data: Uint8Array) {}

  get isDone(): boolean {
    return this.at === this.data.length;
  }

  take(count: number): Uint8Array {
    if (count > this.data.length - this.at)
      throw new InvalidInput("these bytes end within a field of protobuf");
    return this.data.subarray(this.at, (this.at += count));
  }

  content(): Uint8Array {
    return this.take(Number(this.varint()));
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
