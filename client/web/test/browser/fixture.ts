/** What a file of tests shares: the browser, the app's site, a server that knows its origin. */

import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll } from "vitest";
import { launch, MISSING, open } from "./chromium.js";
import { Server } from "./server.js";
import { Site } from "./site.js";

/** A survey, in protobuf's JSON. */
export interface Survey {
  readonly name: string;
  readonly period: string;
  readonly levels: Readonly<Record<string, number>>;
  readonly attributes: readonly object[];
  readonly two_servers?: object;
}

/** A daily survey of a category and a number, the category by this mechanism. */
export function asked(mechanism = "krr", period = "P1D"): Omit<Survey, "name"> {
  return {
    period,
    levels: { strict: 1, open: 4 },
    attributes: [
      { name: "smokes", mechanism, categorical: { values: ["no", "sometimes", "yes"] } },
      { name: "age", mechanism: "hybrid", numeric: { low: 20, high: 60 } },
    ],
  };
}

export class World {
  browser!: Browser;
  site!: Site;
  server!: Server;
  #surveys = 0;
  #contexts: BrowserContext[] = [];

  /** Register a survey under a name of its own; return the name. */
  async survey(survey = asked()): Promise<string> {
    const name = `survey${++this.#surveys}`;
    await this.server.create({ ...survey, name });
    return name;
  }

  /** Return a new profile, which has no ledger. */
  async profile(): Promise<BrowserContext> {
    const context = await this.browser.newContext({ ignoreHTTPSErrors: false });
    this.#contexts.push(context);
    return context;
  }

  /** Open the site's page in a new tab, of a new profile unless one is given. */
  async page(profile?: BrowserContext): Promise<Page> {
    return open(profile ?? (await this.profile()), this.site);
  }

  /** Return the profiles of this test. */
  profiles(): readonly BrowserContext[] {
    return this.#contexts;
  }

  async closeProfiles(): Promise<void> {
    for (const context of this.#contexts.splice(0)) await context.close();
  }
}

/** Start what the tests of a file share, and stop it after them. */
export function world(...options: string[]): World {
  const made = new World();
  beforeAll(async () => {
    if (MISSING) return;
    made.site = await Site.start();
    made.server = await Server.start([made.site.origin], ...options);
    made.browser = await launch();
  });
  afterEach(() => made.closeProfiles());
  afterAll(async () => {
    await made.browser?.close();
    await made.server?.stop();
    await made.site?.stop();
  });
  return made;
}
