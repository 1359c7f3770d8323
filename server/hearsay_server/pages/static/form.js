// The fields of a survey's form, as the SDK takes answers: an answer that is left out is withheld.

/** Return the answers of a form; `fields` are those of the page's data, `values` the values by field. */
export function answersOf(form, fields, valuesOf) {
  const answers = {};
  for (const { name, kind } of fields) {
    const inputs = [...form.querySelectorAll(`[name="${CSS.escape(name)}"]`)];
    const values = valuesOf(name);
    if (kind === "one") {
      const [input] = inputs;
      const chosen =
        input?.tagName === "SELECT" ? input.value : inputs.find((i) => i.checked)?.value;
      if (chosen) answers[name] = values[Number(chosen)];
    } else if (kind === "several") {
      const [input] = inputs;
      const chosen =
        input?.tagName === "SELECT"
          ? [...input.selectedOptions].map((option) => option.value)
          : inputs.filter((i) => i.checked).map((i) => i.value);
      if (chosen.length) answers[name] = chosen.map((place) => values[Number(place)]);
    } else if (kind === "ratings") {
      const given = inputs.filter((input) => input.value !== "");
      if (given.length) {
        answers[name] = Object.fromEntries(
          given.map((input) => [values[Number(input.dataset.key)], input.valueAsNumber]),
        );
      }
    } else {
      const [input] = inputs;
      if (input.value !== "") answers[name] = kind === "number" ? input.valueAsNumber : input.value;
    }
  }
  return answers;
}

/** Return the maps that are chosen in a form, by attribute. */
export function mapsOf(form) {
  const chosen = [...form.querySelectorAll("[data-map]")].filter((select) => select.value);
  return Object.fromEntries(chosen.map((select) => [select.dataset.map, select.value]));
}

/** Return the data that the page has for its scripts. */
export function pageData() {
  return JSON.parse(document.getElementById("asked-data").textContent);
}

/** Return the bytes of a text in base64. */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

/** Return the level whose section is shown. */
export function levelShown() {
  return document.querySelector("section.level:not([hidden])").dataset.level;
}
