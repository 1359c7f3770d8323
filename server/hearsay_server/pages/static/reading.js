// What a code says, as the server's `surveys/readings.py` describes its form. Pure: no page, no network.

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

/** Return the integers of some bytes each. */
function integers(bytes, width) {
  const found = [];
  for (let at = 0; at < bytes.length; at += width) found.push(integer(bytes.slice(at, at + width)));
  return found;
}

/** Return the places of the labels that a hash function puts into a bucket that `fits`. */
function hashedTo(fits, [a, b, c], { prime, buckets, k }) {
  const hash = (v) => Math.floor((((((a * v + b) % prime) * v + c) % prime) * buckets) / prime);
  return Array.from({ length: k }, (_, v) => v).filter((v) => fits(hash(v)));
}

/** Return whether an integer below 2**31 has an odd number of bits. */
function isOdd(number) {
  let odd = false;
  for (let rest = number; rest; rest &= rest - 1) odd = !odd;
  return odd;
}

/** Return a text with its names in braces replaced. */
function filled(words, values) {
  return words.replace(/{(\w+)}/g, (_, name) => values[name]);
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
 * It says no to the labels at the places `denied`, if any was asked, `reveals` where it gives the answer away,
 * and `told` is in words. Nothing is there where the code names nothing. The server says the same:
 * `surveys/describe.py`.
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
    case "list":
      return { places: integers(code, reading.bytes) };
    case "answers": {
      const answers = integers(code, reading.bytes);
      const of = (yes) =>
        answers.filter((each) => each % 2 === yes).map((each) => (each - yes) / 2);
      return { places: of(1), denied: of(0) };
    }
    case "levels": {
      const most = Math.max(...code);
      return { places: [...code.keys()].filter((place) => code[place] === most) };
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
      const value = integer(code);
      const [seed, bucket] = [Math.floor(value / reading.buckets), value % reading.buckets];
      const line = [Math.floor(seed / reading.prime), seed % reading.prime];
      return { places: hashedTo((each) => each === bucket, [0, ...line], reading) };
    }
    case "sketch": {
      if (reading.bytes) {
        const within = new Set(ones(code.slice(reading.bytes)));
        const line = reading.functions[integer(code.slice(0, reading.bytes))];
        return { places: hashedTo((each) => within.has(each), line, reading) };
      }
      const value = integer(code);
      const [row, sign] = [1 + ((value % reading.codes) >> 1), value % 2 === 1];
      const line = reading.functions[Math.floor(value / reading.codes)];
      return { places: hashedTo((each) => isOdd(row & each) === sign, line, reading) };
    }
    case "filter": {
      const [group, set] = [code.slice(0, reading.bytes), ones(code.slice(reading.bytes)).length];
      return { told: filled(reading.words, { ...reading, group: integer(group), set }) };
    }
    case "beginning": {
      const [letters, hash] = [reading.letters[code[0]], integer(code.slice(1, 5))];
      return { told: filled(reading.words, { ...reading, letters, function: hash }) };
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
  const { places, number, outside, denied, reveals, told } = read(reading, code);
  const hex = Array.from(code.slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const raw = code.length > 8 ? `${hex} …` : hex;
  if (number !== undefined) {
    const tells = outside ? ` and tells that the number is not in ${outside}` : "";
    return `a code that counts as ${shortened(number)}${tells} (bytes ${raw})`;
  }
  if (told !== undefined) return `${told} (bytes ${raw})`;
  if (places === undefined) return `the bytes ${raw}, which name no answer`;
  const yes = listed(labels, places);
  if (denied !== undefined) {
    const no = listed(labels, denied);
    return `${[yes && `yes to ${yes}`, no && `no to ${no}`].filter(Boolean).join("; ")} (bytes ${raw})`;
  }
  const names = yes || "none of the answers";
  if (reading.fits) return `a code that fits ${names} (bytes ${raw})`;
  return `${names}${reveals ? ", which gives the answer away" : ""} (bytes ${raw})`;
}

/** Return the labels at some places in words; of many the first and how many more there are. */
function listed(labels, places) {
  const names = places.slice(0, 12).map((place) => `“${named(labels, place)}”`);
  if (places.length > 12) names.push(`${places.length - 12} more`);
  return names.join(", ");
}

/** Return a number with at most four digits that matter. */
export function shortened(number) {
  const digits = Math.abs(number) >= 1000 ? 0 : 4;
  return digits
    ? String(Number(number.toPrecision(digits)))
    : Math.round(number).toLocaleString("en");
}
