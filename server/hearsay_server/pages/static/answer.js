// Where a survey allows it, its page is the questionnaire: a real device, with the SDK's Client and its ledger.

import { showLevel as showSection } from "./asked.js";
import { answersOf, levelShown, mapsOf, pageData } from "./form.js";
import { Client } from "./sdk.js";

const WHY = {
  spent: "this browser has answered it in this period already",
  idle: "chance chose other questions for this report",
  incomplete: "it is only sent together with another answer",
  new_ledger:
    "this browser is new here, and its data may have been cleared after an earlier answer. Come again in a period " +
    "that begins more than a day from now",
  lost_ledger: "this browser may have lost the account of earlier answers",
  no_consent: "you have not agreed",
  disk: "this browser cannot keep the account of what was told",
  clock: "this device's clock differs from the server's",
};

const data = pageData();
const fields = data.fields.filter(({ name }) => !data.withheld.includes(name));
const form = document.getElementById("answer-form");
const consent = document.getElementById("consent");
const status = document.getElementById("answer-status");
/** Where it is kept what was agreed to here: a plan, by its revision, a level and maps. */
const kept = `hearsay agreed: ${data.survey}`;
let client;
let at;

if (form) start();

function start() {
  document.getElementById("answering").hidden = false;
  showLevel();
  document.addEventListener("level", () => act(leave));
  for (const select of form.querySelectorAll("[data-map]")) {
    select.addEventListener("change", () => act(leave));
  }
  consent.addEventListener("change", () => act(consented));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(answer);
  });
  document.getElementById("stop").addEventListener("click", () => act(() => stop(false)));
  document.getElementById("erase").addEventListener("click", () => act(() => stop(true)));
  setInterval(() => act(show), 5000);
  const before = agreed();
  if (!before) return;
  const asked = new URLSearchParams(location.search).get("level");
  if (before.revision !== data.agreement.revision) {
    act(() =>
      stop(false, "This survey has changed since you agreed. Nothing of before is sent any more."),
    );
  } else if (asked && asked !== before.level) {
    say(
      `You agreed to the level ${before.level}, and this address shows ${asked}. Agree again to use it.`,
    );
  } else {
    showSection(before.level);
    for (const select of form.querySelectorAll("[data-map]")) {
      select.value = before.maps?.[select.dataset.map] ?? "";
    }
    act(resume);
  }
}

/** Return what was agreed to in this browser: the revision of a plan, a level, maps; null for nothing. */
function agreed() {
  try {
    return JSON.parse(localStorage.getItem(kept));
  } catch {
    return null;
  }
}

function keep() {
  const { revision } = data.agreement;
  localStorage.setItem(kept, JSON.stringify({ revision, level: levelShown(), maps: mapsOf(form) }));
}

/** Return the client at the level and maps that are chosen; nothing is asked of the server before the first one. */
function opened() {
  const [level, maps] = [levelShown(), mapsOf(form)];
  const chosen = JSON.stringify([level, maps]);
  if (client && at === chosen) return client;
  client = new Client({
    url: location.origin,
    agreement: data.agreement,
    level,
    maps,
    withhold: data.withheld,
  });
  at = chosen;
  return client;
}

/** Close the client where something else is chosen: the next one goes by that. */
async function leave() {
  showLevel();
  if (!client) return;
  const before = client;
  client = undefined;
  await before.close(1000);
  if (consent.checked) {
    keep();
    await show();
  }
}

function showLevel() {
  document.getElementById("answer-level").textContent = levelShown();
}

async function consented() {
  if (!consent.checked) return stop(false);
  document.getElementById("answer-fields").disabled = false;
  keep();
  await opened().grant();
  await show();
  await settle();
}

/** Go on after an earlier visit: what waits is sent, and the account is shown. */
async function resume() {
  const reason = (await opened().status()).reason;
  consent.checked = reason !== "no_consent";
  document.getElementById("answer-fields").disabled = !consent.checked;
  await show();
  if (consent.checked) await settle();
}

/** Say whether answers are taken. Asking also has a new ledger note the server's time, once it is known. */
async function whether() {
  const { ready, reason, detail } = await client.status();
  if (ready) return "Answers are taken now.";
  if (reason === "new_ledger" && detail.includes("has not confirmed")) {
    return "This browser is being made known. Keep the page open for a moment.";
  }
  return `No answer is taken now: ${WHY[reason] ?? reason}.`;
}

/** Say it again until the server has confirmed the time, for half a minute at most. */
async function settle() {
  await client.waitReady(5000); // where the server's time has to be asked for, it is
  for (let n = 0; n < 60; n++) {
    const text = await whether();
    say(text);
    if (!text.startsWith("This browser is being made known")) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

async function answer() {
  const values = Object.fromEntries(data.fields.map(({ name, values: of }) => [name, of]));
  const given = answersOf(form, fields, (name) => values[name]);
  if (!Object.keys(given).length) return say("Answer one question at least.");
  if (!(await opened().status()).ready) return say(await whether());
  const { taken, dropped, invalid } = await client.record(given);
  const titles = new Map(data.fields.map(({ name, title }) => [name, title]));
  const left = Object.entries(dropped).map(
    ([name, reason]) => `${titles.get(name)} is not taken: ${WHY[reason] ?? reason}.`,
  );
  for (const name of invalid) {
    left.push(`What you gave for ${titles.get(name)} is no answer: a random one was taken.`);
  }
  if (taken.length) form.querySelectorAll("#answer-fields input").forEach(clear);
  say(
    [...(taken.length ? ["Your report is made. It leaves in a few seconds."] : []), ...left].join(
      " ",
    ),
  );
  await show();
}

function clear(input) {
  if (input.type === "radio" || input.type === "checkbox") input.checked = false;
  else input.value = "";
}

async function stop(forget, why) {
  if (client || localStorage.getItem(kept)) await opened().revoke({ forget });
  consent.checked = false;
  document.getElementById("answer-fields").disabled = true;
  localStorage.removeItem(kept);
  await show();
  if (why) return say(why);
  say(
    forget
      ? "You have stopped. Nothing waits, and the server is asked to forget what was under way."
      : "You have stopped. Nothing waits, and nothing more is sent.",
  );
}

/** Show the state of delivery, and what was spent, as the ledger has it. */
async function show() {
  if (!client || document.hidden) return;
  const { reports, batches, sent } = await client.outbox();
  const { lastError } = await client.delivery();
  const spendings = await client.spendings();
  const spent = spendings.reduce((sum, each) => sum + each.life, 0);
  const answered = spendings.filter((each) => each.answered).length;
  facts({
    "Reports that wait": `${reports.length + batches.length}`,
    "Batches sent": `${sent.length}`,
    "Last error": lastError || "none",
    "Answered in this period": `${answered} of ${spendings.length} questions`,
    "Epsilon spent so far": spent.toPrecision(3),
  });
}

function facts(values) {
  const nodes = Object.entries(values).map(([name, value]) => {
    const pair = document.createElement("div");
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    text.textContent = value;
    pair.append(term, text);
    return pair;
  });
  document.getElementById("account").replaceChildren(...nodes);
}

function say(text) {
  status.textContent = text;
}

function act(action) {
  Promise.resolve(action()).catch((error) => say(`That did not work: ${error.message}`));
}
