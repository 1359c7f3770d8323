/**
 * A survey's plan as values, which devices execute.
 *
 * Building it checks it: every mechanism's epsilon is computed again from its integers, so the server is
 * not trusted with privacy. Python's `hearsay.plans.plan.parse` accepts and refuses the same bytes.
 */

import { compare, fromDouble, ONE } from "../core/exact.js";
import { at, InvalidInput, placed } from "../errors.js";
import { build, type Mechanism } from "../mechanisms/index.js";
import { Budget } from "./budget.js";
import { sha256 } from "./digest.js";
import { type Domain, type Kind, readKind, textsOf } from "./kinds/index.js";
import type { Memoizer } from "./memo.js";
import { checkUnit } from "./period.js";
import {
  compareBytes,
  decodePlan,
  type WireAttribute,
  type WireLevel,
  type WireMechanism,
  type WireSurvey,
} from "./protobuf.js";
import type { Sealing } from "./sealing.js";
import { checkTexts, type Text } from "./text.js";
import type { TwoServers } from "./twoServers.js";

/**
 * One question of a survey.
 *
 * `memo` is 0 where every report is drawn afresh. Otherwise a device keeps one permanent answer per distinct
 * value, of at most `memo` times a report's epsilon. `cap` is the most epsilon that a report may have at any
 * level, perhaps Infinity.
 */
export interface Attribute {
  readonly name: string;
  readonly title: string;
  readonly domain: Domain;
  readonly memo: number;
  readonly cap: number;
}

/** What a record reports: an attribute that is in no view, or a view of several attributes. */
export interface Question extends Omit<Attribute, "title" | "domain"> {
  readonly domain: Kind;
  /** The attributes that it asks; of an attribute in no view itself. */
  readonly parts: readonly string[];
}

/** A named epsilon of one whole record: the mechanism of each question, and which of them a record reports. */
export class Level {
  constructor(
    readonly name: string,
    readonly epsilon: number,
    readonly mechanisms: ReadonlyMap<string, Mechanism>,
    readonly budget: Budget,
    /** The memoizers of the memoised attributes. */
    readonly memoizers: ReadonlyMap<string, Memoizer>,
    /** The mechanisms of those who chose a map, by attribute that has maps and by map. */
    readonly mapped: ReadonlyMap<string, ReadonlyMap<string, Mechanism>>,
  ) {}
}

/**
 * A survey resolved into exact mechanisms.
 *
 * Guarantee: who answers at a level sends reports that are, together, `level.epsilon`-LDP for the whole
 * record; where an attribute's domain declares sensitive values or classes, its policy takes the place of
 * its epsilon. All reports of a memoised attribute together, over periods, keep `Memoizer`'s guarantee.
 */
export interface Plan {
  readonly survey: string;
  readonly title: string;
  readonly period: string;
  /** SHA-256 of `data`, in hexadecimal. */
  readonly revision: string;
  readonly attributes: ReadonlyMap<string, Attribute>;
  /** The attributes that are in no view, then the views: a view has the names of its attributes, with "+" between them. */
  readonly questions: ReadonlyMap<string, Question>;
  /** The names under which a record is charged, each with the attributes that it asks: the questions, or with two servers
   * one name that asks all attributes together. */
  readonly recorded: ReadonlyMap<string, readonly string[]>;
  readonly levels: ReadonlyMap<string, Level>;
  /** The level that a device uses until the person chooses one; "" where the person must choose. */
  readonly defaultLevel: string;
  readonly levelsDifferAtMost: number | undefined;
  /** Into how many panels people are divided; 0 without. A person's panel is sent in the clear. */
  readonly panels: number;
  /** The values of each public property, by name, in the survey's order. */
  readonly properties: ReadonlyMap<string, readonly string[]>;
  /** How records are sealed on their way to a shuffler; undefined where devices send batches. */
  readonly sealing: Sealing | undefined;
  /** How records are split between two servers; undefined where answers are randomised. With two servers there are no
   * questions and no mechanisms, and the one level's epsilon is that of sums, with all devices' noise, at `delta`. */
  readonly twoServers: TwoServers | undefined;
  readonly data: Uint8Array;
}

const utf8 = new TextEncoder();

const MOST_BYTES = 2 ** 22;
const MOST_ATTRIBUTES = 1024;
const MOST_LEVELS = 64;

/** The most that the set selections of a plan may take to check, as `checkWork` counts: a few seconds. */
const MOST_SET_WORK = 1n << 28n;

/**
 * Build a plan from its frozen bytes, and check it.
 *
 * Throws `InvalidInput`, naming the place:
 * - where the bytes are no plan, are not the canonical serialisation of their plan, or have fields that this
 *   version does not know, and where a text contains characters that cannot be seen;
 * - where there are more levels or larger sets than a plan may have;
 * - where a view is not valid, or there are too many;
 * - where panels or properties are not valid;
 * - where what it says of sealing is not valid, or records may be larger;
 * - where what it says of two servers is not valid, or their sums exceed the level's epsilon;
 * - where a mechanism is unknown, does not fit its question, or exceeds its epsilon or the cap of an attribute,
 *   which holds for all views together that a record reports;
 * - where a level's mechanisms together exceed the level's epsilon, the levels are not those of the survey,
 *   or the default level is none of them.
 */
export async function parsePlan(data: Uint8Array): Promise<Plan> {
  if (data.length > MOST_BYTES) {
    throw new InvalidInput(`a plan has at most ${MOST_BYTES} bytes, got ${data.length}`);
  }
  const { survey, levels: resolved } = decodePlan(data);
  if (!survey) throw new InvalidInput("a plan needs a survey");
  await checkTexts(texts(survey));
  if (survey.attributes.length > MOST_ATTRIBUTES) {
    throw new InvalidInput(
      `a survey has at most ${MOST_ATTRIBUTES} attributes, got ${survey.attributes.length}`,
    );
  }
  checkWork(survey, resolved);
  checkUnit(survey.period);
  const attributes = new Map<string, Attribute>();
  for (const wire of survey.attributes) {
    try {
      attributes.set(wire.name, await readAttribute(wire, survey.period));
    } catch (error) {
      throw placed(wire.name, error);
    }
  }
  if (!attributes.size || attributes.size !== survey.attributes.length) {
    throw new InvalidInput("a plan needs attributes, each with a name of its own");
  }
  const properties = await propertiesOf(survey);
  const twoServers =
    survey.two_servers &&
    (await import("./twoServers.js")).readTwoServers(survey, attributes, resolved);
  const questions = twoServers
    ? new Map<string, Question>()
    : await readQuestions(survey, attributes);
  const levels = new Map<string, Level>();
  const mapped = mappedOf(questions);
  const containing = placesOf(questions);
  for (const wire of resolved) {
    const level = twoServers ? ofSums(wire) : await readLevel(wire, questions, mapped);
    checkCaps(level, attributes, containing);
    levels.set(wire.name, level);
  }
  if (!levels.size || levels.size !== resolved.length) {
    throw new InvalidInput("a plan needs levels, each with a name of its own");
  }
  checkLevels(survey, resolved);
  const most = survey.levels_differ_at_most;
  if (most !== undefined && !(most >= 0 && most <= 1)) {
    throw new InvalidInput(`levels_differ_at_most must lie in [0, 1], got ${most}`);
  }
  const sealing =
    survey.sealing &&
    (await import("./sealing.js")).readSealing(survey, levels.values(), properties);
  return {
    survey: survey.name,
    title: survey.title,
    period: survey.period,
    revision: await sha256(data),
    attributes,
    questions,
    recorded: twoServers
      ? new Map([[[...attributes.keys()].join("+"), [...attributes.keys()]]])
      : new Map([...questions].map(([name, { parts }]) => [name, parts])),
    levels,
    defaultLevel: survey.default_level,
    levelsDifferAtMost: most,
    panels: survey.panels,
    properties,
    sealing,
    twoServers,
    data: data.slice(),
  };
}

/** Throw `InvalidInput` where there are too many levels, or set selections too large: a server must not choose how
 * long a device computes. */
function checkWork(survey: WireSurvey, levels: readonly WireLevel[]): void {
  const count = Math.max(levels.length, survey.levels.length);
  if (count > MOST_LEVELS) {
    throw new InvalidInput(`a plan has at most ${MOST_LEVELS} levels, got ${count}`);
  }
  let work = 0n;
  for (const { name, parameters } of levels.flatMap(({ mechanisms }) => mechanisms)) {
    if (name !== "set_selection") continue;
    const of = new Map(
      parameters.map((each) => [each.name, each.values.reduce((a, b) => a + b, 0n)]),
    );
    work += ((of.get("most") ?? 0n) + 64n) * (of.get("size") ?? 0n); // 64 for a binomial
  }
  if (work > MOST_SET_WORK) {
    throw new InvalidInput(
      "the set_selection mechanisms of a plan have at most 2^28 in sum of (most + 64) size, " +
        `got ${work}`,
    );
  }
}

/** Yield each text that an operator writes, after its place in the survey. */
function* texts(survey: WireSurvey): Generator<Text> {
  yield ["name", survey.name, "name"];
  yield ["title", survey.title, "words"];
  yield ["budget", survey.budget, "name"];
  yield ["two_servers: helper", survey.two_servers?.helper ?? "", "name"];
  for (const [level] of survey.levels) yield ["levels", level, "name"];
  for (const [i, attribute] of survey.attributes.entries()) {
    const place = `attributes[${i}]`;
    yield [`${place}: name`, attribute.name, "name"];
    yield [`${place}: title`, attribute.title, "words"];
    yield [`${place}: mechanism`, attribute.mechanism, "name"];
    yield* textsOf(attribute, place);
  }
  for (const [i, property] of survey.properties.entries()) {
    const place = `properties[${i}]`;
    yield [`${place}: name`, property.name, "name"];
    yield [`${place}: title`, property.title, "words"];
    for (const value of property.values) yield [`${place}: values`, value, "words"];
  }
}

async function readAttribute(wire: WireAttribute, unit: string): Promise<Attribute> {
  const { name, title, memo, cap = Infinity } = wire;
  const domain = await readKind(wire);
  if (memo !== 0) {
    if (!(memo >= 1 && memo < Infinity))
      throw new InvalidInput(`memo must be 0, or finite and >= 1, got ${memo}`);
    domain.checkMemo();
    if (!unit)
      throw new InvalidInput("memo needs a survey with a period: without, nothing is repeated");
  }
  return { name, title, domain, memo, cap };
}

async function propertiesOf(survey: WireSurvey): Promise<ReadonlyMap<string, readonly string[]>> {
  if (!survey.panels && !survey.properties.length) return new Map();
  return (await import("./properties.js")).readProperties(survey); // few surveys have them
}

/** Return what a record reports: the attributes that are in no view, then the views. */
async function readQuestions(
  survey: WireSurvey,
  attributes: ReadonlyMap<string, Attribute>,
): Promise<Map<string, Question>> {
  const wire = survey.views.map((view) => view.attributes);
  if (wire.length > MOST_ATTRIBUTES) {
    throw new InvalidInput(`a survey has at most ${MOST_ATTRIBUTES} views, got ${wire.length}`);
  }
  const seen = new Set(wire.flat());
  const found = new Map<string, Question>();
  for (const [name, attribute] of attributes) {
    if (!seen.has(name)) found.set(name, { ...attribute, parts: [name] });
  }
  if (!wire.length) return found;
  const { readViews } = await import("./views.js"); // few surveys have views
  for (const [name, { attributes: parts, domain }] of readViews(wire, attributes)) {
    const cap = Math.min(...parts.map((part) => attributes.get(part)!.cap));
    found.set(name, { name, parts, domain, memo: 0, cap });
  }
  return found;
}

/** Return the places of the questions that ask an attribute, by attribute. */
function placesOf(questions: ReadonlyMap<string, Question>): ReadonlyMap<string, number[]> {
  const found = new Map<string, number[]>();
  for (const [place, { parts }] of [...questions.values()].entries()) {
    for (const part of parts) {
      const places = found.get(part);
      if (places) places.push(place);
      else found.set(part, [place]);
    }
  }
  return found;
}

/** Throw `InvalidInput` where a record may report an attribute, in all views, above its cap. */
function checkCaps(
  { name: level, budget }: Level,
  attributes: ReadonlyMap<string, Attribute>,
  containing: ReadonlyMap<string, readonly number[]>,
): void {
  for (const { name, cap } of attributes.values()) {
    const places = containing.get(name) ?? [];
    if (cap === Infinity || places.length < 2) continue; // the mechanism of one has been checked
    const spent = budget.recordEpsilon(places);
    if (spent > cap) {
      throw new InvalidInput(
        `level ${JSON.stringify(level)}: the views of ${JSON.stringify(name)} have epsilon ${spent} ` +
          `together, more than its cap of ${cap}`,
      );
    }
  }
}

async function readLevel(
  wire: WireLevel,
  questions: ReadonlyMap<string, Question>,
  mapped: Mapped,
): Promise<Level> {
  const place = `level ${JSON.stringify(wire.name)}`;
  if (wire.mechanisms.length !== questions.size) {
    throw new InvalidInput(
      `${place} has ${wire.mechanisms.length} mechanisms for ${questions.size} questions`,
    );
  }
  const mechanisms = new Map<string, Mechanism>();
  const memoizers = new Map<string, Memoizer>();
  for (const [i, question] of [...questions.values()].entries()) {
    try {
      const mechanism = await readMechanism(wire.mechanisms[i]!, question);
      mechanisms.set(question.name, mechanism);
      if (question.memo) {
        const { Memoizer } = await import("./memo.js"); // few surveys have memos
        const memoizer = await Memoizer.of(mechanism);
        memoizer.check(question.memo);
        memoizers.set(question.name, memoizer);
      }
    } catch (error) {
      throw placed(`${place}, ${JSON.stringify(question.name)}`, error);
    }
  }
  const epsilons = [...mechanisms.values()].map((mechanism) => mechanism.epsilon);
  const chances = wire.chances.length
    ? wire.chances.map((chance) => chance || ONE)
    : epsilons.map(() => ONE);
  const budget = at(place, () => new Budget(epsilons, chances));
  if (!Number.isFinite(wire.epsilon) || compare(budget.spent(), fromDouble(wire.epsilon)) > 0) {
    throw new InvalidInput(
      `${place} promises epsilon ${wire.epsilon} for a record, ` +
        `but the mechanisms of one add up to ${budget.recordEpsilon()}`,
    );
  }
  const byMap = await readMapped(place, wire.mapped, mapped, mechanisms);
  return new Level(wire.name, wire.epsilon, mechanisms, budget, memoizers, byMap);
}

/** Return the level of records that are split between two servers. */
function ofSums({ name, epsilon }: WireLevel): Level {
  return new Level(name, epsilon, new Map(), new Budget([epsilon], [ONE]), new Map(), new Map());
}

/** By question that has maps and by map: the question as those have it who chose the map. */
type Mapped = ReadonlyMap<string, ReadonlyMap<string, Question>>;

function mappedOf(questions: ReadonlyMap<string, Question>): Mapped {
  const found = new Map<string, Map<string, Question>>();
  for (const question of questions.values()) {
    const { name, domain } = question;
    if (!domain.maps.size) continue;
    const chosen = [...domain.maps.keys()].map((map) => [map, domain.chosen(map)] as const);
    found.set(name, new Map(chosen.map(([map, each]) => [map, { ...question, domain: each }])));
  }
  return found;
}

/** Return a level's mechanisms by attribute and map; throw `InvalidInput` unless there is one for each map, with
 * the epsilon of the attribute's own. */
async function readMapped(
  place: string,
  wire: readonly WireMechanism[],
  mapped: Mapped,
  mechanisms: ReadonlyMap<string, Mechanism>,
): Promise<Level["mapped"]> {
  const found = new Map<string, Map<string, Mechanism>>();
  let next = 0;
  for (const [name, maps] of mapped) {
    const mine = new Map<string, Mechanism>();
    found.set(name, mine);
    for (const [map, question] of maps) {
      const each = wire[next++];
      if (!each) break;
      try {
        const mechanism = await readMechanism(each, question);
        const own = mechanisms.get(name)!.epsilon;
        if (mechanism.epsilon !== own) {
          throw new InvalidInput(
            `${mechanism.name} has epsilon ${mechanism.epsilon}, and without a map it is ${own}`,
          );
        }
        mine.set(map, mechanism);
      } catch (error) {
        throw placed(`${place}, ${JSON.stringify(name)}, map ${JSON.stringify(map)}`, error);
      }
    }
  }
  if (next !== wire.length) {
    throw new InvalidInput(`${place} has ${wire.length} mechanisms for ${next} maps`);
  }
  return found;
}

async function readMechanism(
  wire: WireMechanism,
  { domain, cap, memo }: Question,
): Promise<Mechanism> {
  const { name, epsilon } = wire;
  const fields = wire.parameters.map((parameter) => parameter.name);
  if (fields.some((field, i) => i && field <= fields[i - 1]!)) {
    throw new InvalidInput(`${name}: the parameters must be sorted by name, each there once`);
  }
  const mechanism = await build(
    name,
    epsilon,
    new Map(wire.parameters.map((each) => [each.name, each.values])),
  );
  if (!(epsilon <= cap)) {
    throw new InvalidInput(
      `${name} has epsilon ${epsilon}, more than the attribute's cap of ${cap}`,
    );
  }
  await domain.check(mechanism, memo);
  return mechanism;
}

/** Throw `InvalidInput` unless the plan's levels are those of its survey, in order of epsilon and name. */
function checkLevels(survey: WireSurvey, resolved: readonly WireLevel[]): void {
  const declared = survey.levels
    .map(([name, epsilon]) => ({ name, epsilon }))
    .sort(
      (a, b) => a.epsilon - b.epsilon || compareBytes(utf8.encode(a.name), utf8.encode(b.name)),
    );
  const isSame = (i: number): boolean =>
    declared[i]!.name === resolved[i]!.name && declared[i]!.epsilon === resolved[i]!.epsilon;
  if (declared.length !== resolved.length || !declared.every((_, i) => isSame(i))) {
    throw new InvalidInput(
      "levels: the plan has others, or another order, than its survey declares",
    );
  }
  if (survey.default_level && !declared.some(({ name }) => name === survey.default_level)) {
    throw new InvalidInput(
      `default_level: expected one of the levels, got ${JSON.stringify(survey.default_level)}`,
    );
  }
}
