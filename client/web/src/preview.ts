/** Show what would leave a device: the SDK's own draws, without a ledger and without a network. */

import { checked, choicesOf, limitsOf, revealedBy, type Agreed } from "./choices.js";
import { type Coins, SystemCoins } from "./coins.js";
import type { Encoded } from "./plans/kinds/index.js";
import { parsePlan, type Plan } from "./plans/plan.js";
import { Account } from "./recording/account.js";
import { Places } from "./recording/places.js";
import { randomize } from "./recording/randomize.js";
import { encode, type Terms, termsOf } from "./recording/terms.js";
import { MemoryStore } from "./storage/memory.js";
import { transact } from "./storage/store.js";
import { InvalidInput } from "./errors.js";

export { InvalidInput } from "./errors.js";

/** What a person chooses before the answer is known: names of the plan. */
export interface Chosen {
  /** Without it the survey's default level. */
  readonly level?: string | undefined;
  /** The levels of some attributes. */
  readonly levels?: Readonly<Record<string, string>>;
  /** The maps of some attributes. */
  readonly maps?: Readonly<Record<string, string>>;
}

/** What would leave for one question: all that the server would see of the answer. */
export interface Leaving {
  /** An attribute, or a view of several. */
  readonly question: string;
  readonly level: string;
  /** The code, in the bytes that a batch would have. */
  readonly code: Uint8Array;
}

/** What one record would send. */
export interface Shown {
  readonly leaving: readonly Leaving[];
  /** Why the other answers would not be sent, by attribute: "idle" where chance chose other questions. */
  readonly dropped: Readonly<Record<string, string>>;
  /** The attributes whose answer is outside the domain: a random value would be randomised in its place. */
  readonly invalid: readonly string[];
  /** The panel in the clear; 0 without panels. */
  readonly panel: number;
}

/**
 * A device that is played: it randomises as a client does, and keeps and sends nothing.
 *
 * Codes are drawn by the functions that `Client.record` calls, from the same plan, with the same memos
 * and the same chance of which questions a record reports. There is no ledger behind it, so nothing is
 * spent; and no call of the network, so nothing leaves. Do not send what it returns: no account bounds
 * how often it is asked.
 */
export class Preview {
  readonly #terms: Terms;
  readonly #places: Places;
  readonly #store = new MemoryStore();
  readonly #coins: Coins;
  readonly #salt: string;
  #account: Account;
  #now = Date.UTC(2026, 0, 1);

  private constructor(
    readonly plan: Plan,
    chosen: Chosen,
    coins: Coins,
  ) {
    const { level, levels, maps } = checked(chosen, ["level", "levels", "maps"], "a preview");
    if (plan.twoServers)
      throw new InvalidInput(
        `the records of ${plan.survey} are split between two servers: no preview shows them`,
      );
    this.#terms = termsOf(plan, choicesOf(level, levels, maps, undefined), allOf(plan), new Set());
    this.#places = new Places(plan.survey);
    this.#coins = coins;
    this.#salt = "00".repeat(16); // of keys of memos that nobody sees
    this.#account = new Account("", plan.survey);
  }

  /**
   * Read a plan's bytes, check them as a client does, and make a device that never answered.
   *
   * Throws `InvalidInput` for bytes that are no plan, for a level or a map that it lacks, and for a plan with two servers.
   */
  static async of(plan: Uint8Array, chosen: Chosen = {}, coins?: Coins): Promise<Preview> {
    return new Preview(await parsePlan(plan), chosen, coins ?? new SystemCoins());
  }

  /** Return another device of the same plan and choices that never answered. */
  another(): Preview {
    const { level, levels, maps } = this.#terms;
    const byQuestion = [...levels].filter(([name]) => this.plan.attributes.has(name));
    const chosen = {
      level: level.name,
      levels: Object.fromEntries(byQuestion.map(([name, each]) => [name, each.name])),
      maps: Object.fromEntries(maps),
    };
    return new Preview(this.plan, chosen, this.#coins);
  }

  /** The most epsilon that one record spends. */
  get recordEpsilon(): number {
    return this.#terms.recordEpsilon;
  }

  /**
   * Return what a record of these answers would send, in the device's next period.
   *
   * An attribute that is left out is withheld, as in `Client.record`. A memoised answer is sent again as
   * its memo, so the device remembers it from call to call. In a survey of one record per person each
   * call is another person's.
   */
  async record(answers: Readonly<Record<string, unknown>>): Promise<Shown> {
    const terms = this.#terms;
    const values = new Map<string, Encoded | undefined>();
    const invalid: string[] = [];
    for (const [name, answer] of Object.entries(answers)) {
      if (answer === undefined || answer === null) continue;
      if (!this.plan.attributes.has(name)) {
        throw new InvalidInput(`the survey has no attribute ${JSON.stringify(name)}`);
      }
      try {
        values.set(name, encode(this.plan, name, answer));
      } catch (error) {
        if (!(error instanceof InvalidInput)) throw error;
        values.set(name, undefined);
        invalid.push(name);
      }
    }
    if (this.plan.period) this.#now = terms.periodAt(this.#now).end;
    else this.#account = new Account("", this.plan.survey);
    const account = this.#account;
    account.enter(terms, this.#now, undefined, this.#coins);
    const place = { places: this.#places, person: "", salt: this.#salt };
    const { codes, dropped } = await transact(this.#store, "relaxed", () =>
      randomize(values, terms, account, [NO_LIMITS], place, this.#coins),
    );
    return {
      leaving: codes.map(({ attribute, level, codes }) => ({
        question: attribute,
        level,
        code: codes,
      })),
      dropped: Object.fromEntries(dropped),
      invalid,
      panel: account.panelOf(terms),
    };
  }
}

const NO_LIMITS = limitsOf({});

/** Return the agreement of somebody who agrees to all that a plan has: nothing is sent by it. */
function allOf(plan: Plan): Agreed {
  const byMap = new Map<string, ReadonlyMap<string, readonly string[]>>();
  for (const [name, { domain }] of plan.attributes) {
    const maps = [...domain.maps.keys()];
    byMap.set(name, new Map(maps.map((map) => [map, domain.chosen(map).ordinary])));
  }
  return {
    survey: plan.survey,
    epsilon: undefined,
    revision: plan.revision,
    mayReveal: revealedBy(plan),
    mayRevealByMap: byMap,
    mayTellChanges: [...plan.attributes.keys()],
    agreement: undefined,
    panels: plan.panels,
    delta: undefined,
  };
}
