// Curves on logarithmic scales, for charts.js.
import * as Plot from "./vendor/plot.js";
import { COLOURS, SYMBOLS } from "./palette.js";

const APART = 13;

/** Return the planner's curves: a line for each question, with its name at its end. */
export function curves(chart, width) {
  const lines = chart.lines.map((line, place) => ({
    name: line.name,
    colour: COLOURS[place % COLOURS.length],
    symbol: SYMBOLS[place % SYMBOLS.length],
    points: line.points.map(([x, y]) => ({ x, y })),
  }));
  const bare = Plot.plot(options(chart, lines, width, []));
  const labels = ends(lines, bare.scale("y"));
  return [Plot.plot(options(chart, lines, width, labels))];
}

function options(chart, lines, width, labels) {
  const longest = Math.max(...lines.map((line) => line.name.length), 1);
  const percent = (y) => `${Number((100 * y).toPrecision(2))}%`;
  return {
    width,
    height: width < 500 ? 300 : 340,
    marginLeft: 52,
    marginBottom: 40,
    marginRight: 20 + longest * 6.4,
    x: {
      // Not Plot's logarithmic scale, which leaves out the labels of most ticks.
      label: `${chart.x} →`,
      grid: true,
      ticks: lines[0]?.points.map(({ x }) => Math.log(x)).filter((_, n) => width > 700 || n % 2),
      tickFormat: (x) => whole(Math.exp(x)).toLocaleString("en", { notation: "compact" }),
    },
    y: { type: "log", label: `↑ ${chart.y}`, grid: true, ticks: 5, tickFormat: percent },
    symbol: { type: "identity" },
    color: { type: "identity" },
    marks: [
      Plot.ruleX([Math.log(chart.at)], { strokeDasharray: "4 3", strokeOpacity: 0.7 }),
      ...lines.flatMap(({ name, colour, symbol, points }) => [
        Plot.lineY(points, { x: place, y: "y", stroke: colour, strokeWidth: 2 }),
        Plot.dot(points, {
          x: place,
          y: "y",
          fill: colour,
          symbol,
          r: 4,
          title: ({ x, y }) => `${name}, ${x.toLocaleString("en")}: ${percent(y)}`,
        }),
      ]),
      ...labels.map(({ name, colour, x, y }) =>
        Plot.text([name], {
          x: [Math.log(x)],
          y: [y],
          fill: colour,
          dx: 8,
          textAnchor: "start",
          fontSize: 12,
        }),
      ),
    ],
  };
}

const place = ({ x }) => Math.log(x);
const whole = (x) => Number(x.toPrecision(6));

/** Place the lines' names at their ends, moved apart where they would lie on each other. */
function ends(lines, scale) {
  const found = lines
    .filter(({ points }) => points.length)
    .map(({ name, colour, points }) => {
      const { x, y } = points.at(-1);
      return { name, colour, x, at: scale.apply(y) };
    })
    .sort((one, other) => one.at - other.at);
  const middle = found.reduce((sum, label) => sum + label.at, 0) / found.length;
  for (let place = 1; place < found.length; place++)
    found[place].at = Math.max(found[place].at, found[place - 1].at + APART);
  const moved = found.reduce((sum, label) => sum + label.at, 0) / found.length - middle;
  return found.map((label) => ({ ...label, y: scale.invert(label.at - moved) }));
}
