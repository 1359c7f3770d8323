/** The device's client: randomise answers on the device, and send only randomised reports. */

import { checkDeclared, checked, choicesOf, limitsOf } from "./choices.js";
import { SystemCoins } from "./coins.js";
import { InvalidInput } from "./errors.js";
import {
  agreedOf,
  checkedClock,
  type ClientOptions,
  deliveryOf,
  expect,
  helperKeyOf,
  names,
  OPTIONS,
  usualStore,
} from "./options.js";
import { type Device, Person } from "./person.js";
import type { Plan } from "./plans/plan.js";
import { Consent } from "./recording/consent.js";
import { Counters } from "./recording/counters.js";
import { Ledger } from "./recording/ledger.js";
import * as outbox from "./recording/outbox.js";
import { EMPTY, Places } from "./recording/places.js";
import { carried, NO_TOKEN, serverUrl, Transport } from "./sending/connect.js";
import { isPage, listen } from "./sending/leaving.js";
import { PlanKeeper } from "./sending/planKeeper.js";
import { type DeliveryState, Sender } from "./sending/sender.js";
import { get, nameOf, type Store, transact } from "./storage/store.js";
import { toThrow, Trouble } from "./trouble.js";

/**
 * Record answers: randomise each on this device, queue it, send the codes.
 *
 * Guarantee: all that leaves the device for one person and period is epsilon-LDP for the whole record,
 * epsilon being `recordEpsilon`, at most the chosen level's where no attribute has another, and at most
 * what the app agreed to; over periods epsilons add up, and the caps for life bound the sum. A memoised
 * attribute costs its memo's epsilon once per distinct value. Each attribute is randomised at most once
 * per person and period; a repeated answer is dropped and counted. Whether, when and in which form
 * something leaves depends on the plan and on the calls, never on the answers. It holds against
 * everybody, whatever the server sends, and across tabs, reloads and crashes that share the ledger. Where
 * the survey declares sensitive values or classes of an attribute, its policy takes the place of its
 * epsilon, and the ordinary values that `mayReveal` names may be revealed; so it is with the map that a person
 * chose, and over periods with different maps only the values that all of them protect stay protected. In the
 * clear are: the survey, the levels and maps, which attributes were answered, the period, the time and address of contact,
 * and, where the survey has them, the properties that the app gives and the person's panel, which is drawn once: they
 * link a person's reports.
 *
 * With `helperKey` the guarantee is another one: each record is split between two servers, and the sums that these learn
 * are (epsilon, delta)-DP for each record, by the plan's `twoServers`, while one of the two and enough of the devices are
 * honest. Both together see single records.
 *
 * The ledger is one of a browser profile: a person with three profiles or devices spends three times.
 *
 * No answer is taken before `grant` (or `consent: true`). No fault of the network, the storage or the
 * server rejects; dropped answers are counted in `counters` by their reason, and `status` says why.
 *
 * Making a client reads and writes nothing. Throws `InvalidInput` where an option is missing, contradicts
 * another or is malformed, and where the page is no secure context.
 */
export class Client extends Person {
  readonly #transport: Transport;
  readonly #store: Store;
  readonly #stop: () => void;
  #emptied = false;

  constructor(options: ClientOptions) {
    checked(options, OPTIONS, "a client");
    const agreed = agreedOf(options);
    const { level, levels, maps, properties } = options;
    const choices = choicesOf(level, levels, maps, properties);
    checkDeclared(agreed, choices);
    const withheld = new Set(names(options.withhold, "withhold"));
    const caps = limitsOf(options.caps ?? {});
    const delivery = deliveryOf(options.delivery ?? {});
    for (const name of ["onDrop", "vouched", "clock"] as const) expect(options, name, "function");
    for (const name of ["consent", "insecure", "strict", "debug", "disabled"] as const) {
      expect(options, name, "boolean");
    }
    const { token, shuffler, shufflerToken, insecure = false } = options;
    for (const name of ["token", "shufflerToken"] as const)
      if (typeof options[name] !== "string") expect(options, name, "function");
    const transport = new Transport(serverUrl(options.url, insecure), token);
    if (shuffler === undefined && shufflerToken !== undefined)
      throw new InvalidInput("shufflerToken is for a shuffler: give shuffler, too");
    const records =
      shuffler === undefined
        ? transport
        : new Transport(serverUrl(shuffler, insecure), shufflerToken, "Shuffler");
    const store = options.store ?? usualStore();
    if (typeof store.run !== "function") throw new InvalidInput("store must have the method run");
    if (typeof globalThis.crypto?.subtle === "undefined") {
      throw new InvalidInput(
        "there is no crypto.subtle here: a page needs https, or to be on localhost",
      );
    }
    const log = options.debug ? (words: string) => console.debug(`hearsay: ${words}`) : () => {};
    const clock = checkedClock(options.clock ?? Date.now);
    const coins = options.coins ?? new SystemCoins();
    const places = new Places(agreed.survey);
    const ledger = new Ledger(store, places, clock, options.vouched, () => {
      keeper.reset();
      sender.dropReady();
    });
    const counters = new Counters(store, places, options.onDrop);
    const consent = new Consent(ledger, clock, counters, () => {
      sender.dropReady();
      page.tell();
    });
    const isShuffled = shuffler !== undefined;
    const helperKey = helperKeyOf(options.helperKey);
    const keeper = new PlanKeeper(
      ledger,
      transport,
      agreed,
      choices,
      withheld,
      caps,
      clock,
      isShuffled,
      helperKey,
      log,
    );
    const sender = new Sender(
      store,
      places,
      records,
      delivery,
      keeper,
      consent,
      counters,
      clock,
      coins,
      isPage(),
      log,
    );
    const state = options.disabled ? "disabled" : "ready";
    const texts = [token, shufflerToken].filter((each) => typeof each === "string");
    const barred = texts.every(carried) ? "" : NO_TOKEN;
    const page =
      state === "ready"
        ? listen(`hearsay: ${agreed.survey}`, {
            leave: () => sender.leave(),
            online: () => sender.online(),
            changed: () => sender.dropReady(),
          })
        : { tell() {}, stop() {} };
    const device: Device = {
      agreed,
      withheld,
      caps,
      delivery,
      strict: options.strict ?? false,
      coins,
      clock,
      ledger,
      consent,
      counters,
      keeper,
      sender,
      log,
      state,
      barred,
    };
    super(device, "", choices);
    this.#transport = transport;
    this.#store = store;
    this.#stop = page.stop;
    if (state !== "ready") return;
    if (caps.ends !== undefined && caps.ends <= Date.now()) {
      console.warn("hearsay: the cap for life is not paced any more: its until is over");
    }
    if (options.consent) consent.grant("");
    sender.wake();
  }

  /** Return one of several people whose answers this client records, each with a consent, a level, caps
   * and an account of their own: for a web backend, say, which answers for its users. The ledger knows
   * them by a keyed hash of `name`. Without `level` and `levels` the client's hold, and without `maps` the
   * client's maps: `{}` chooses none. So it is with `properties`, which are those of the person's device. */
  person(
    name: string,
    own: {
      readonly level?: string | undefined;
      readonly levels?: Readonly<Record<string, string>>;
      readonly maps?: Readonly<Record<string, string>>;
      readonly properties?: Readonly<Record<string, string>>;
    } = {},
  ): Person {
    if (typeof name !== "string" || !name) throw new InvalidInput("a person needs a name");
    checked(own, ["level", "levels", "maps", "properties"], "a person");
    const choices = choicesOf(own.level, own.levels, own.maps, own.properties);
    checkDeclared(this.device.agreed, choices);
    const hasLevels = choices.level !== undefined || choices.levels.length > 0;
    const { level, levels } = hasLevels ? choices : this.choices;
    const { maps } = own.maps ? choices : this.choices;
    const { properties } = own.properties ? choices : this.choices;
    const isOwn = hasLevels || own.maps || own.properties;
    return new Person(
      this.device,
      name,
      isOwn ? { level, levels, maps, properties } : this.choices,
    );
  }

  /**
   * Accept this device's clock as right, as if the server had reported the same time.
   *
   * For an app that cannot reach the server and asks its user: it lets periods be answered that the client
   * would refuse as "clock". It never lets one ledger answer a period twice, and does not confirm when a new
   * ledger was made. Rejects with `StorageFailed` where the time cannot be kept, and `InvalidInput` where
   * the `clock` cannot be used.
   */
  async trustClock(): Promise<void> {
    try {
      await this.device.keeper.trustClock();
    } catch (error) {
      if (error instanceof Trouble)
        throw toThrow(error.reason, `the clock's time could not be kept: ${error.message}`);
      throw error;
    }
  }

  /** Return the waiting reports and sent batches, decoded, exactly as the server sees them. */
  async outbox(): Promise<outbox.Outbox> {
    try {
      return await transact(this.#store, "read", () => outbox.view(this.device.ledger.places));
    } catch (error) {
      if (error instanceof Trouble) return { reports: [], batches: [], sent: [] };
      throw error;
    }
  }

  /**
   * Return how often each thing happened, as kept in the ledger: records queued ("recorded"); answers and
   * reports dropped, by reason: "spent", "idle", "withheld", "unknown", "overflow", "revoked", "lost",
   * "failed" and each `Reason`; answers that a random value was reported for ("invalid"); batches by their
   * outcome: "stored", "duplicate", "refused", "period_closed".
   */
  counters(): Promise<Readonly<Record<string, number>>> {
    return this.device.counters.read();
  }

  /** Return when a batch was last answered, the last error, and how long the oldest report waits. */
  async delivery(): Promise<DeliveryState> {
    const { sender, keeper, ledger, clock } = this.device;
    let oldest: number | undefined;
    try {
      const waits = await transact(this.#store, "read", () => outbox.waiting(ledger.places, 1));
      const since = Math.min(waits.oldest, waits.oldestSealed);
      if (since < Infinity) oldest = Math.max(0, clock() - since);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
    }
    return {
      lastSuccess: sender.lastSuccess,
      lastError: sender.lastError || keeper.transportError,
      oldest,
    };
  }

  /**
   * Send all waiting reports; return whether all were answered within `timeout` milliseconds.
   *
   * A batch without a final answer stays queued, and goes again with the same id and bytes, so the server
   * counts it once. A batch that the server refuses is dropped and counted. Where the server asked to be
   * left alone for longer than `timeout`, or failed so often that the next try is later, or the device is
   * offline, it is not asked.
   */
  async flush(timeout = 30_000): Promise<boolean> {
    const { state, sender } = this.device;
    if (state === "closed") return this.#emptied;
    return state === "disabled" || sender.flush(timeout);
  }

  /**
   * Flush for at most `timeout` milliseconds, then stop; return whether no report is left.
   *
   * Unsent reports wait in the ledger for its next client; with a ledger in memory they are counted as
   * "lost". Closing again does nothing. A page need not close: it sends what was sealed as it is left.
   */
  async close(timeout = 10_000): Promise<boolean> {
    const { device } = this;
    if (device.state === "disabled") return true;
    if (device.state !== "ready") return this.#emptied;
    this.#emptied = !(await this.#left()) || (await device.sender.flush(timeout));
    device.state = "closed";
    device.sender.stop();
    this.#stop();
    const left = this.#store.inMemory ? await this.#left() : 0;
    if (left)
      device.counters.add(
        "lost",
        left,
        `a client ended, and ${left} reports that it had in memory are lost`,
      );
    try {
      if (await device.ledger.exists()) await device.counters.keep();
    } catch (error) {
      console.warn(`hearsay: the counters could not be kept: ${nameOf(error)}`);
    }
    this.#store.close?.();
    return this.#emptied;
  }

  /** The survey's plan. Throws `NotReady` where there is none, `PlanRefused` where it was refused, and
   * `InvalidInput` where the server refuses the request. */
  get plan(): Plan {
    const { keeper } = this.device;
    if (!keeper.plan) throw keeper.noPlan();
    return keeper.plan;
  }

  /** The level of the device's own user: the chosen one, or else the survey's default. Throws as `plan`. */
  get level(): string {
    return this.terms().level.name;
  }

  /** The most epsilon that one record spends; throws as `plan` where there is no plan. */
  get recordEpsilon(): number {
    return this.terms().recordEpsilon;
  }

  /** The server that is called. */
  get url(): string {
    return this.#transport.url.href;
  }

  async #left(): Promise<number> {
    try {
      const [queue = EMPTY] = await transact(this.#store, "read", () =>
        get(this.device.ledger.places.queue),
      );
      return queue.rows;
    } catch {
      return 1; // it cannot be told, so it is not said to be empty
    }
  }
}
