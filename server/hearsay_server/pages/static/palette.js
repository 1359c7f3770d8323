// What tells the lines of a chart apart: colours that the colour-blind see, and symbols beside them.

export const COLOURS = [
  "blue",
  "vermillion",
  "green",
  "purple",
  "sky",
  "orange",
  "ink",
  "quiet",
].map((name) => `var(--${name})`);
export const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "cross", "plus"];
