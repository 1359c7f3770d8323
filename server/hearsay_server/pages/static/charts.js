// Draws the charts of a page: each figure has the JSON that it is drawn from. The same numbers
// stand in a table beside it, so a chart is hidden from screen readers but for its label.
import * as Plot from "./vendor/plot.js";
import { curves } from "./curves.js";
import { COLOURS, SYMBOLS } from "./palette.js";
import { choosing } from "./ranging.js";

const [BLUE, OTHER] = COLOURS;
const MOST_LINES = 30;

const drawers = { intervals, groups, lines, histogram, cumulative, curves };

function draw(figure) {
  const chart = JSON.parse(figure.dataset.numbers);
  const width = Math.max(280, figure.clientWidth);
  const plots = drawers[chart.kind](chart, width);
  for (const plot of plots) {
    // Plot writes rules into a style element, which the site's policy forbids: site.css has them.
    plot.querySelector("style")?.remove();
    plot.setAttribute("aria-hidden", "true");
  }
  const note = document.createElement("figcaption");
  const reach = chart.rows && known(chart.rows).length ? chart.reach : "";
  note.textContent = `${reach}${chart.note ?? ""}`;
  figure.replaceChildren(...plots, note);
  figure.dataset.width = width;
  if (chart.kind === "histogram") choosing(figure, plots[0], chart);
}

function drawAll(within) {
  for (const figure of within.querySelectorAll("figure.chart[data-numbers]")) draw(figure);
}

const cut = (text, most = 26) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const pen = document.createElement("canvas").getContext("2d");
/** The margin that labels need: characters are narrow in one script and wide in another. */
function room(labels) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(Math.max(24, ...labels.map((label) => pen.measureText(label).width))) + 12;
}

const known = (rows) => rows.filter((row) => row.low !== null && row.high !== null);

/** Estimates below each other: a dot with its interval, and beside it what else there is. */
function intervals(chart, width) {
  const { rows } = chart;
  const second = rows.filter((row) => row.alike);
  const plain = rows.filter((row) => row.unweighted);
  const moved = rows.filter((row) => row.shifted);
  const twice = rows.filter((row) => row.twice);
  const shift = second.length || twice.length ? -4 : 0;
  if (second.length) chart.note = " The square is the pooled estimate.";
  if (plain.length) chart.note = " The diamond is the estimate without weights.";
  if (moved.length) chart.note = " The thin line is how far the forged reports could move it.";
  if (twice.length) chart.note = " The square has it with twice as many reports.";
  if (rows.some((row) => row.clear)) chart.note = " Diamonds are clear differences, at 5%.";
  const place = names(rows);
  return [
    Plot.plot({
      width,
      height: 56 + rows.length * (second.length || twice.length ? 30 : 24),
      marginLeft: room(rows.map((row) => cut(row.label))),
      marginRight: 24,
      marginBottom: 40,
      color: { type: "identity" },
      symbol: { type: "identity" },
      x: { label: `${chart.x} →`, grid: true, zero: chart.zero, nice: true },
      y: {
        type: "point",
        label: null,
        domain: place,
        tickFormat: (key) => cut(rows[key].label),
        tickSize: 0,
      },
      marks: [
        chart.zero ? Plot.ruleX([0], { strokeOpacity: 0.6 }) : null,
        Plot.ruleY(moved, {
          y: at(rows),
          x1: (d) => d.shifted[0],
          x2: (d) => d.shifted[1],
          stroke: OTHER,
        }),
        Plot.ruleY(known(rows), {
          y: at(rows),
          x1: "low",
          x2: "high",
          stroke: BLUE,
          strokeWidth: 3,
          dy: shift,
        }),
        Plot.dot(rows, {
          y: at(rows),
          x: "estimate",
          fill: (row) => (row.clear ? OTHER : BLUE),
          symbol: (row) => (row.clear ? "diamond" : "circle"),
          r: 4.5,
          dy: shift,
          title: said,
        }),
        ...[
          [second, "alike"],
          [twice, "twice"],
        ].flatMap(([some, key]) => [
          Plot.ruleY(some, {
            y: at(rows),
            x1: (d) => d[key][1],
            x2: (d) => d[key][2],
            stroke: OTHER,
            strokeWidth: 2,
            dy: 6,
          }),
          Plot.dot(some, {
            y: at(rows),
            x: (d) => d[key][0],
            symbol: "square",
            fill: OTHER,
            r: 3.5,
            dy: 6,
          }),
        ]),
        Plot.dot(plain, {
          y: at(rows),
          x: (d) => d.unweighted[0],
          symbol: "diamond",
          fill: OTHER,
          r: 4,
        }),
      ],
    }),
  ];
}

/** Small multiples: a panel for each value, in it a line for each group. */
function groups(chart, width) {
  const values = [...new Set(chart.rows.map((row) => row.label))];
  const byPair = new Set(chart.rows.map((row) => row.group)).size > 6;
  return byPair
    ? panels(chart, width, [...new Set(chart.rows.map((row) => row.group))], "group", "label")
    : panels(chart, width, values, "label", "group");
}

function panels(chart, width, heads, head, inner) {
  const wide = width > 620 && heads.length > 1 ? 2 : 1;
  const ends = chart.rows.flatMap((row) => [row.low ?? row.estimate, row.high ?? row.estimate]);
  const domain = [Math.min(0, ...ends), Math.max(...ends)];
  const kinds = [...new Set(chart.rows.map((row) => row[inner]))];
  const left = room(kinds.map((kind) => cut(kind, 20)));
  return heads.map((name) => {
    const rows = chart.rows.filter((row) => row[head] === name);
    const look = (row) => kinds.indexOf(row[inner]) % SYMBOLS.length;
    const plot = Plot.plot({
      className: wide === 2 ? "half" : "whole",
      width: Math.floor(width / wide) - 8,
      height: 58 + rows.length * 20,
      marginLeft: left,
      marginTop: 24,
      x: { label: null, grid: true, domain, nice: true, ticks: 4 },
      y: {
        label: null,
        domain: kinds.filter((kind) => rows.some((row) => row[inner] === kind)),
        tickFormat: (kind) => cut(kind, 20),
        tickSize: 0,
      },
      symbol: { type: "identity" },
      marks: [
        Plot.text([cut(name)], { frameAnchor: "top-left", dy: -20, fontWeight: 600, fontSize: 12 }),
        Plot.ruleX([0], { strokeOpacity: 0.5 }),
        Plot.ruleY(known(rows), {
          y: inner,
          x1: "low",
          x2: "high",
          stroke: (d) => COLOURS[look(d)],
          strokeWidth: 3,
        }),
        Plot.dot(rows, {
          y: inner,
          x: "estimate",
          fill: (d) => COLOURS[look(d)],
          symbol: (d) => SYMBOLS[look(d)],
          r: 4.5,
          title: said,
        }),
      ],
      color: { type: "identity" },
    });
    return plot;
  });
}

/** Many groups, such as periods: a panel for each value, with its estimates along them. */
function lines(chart, width) {
  const values = [...new Set(chart.rows.map((row) => row.label))].slice(0, MOST_LINES);
  const ends = chart.rows.flatMap((row) => [row.low ?? row.estimate, row.high ?? row.estimate]);
  const wide = width > 620 && values.length > 1 ? 2 : 1;
  const few = Math.max(1, Math.ceil(chart.groups.length / (width / wide / 90)));
  return values.map((value) => {
    const rows = chart.rows.filter((row) => row.label === value);
    return Plot.plot({
      className: wide === 2 ? "half" : "whole",
      width: Math.floor(width / wide) - 8,
      height: 170,
      marginTop: 26,
      marginLeft: 52,
      x: {
        type: "point",
        domain: chart.groups,
        label: null,
        ticks: chart.groups.filter((_, place) => place % few === 0),
      },
      y: {
        label: null,
        grid: true,
        domain: [Math.min(...ends), Math.max(...ends)],
        nice: true,
        ticks: 4,
      },
      marks: [
        Plot.text([cut(value)], {
          frameAnchor: "top-left",
          dy: -22,
          fontWeight: 600,
          fontSize: 12,
        }),
        Plot.ruleX(known(rows), {
          x: "group",
          y1: "low",
          y2: "high",
          stroke: BLUE,
          strokeWidth: 2,
        }),
        Plot.lineY(rows, { x: "group", y: "estimate", stroke: BLUE, strokeOpacity: 0.5 }),
        Plot.dot(rows, { x: "group", y: "estimate", fill: BLUE, r: 3.5, title: said }),
      ],
    });
  });
}

function histogram(chart, width) {
  const { rows } = chart;
  return [
    Plot.plot({
      width,
      height: 290,
      marginLeft: 52,
      marginBottom: 40,
      x: { label: `${cut(chart.x, 44)} →`, nice: false },
      y: { label: "↑ share", grid: true },
      marks: [
        Plot.rectY(rows, {
          x1: "left",
          x2: "right",
          y: "estimate",
          fill: "var(--sky)",
          fillOpacity: 0.7,
          insetRight: 1,
          title: said,
        }),
        Plot.ruleX(known(rows), {
          x: (d) => (d.left + d.right) / 2,
          y1: "low",
          y2: "high",
          stroke: BLUE,
          strokeWidth: 2,
        }),
        Plot.ruleY([0], { strokeOpacity: 0.6 }),
      ],
    }),
  ];
}

function cumulative(chart, width) {
  const { rows } = chart;
  return [
    Plot.plot({
      width,
      height: 290,
      marginLeft: 52,
      marginBottom: 40,
      x: { label: `${cut(chart.x, 44)} →` },
      y: { label: "↑ share below", grid: true, domain: [0, 1] },
      marks: [
        Plot.areaY(known(rows), {
          x: "at",
          y1: "low",
          y2: "high",
          fill: "var(--sky)",
          fillOpacity: 0.5,
        }),
        Plot.lineY(rows, { x: "at", y: "estimate", stroke: BLUE, strokeWidth: 2 }),
      ],
    }),
  ];
}

/** Rows by their places: two may have the same label. */
const names = (rows) => rows.map((_, place) => place);
const at = (rows) => (row) => rows.indexOf(row);

function said(row) {
  if (row.said) return row.said;
  const ends = row.low === null ? "" : ` (${row.low.toFixed(4)} to ${row.high.toFixed(4)})`;
  return `${row.group ? `${row.group}, ` : ""}${row.label}: ${row.estimate.toFixed(4)}${ends}`;
}

drawAll(document);
document.addEventListener("htmx:load", (event) => drawAll(event.target));
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    for (const figure of document.querySelectorAll("figure.chart[data-numbers]")) {
      if (Number(figure.dataset.width) !== Math.max(280, figure.clientWidth)) draw(figure);
    }
  }, 150);
});
