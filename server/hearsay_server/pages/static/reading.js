// What a code says, as the server's `person/readings.py` describes its form. Pure: no page, no network.

/** Return the integer that bytes hold, the least significant first. */
function integer(bytes) {
  return bytes.reduceRight((value, byte) => value * 256 + byte, 0);
}

/** Return the places of the bits that are 1. */
function ones(bytes) {
  const found = [];
  bytes.forEach((byte, at) => {
    for (let bit = 0; bit < 8; bit++) if ((byte >> bit) & 1) found.push(8 * at + bit);
  });
  return found;
}

/** Return the bins of a pattern, each moved on by a shift along each side. */
function moved(bins, shift, sides) {
  const columns = sides.at(-1);
  const rows = sides.length > 1 ? sides[0] : 1;
  const [down, right] = [Math.floor(shift / columns), shift % columns];
  return bins
    .map((bin) => {
      const row = (Math.floor(bin / columns) + down) % rows;
      return row * columns + ((bin + right) % columns);
    })
    .sort((a, b) => a - b);
}

/**
 * Return what a code says: `places` are those of the labels that it speaks for, `number` what it counts as.
 *
 * `no` is true where it says that its one label does not hold, `reveals` where it gives the answer away. Nothing
 * is there where the code names nothing.
 */
export function read(reading, code) {
  switch (reading.form) {
    case "one":
      return { places: [integer(code)] };
    case "mask": {
      const places = ones(code);
      const sure = places.filter((place) => reading.sure.includes(place));
      return sure.length ? { places: sure, reveals: true } : { places };
    }
    case "subsets": {
      const within = new Set(ones(code.slice(1)));
      const names = reading.names[code[0]];
      const places = reading.classes.flatMap((each, place) =>
        names[each][within.has(place) ? 1 : 0] ? [place] : [],
      );
      return { places, reveals: reading.reveals.includes(code[0]) };
    }
    case "list": {
      const places = [];
      for (let at = 0; at < code.length; at += reading.bytes) {
        places.push(integer(code.slice(at, at + reading.bytes)));
      }
      return { places };
    }
    case "bit": {
      const value = integer(code);
      return { places: [Math.floor(value / 2)], no: value % 2 === 0 };
    }
    case "scores": {
      const value = integer(code);
      const beyond = value - reading.head.length;
      return {
        number: beyond < 0 ? reading.head[value] : reading.first + reading.step * beyond,
        outside: reading.tells?.includes(value) ? reading.outside : undefined,
      };
    }
    case "table": {
      const value = integer(code);
      return { places: reading.of[value], reveals: reading.reveals.includes(value) };
    }
    case "hash": {
      const { prime, buckets, k } = reading;
      const value = integer(code);
      const [seed, bucket] = [Math.floor(value / buckets), value % buckets];
      const [a, b] = [Math.floor(seed / prime), seed % prime];
      const hash = (v) => Math.floor((((a * v + b) % prime) * buckets) / prime);
      return { places: Array.from({ length: k }, (_, v) => v).filter((v) => hash(v) === bucket) };
    }
    case "waves": {
      const bins = reading.sides.reduce((a, b) => a * b);
      const value = integer(code);
      const pattern = reading.patterns[Math.floor(value / bins)];
      return { places: moved(pattern, value % bins, reading.sides) };
    }
    default:
      return {};
  }
}

/** Return the name of a place; a set's blanks have none of their own. */
export function named(labels, place) {
  return labels[place] ?? `blank ${place - labels.length + 1}`;
}

/** Return in words what a code says. */
export function inWords(reading, labels, code) {
  const { places, number, outside, no, reveals } = read(reading, code);
  const hex = Array.from(code.slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const raw = code.length > 8 ? `${hex} …` : hex;
  if (number !== undefined) {
    const tells = outside ? ` and tells that the number is not in ${outside}` : "";
    return `a code that counts as ${shortened(number)}${tells} (bytes ${raw})`;
  }
  if (places === undefined) return `the bytes ${raw}, which name no answer`;
  const names = places.slice(0, 12).map((place) => `“${named(labels, place)}”`);
  if (places.length > 12) names.push(`${places.length - 12} more`);
  if (no !== undefined) return `${no ? "no" : "yes"} to ${names[0]} (bytes ${raw})`;
  const listed = names.length ? names.join(", ") : "none of the answers";
  if (reading.fits) return `a code that fits ${listed} (bytes ${raw})`;
  return `${listed}${reveals ? ", which gives the answer away" : ""} (bytes ${raw})`;
}

/** Return a number with at most four digits that matter. */
export function shortened(number) {
  const digits = Math.abs(number) >= 1000 ? 0 : 4;
  return digits
    ? String(Number(number.toPrecision(digits)))
    : Math.round(number).toLocaleString("en");
}
