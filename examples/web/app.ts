// The example page: consent, a level, answers; then what will leave, and what was spent.

import { type Batch, Client } from "hearsay-ldp";
import { AGREEMENT, type CommuteAnswers, type Late, recordCommute, type Travel } from "./survey.js";

/** The URL of the Hearsay server, which serve.mjs writes into the bundle. */
declare const SERVER: string;

const DAY = 24 * 3600 * 1000;

/** Milliseconds between two looks of an open page whether its report is still there. */
const LOOK = 30_000;

const TITLES: Record<string, string> = { travel: "Travel", minutes: "Minutes", late: "Late" };

const WHY: Record<string, string> = {
  spent: "today's answer was taken already",
  new_ledger: "this browser is new here, and may have reported today before its data were cleared",
  no_consent: "you have not agreed",
  disk: "this browser cannot keep the account of what was told",
};

let client: Client | undefined;

/** Return the element of the page with this id. */
function element<E extends HTMLElement>(id: string): E {
  return document.getElementById(id) as E;
}

/** Add a row of radio buttons or the like: an input with its label. */
function choice(group: HTMLElement, name: string, value: string, text: string): HTMLInputElement {
  const label = document.createElement("label");
  label.className = "choice";
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name, value });
  const words = document.createElement("span");
  words.textContent = text;
  label.append(input, words);
  group.append(label);
  return input;
}

function fill(): void {
  for (const [level, epsilon] of Object.entries(AGREEMENT.levels)) {
    const odds = Math.exp(epsilon);
    const step = odds < 10 ? 0.1 : 10 ** Math.floor(Math.log10(odds) - 1);
    const factor = (Math.ceil(odds / step) * step).toPrecision(2); // never less than it is
    const name = level[0]!.toUpperCase() + level.slice(1);
    const input = choice(
      element("levels"),
      "level",
      level,
      `${name}: epsilon ${epsilon}. Whoever sees all your reports of a day can change their odds on ` +
        `what you answered by a factor of ${Number(factor)} at most.`,
    );
    input.checked = level === (localStorage.getItem("level") ?? AGREEMENT.defaultLevel);
  }
  for (const name of ["travel", "late"]) {
    for (const value of AGREEMENT.domains[name] as readonly string[]) {
      choice(element(name), name, value, value);
    }
  }
}

/** Return the client at the level that is chosen. Nobody is asked anything before the first one. */
async function clientAt(level: string): Promise<Client> {
  if (client && localStorage.getItem("level") === level) return client;
  await client?.close();
  localStorage.setItem("level", level);
  client = new Client({
    url: SERVER,
    agreement: AGREEMENT,
    level,
    // Reports wait until the person has seen them and says so, or for a day.
    delivery: { batchAge: DAY },
    // This page has no accounts, and takes a browser without a ledger for a person who has never
    // answered. Somebody who clears the site's data tells more than one report a day. An app with
    // accounts says here whether this person's account has never answered, as its server notes.
    vouched: () => true,
  });
  return client;
}

function say(text: string): void {
  const status = element("status");
  status.textContent = text;
  status.hidden = !text;
}

/** Show an error beside a field, or none; return whether there is one. */
function fault(id: string, text: string): boolean {
  const error = element(`${id}-error`);
  error.textContent = text;
  error.hidden = !text;
  element(id).setAttribute("aria-invalid", String(Boolean(text)));
  return Boolean(text);
}

function row(table: string, cells: readonly string[]): void {
  const made = document.createElement("tr");
  for (const [index, text] of cells.entries()) {
    const cell = document.createElement(index ? "td" : "th");
    if (!index) cell.setAttribute("scope", "row");
    cell.textContent = text;
    made.append(cell);
  }
  element(table).append(made);
}

/** Say in words what the code of one report says. */
function meaning(attribute: string, code: number): string {
  if (attribute === "minutes") return code ? "rather long" : "rather short";
  return (AGREEMENT.domains[attribute] as readonly string[])[code]!;
}

/** Show what waits and what was spent, as the ledger has it. */
async function show(): Promise<void> {
  const reports: readonly Batch[] = client ? (await client.outbox()).reports : [];
  element("reports").replaceChildren();
  const order = Object.keys(TITLES);
  for (const { columns } of reports) {
    const sorted = [...columns].sort(
      (a, b) => order.indexOf(a.attribute) - order.indexOf(b.attribute),
    );
    for (const { attribute, level, codes } of sorted) {
      const title = TITLES[attribute] ?? attribute;
      row("reports", [title, meaning(attribute, codes[0]!), level, `${codes.length}`]);
    }
  }
  element("outbox").hidden = !reports.length;

  const spendings = client ? await client.spendings() : [];
  element("spendings").replaceChildren();
  for (const { attribute, epsilon, reports, life } of spendings) {
    const title = TITLES[attribute] ?? attribute;
    row("spendings", [title, `${reports}`, epsilon.toPrecision(3), life.toPrecision(3)]);
  }
  const told = spendings.some((each) => each.reports);
  element("spent").hidden = !told;
  element("nothing").hidden = told;
  for (const id of ["revoke", "forget"]) element<HTMLButtonElement>(id).disabled = !client;
}

async function prepare(): Promise<void> {
  say("");
  const given = new FormData(element<HTMLFormElement>("questions"));
  const input = element<HTMLInputElement>("minutes");
  const minutes = input.valueAsNumber;
  const bad = input.validity.badInput || minutes < 0;
  if (fault("minutes", bad ? "Enter the minutes as a number, such as 25." : "")) input.focus();
  const consent = element<HTMLInputElement>("consent");
  const missing = consent.checked ? "" : "Tick this box first: without it nothing is prepared.";
  if (fault("consent", missing)) consent.focus();
  if (bad || missing) return;

  const answers: CommuteAnswers = {
    travel: (given.get("travel") as Travel | null) ?? undefined,
    minutes: Number.isNaN(minutes) ? undefined : minutes,
    late: (given.get("late") as Late | null) ?? undefined,
  };
  if (Object.values(answers).every((answer) => answer === undefined)) {
    say("Answer at least one question.");
    return;
  }
  const person = await clientAt(String(given.get("level")));
  await person.grant();
  const { taken, dropped } = await recordCommute(person, answers);
  const left = Object.entries(dropped).filter(
    ([name]) => answers[name as keyof CommuteAnswers] !== undefined,
  );
  const kept = left.map(
    ([name, reason]) => `${TITLES[name]} is not taken: ${WHY[reason] ?? reason}.`,
  );
  const ready = taken.length ? ["Your report is ready below. Nothing has left yet."] : [];
  await show();
  say([...ready, ...kept].join(" "));
  if (taken.length) element("outbox-title").focus();
}

async function send(): Promise<void> {
  say("Sending …");
  const sent = await client!.flush(10_000);
  const { reason, transport } = await client!.status();
  await show();
  if (sent) clearAnswers();
  say(
    sent
      ? "Sent. The server has counted your report."
      : `Not sent yet: ${transport || reason}. This browser keeps the report, and tries again.`,
  );
}

/** Empty the fields of the answers, not those of the level and the consent. */
function clearAnswers(): void {
  for (const input of element("answers").querySelectorAll("input")) {
    input.checked = false;
    if (input.type === "number") input.value = "";
  }
}

/** Show what is true by now: a report leaves by itself in the end, or another tab sends it. */
async function look(): Promise<void> {
  const outbox = element("outbox");
  if (outbox.hidden || document.hidden) return;
  await show();
  if (!outbox.hidden) return;
  clearAnswers();
  say("The report that waited here has left, by itself or from another tab of yours.");
}

async function revoke(forget: boolean): Promise<void> {
  await client!.revoke({ forget });
  element<HTMLInputElement>("consent").checked = false;
  await show();
  say(
    forget
      ? "Your consent is taken back. Nothing waits, and the server is asked to forget what was under way."
      : "Your consent is taken back. Nothing waits, and nothing more is sent.",
  );
}

/** Run an action of a button, and say so where it fails. */
function on(id: string, event: string, action: () => Promise<void>): void {
  element(id).addEventListener(event, (happened) => {
    happened.preventDefault();
    action().catch((error: unknown) => say(`That did not work: ${(error as Error).message}`));
  });
}

fill();
on("questions", "submit", prepare);
on("send", "click", send);
on("discard", "click", () => revoke(false));
on("revoke", "click", () => revoke(false));
on("forget", "click", () => revoke(true));
document.addEventListener("visibilitychange", () => void look());
setInterval(() => void look(), LOOK);
const chosen = localStorage.getItem("level");
if (chosen) await clientAt(chosen);
await show();
document.documentElement.dataset["ready"] = "true";
