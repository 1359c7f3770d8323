// A range of a number, chosen by dragging over the bins of its histogram. Without a mouse, and
// without scripts, the two fields of the form below do the same.

/** Let a range be chosen on a plot: it ends where bins do, and goes into the form, or to its page. */
export function choosing(figure, plot, chart) {
  const scale = plot.scale("x");
  const band = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  band.setAttribute("class", "chosen");
  band.setAttribute("y", 20);
  band.setAttribute("height", 230);
  plot.append(band);
  plot.classList.add("choosing");
  const fields = document.querySelectorAll('input[name="between"]');
  let from = null;

  const binAt = (event) => {
    const box = plot.getBoundingClientRect();
    const width = Number(plot.getAttribute("width"));
    const x = scale.invert(((event.clientX - box.left) / box.width) * width);
    const found = chart.rows.findIndex((row) => x < row.right);
    return found < 0 ? chart.rows.length - 1 : found;
  };
  const show = (first, last) => {
    const [a, b] = [chart.rows[first].left, chart.rows[last].right].map(scale.apply);
    band.setAttribute("x", Math.min(a, b));
    band.setAttribute("width", Math.abs(b - a));
  };
  const ends = (event) => {
    const other = binAt(event);
    return [Math.min(from, other), Math.max(from, other)];
  };

  plot.addEventListener("pointerdown", (event) => {
    from = binAt(event);
    plot.setPointerCapture(event.pointerId);
    show(from, from);
    event.preventDefault();
  });
  plot.addEventListener("pointermove", (event) => {
    if (from !== null) show(...ends(event));
  });
  plot.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [first, last] = ends(event);
    from = null;
    const [low, high] = [chart.rows[first].left, chart.rows[last].end];
    if (fields.length === 2) {
      [fields[0].value, fields[1].value] = [low, high];
      fields[0].form.requestSubmit();
      return;
    }
    const address = new URL(location.href);
    address.pathname = address.pathname.replace(/[^/]*$/, "between");
    for (const name of ["bins", "between"]) address.searchParams.delete(name);
    address.searchParams.append("between", low);
    address.searchParams.append("between", high);
    location.assign(address);
  });
}
