// The page of a survey: the slider of levels, and "try it", which runs the SDK and sends nothing.

import { answersOf, bytesOf, levelShown, mapsOf, pageData } from "./form.js";
import { inWords, named, read, shortened } from "./reading.js";
import { Preview } from "./sdk.js";

const MANY = 100;

const data = pageData();
const form = document.getElementById("try-form");
const tried = document.getElementById("tried");
const slider = document.getElementById("level");
const names = JSON.parse(slider.dataset.levels);
let device;

/** Show the section of one level, and hide the others. */
export function showLevel(name) {
  slider.value = names.indexOf(name);
  slider.setAttribute("aria-valuetext", name);
  for (const section of document.querySelectorAll("section.level")) {
    section.hidden = section.dataset.level !== name;
  }
  for (const link of document.querySelectorAll(".levels .links a")) {
    if (link.textContent === name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("level-name").textContent = name;
  device = undefined;
  tried.replaceChildren();
  document.dispatchEvent(new CustomEvent("level", { detail: name }));
}

/** Return an element with a text. */
function made(tag, text, more = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  return Object.assign(element, more);
}

function answers() {
  const values = Object.fromEntries(data.fields.map(({ name, values: of }) => [name, of]));
  return answersOf(form, data.fields, (name) => values[name]);
}

/** Return the device that is played, at the level that is shown. */
async function played() {
  device ??= await Preview.of(bytesOf(data.plan), { level: levelShown(), maps: mapsOf(form) });
  return device;
}

function readingOf(level, question) {
  return data.readings[level][question][mapsOf(form)[question] ?? ""];
}

/** Show what one record would send, after what was tried before. */
async function once() {
  const given = answers();
  if (!Object.keys(given).length) return say("Give an answer to one question at least.");
  const { leaving, dropped, invalid } = await (await played()).record(given);
  const list = document.createElement("ul");
  for (const { question, level, code } of leaving) {
    const item = made("li", "");
    item.append(made("bdi", data.titles[question]), ": ");
    item.append(made("bdi", inWords(readingOf(level, question), data.labels[question], code)));
    list.append(item);
  }
  for (const [name, reason] of Object.entries(dropped)) {
    const item = made("li", "");
    item.append(made("bdi", titleOf(name)), `: nothing, ${WHY[reason] ?? reason}`);
    list.append(item);
  }
  const nodes = [made("h3", "What would have left"), list];
  for (const name of invalid) {
    nodes.push(
      made(
        "p",
        `${titleOf(name)}: the answer is not one that is asked for, so a random one was taken.`,
      ),
    );
  }
  const before = [...tried.querySelectorAll("ul")].slice(0, 4);
  nodes.push(...(before.length ? [made("h3", "Before"), ...before] : []));
  tried.replaceChildren(...nodes);
}

const WHY = {
  idle: "as chance chose other questions for this record",
  incomplete: "as this is only sent together with another answer",
};

function titleOf(name) {
  return data.fields.find((field) => field.name === name)?.title ?? name;
}

/** Show what the reports of many devices say, each of somebody who answers the same. */
async function many() {
  const given = answers();
  if (!Object.keys(given).length) return say("Give an answer to one question at least.");
  const first = await played();
  const counts = new Map();
  for (let n = 0; n < MANY; n++) {
    const { leaving } = await first.another().record(given);
    for (const { question, level, code } of leaving) count(counts, question, level, code);
  }
  tried.replaceChildren(
    made("h3", `What ${MANY} people who answer as you would have sent`),
    ...[...counts].map(([question, of]) => table(question, of)),
  );
}

function count(counts, question, level, code) {
  if (!counts.has(question))
    counts.set(question, { reports: 0, sum: 0, rows: new Map(), named: false });
  const of = counts.get(question);
  const { places, number, denied } = read(readingOf(level, question), code);
  of.reports++;
  of.sum += number ?? 0;
  if (number !== undefined) add(of.rows, `counts as ${shortened(number)}`);
  const nameOf = (place) => named(data.labels[question], place);
  for (const place of places ?? []) add(of.rows, `${nameOf(place)}${denied ? ": yes" : ""}`);
  for (const place of denied ?? []) add(of.rows, `${nameOf(place)}: no`);
  of.isNumber = number !== undefined;
}

function add(rows, key) {
  rows.set(key, (rows.get(key) ?? 0) + 1);
}

/** Return the table of one question's tally. */
function table(question, { reports, sum, rows, isNumber }) {
  if (!rows.size) {
    const told = made("p", "");
    told.append(
      made("bdi", data.titles[question]),
      `: ${reports} reports, codes that name no answer`,
    );
    return told;
  }
  const box = document.createElement("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `What would have been sent: ${data.titles[question]}`);
  const whole = document.createElement("table");
  const caption = whole.createCaption();
  caption.append(made("bdi", data.titles[question]), `: ${reports} reports`);
  if (isNumber) caption.append(`, on average ${shortened(sum / reports)}`);
  const order = [...data.labels[question]];
  const sorted = [...rows].sort(
    ([a, m], [b, n]) => order.indexOf(a) - order.indexOf(b) || n - m || a.localeCompare(b),
  );
  for (const [name, n] of sorted.slice(0, 24)) {
    const row = whole.insertRow();
    const head = made("th", "", { scope: "row" });
    head.append(made("bdi", name));
    const meter = document.createElement("meter");
    Object.assign(meter, { min: 0, max: reports, value: n });
    meter.setAttribute("aria-hidden", "true");
    const bar = document.createElement("td");
    bar.append(meter);
    row.append(head, made("td", `${n}`, { className: "number" }), bar);
  }
  if (sorted.length > 24) whole.insertRow().append(made("td", `and ${sorted.length - 24} more`));
  box.append(whole);
  return box;
}

function say(text) {
  tried.replaceChildren(made("p", text));
}

/** Run an action, and say so where it fails. */
function act(action) {
  action().catch((error) => say(`That did not work: ${error.message}`));
}

for (const select of form.querySelectorAll("[data-map]")) {
  select.addEventListener("change", () => {
    device = undefined;
    tried.replaceChildren();
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  act(once);
});
document.getElementById("try-many").addEventListener("click", () => {
  if (form.reportValidity()) act(many);
});
const trying = document.getElementById("trying");
trying.hidden = false;

if (names.length > 1) {
  slider.closest("p").hidden = false;
  slider.addEventListener("input", () => showLevel(names[Number(slider.value)]));
}
slider.setAttribute("aria-valuetext", levelShown());
document.documentElement.dataset.tryable = "true";
