// Curves over an axis: means, a band over seeds, a dot at every evaluation; values at the pointer.
const MARGIN = { right: 16, top: 14, bottom: 46 }, MOST_IN_TIP = 14;

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (isNumber(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? [low, high] : [0, 1];
}

function axisOf(axis, values) {
  const kept = axis.log ? values.filter((value) => value > 0) : values;
  const whole = /^(round|requests|nodes|updates|clients)\b/.test(axis.title);
  let [low, high] = axis.range && !axis.log ? axis.range : extent(kept);
  if (whole && low === high) [low, high] = [low - 1, high + 1]; // one round stands in the middle
  const [size, unit] = axis.bytes ? byteUnit(high) : [1, ""];
  const title = unit ? `${axis.title} (${unit}${axis.log ? ", log scale" : ""})` : axis.title + (axis.log ? " (log scale)" : "");
  return { low: low / size, high: high / size, size, title, log: Boolean(axis.log), whole, at: (value) => value / size };
}

// Frame, grid, ticks and titles; places of values.
function drawAxes(plot, x, y, label) {
  const width = Math.max(plotWidth(plot), 240), height = Math.round(Math.min(Math.max(width * 0.56, 230), 380));
  const inner = makeScale({ ...y, from: 0, to: 1 }), yTicks = inner.ticks(height / 60);
  const left = 30 + 7 * Math.max(...yTicks.map((tick) => inner.shown(tick).length));
  const px = makeScale({ ...x, from: left, to: width - MARGIN.right });
  const py = makeScale({ ...y, from: height - MARGIN.bottom, to: MARGIN.top });
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: 0 });
  for (const tick of yTicks) {
    image.append(svg("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: py(tick), y2: py(tick) }));
    image.append(svg("text", { class: "tick", x: left - 7, y: py(tick) + 4, "text-anchor": "end" }, inner.shown(tick)));
  }
  let last = -Infinity;
  for (const tick of x.labels ? [] : px.ticks(width / 90)) {
    const text = px.shown(tick), half = 3.6 * text.length, at = Math.min(Math.max(px(tick), half), width - half);
    image.append(svg("line", { class: "axis", x1: px(tick), x2: px(tick), y1: height - MARGIN.bottom, y2: height - MARGIN.bottom + 4 }));
    if (at - half < last + 8) continue;
    last = at + half;
    image.append(svg("text", { class: "tick", x: at, y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, text));
  }
  image.append(svg("line", { class: "axis", x1: left, x2: width - MARGIN.right, y1: height - MARGIN.bottom, y2: height - MARGIN.bottom }));
  image.append(svg("text", { class: "title", x: (left + width - MARGIN.right) / 2, y: height - 6, "text-anchor": "middle" },
    shorten(x.title, Math.floor(width / 8))));
  image.append(svg("text", { class: "title", transform: `translate(13 ${(MARGIN.top + height - MARGIN.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
    shorten(y.title, Math.floor((height - MARGIN.bottom) / 6.6))));
  plot.querySelector("svg")?.remove();
  plot.prepend(image);
  return { image, px, py, width, height, left };
}

function drawLines(figure, parts, spec) {
  const shown = visible(spec.series);
  drawLegend(parts.legend, spec.series);
  const x = axisOf(spec.x, shown.flatMap((one) => one.x));
  const y = axisOf(spec.y, shown.flatMap((one) => [...(one.low || one.mean), ...(one.high || one.mean)]));
  const drawn = drawAxes(parts.plot, x, y, `${spec.y.title} against ${spec.x.title}`);
  const px = (value) => drawn.px(x.at(value)), py = (value) => drawn.py(Math.min(Math.max(y.at(value), y.low), y.high));
  const usable = (one, i) => isNumber(one.x[i]) && isNumber(one.mean[i]) && !(x.log && one.x[i] <= 0) && !(y.log && one.mean[i] <= 0);
  drawReferences(drawn, parts.legend, (spec.references || []).filter((one) => y.low <= one.value && one.value <= y.high));
  for (const one of shown) drawSeries(drawn.image, one, px, py, usable);
  for (const mark of spec.verticals || []) {
    if (hiddenArms.has(mark.label)) continue;
    const at = px(mark.x), colour = `stroke:${colourOf(mark.style)}`;
    drawn.image.append(svg("line", { class: "moment", x1: at, x2: at, y1: MARGIN.top, y2: drawn.height - MARGIN.bottom, style: colour }));
    const end = at > drawn.width * 0.7 ? "end" : "start";
    drawn.image.append(svg("text", { class: "tick over", x: at + (end === "end" ? -5 : 5), y: MARGIN.top + 11 + 15 * mark.place, "text-anchor": end },
      fitted(mark.text, end === "end" ? at - drawn.left - 10 : drawn.width - at - 12, 12.5)));
  }
  pointAt(figure, parts, spec, drawn, shown.map((one) => ({ ...one, use: (i) => usable(one, i) })), px, py);
  figure.rows = () => lineRows(spec);
}

// What a score is compared with: a thin line across, its name and value below the names of the curves.
const REFERENCE_DASHES = ["1 4", "6 4", "6 3 1 3"];

function drawReferences(drawn, legend, references) {
  references.forEach((one, i) => {
    const at = drawn.py(one.value), style = `stroke-dasharray:${REFERENCE_DASHES[i % REFERENCE_DASHES.length]}`;
    drawn.image.append(svg("line", { class: "reference-line", x1: drawn.left, x2: drawn.width - MARGIN.right, y1: at, y2: at, style }));
    const image = svg("svg", { class: "swatch", viewBox: "0 0 26 10", width: 26, height: 10, "aria-hidden": "true" });
    image.append(svg("line", { class: "reference-line", x1: 0, x2: 26, y1: 5, y2: 5, style }));
    legend.append(el("span", { class: "entry", title: one.label }, image, el("bdi", {}, shorten(one.label, 48)), ` ${shownNumber(one.value)}`));
  });
}

function drawSeries(image, one, px, py, usable) {
  const colour = colourOf(one.style), runs = [[]];
  one.x.forEach((_, i) => (usable(one, i) ? runs.at(-1).push(i) : runs.at(-1).length && runs.push([])));
  for (const run of runs) {
    if (one.low && run.length > 1) {
      const up = run.map((i) => `${px(one.x[i]).toFixed(1)},${py(one.high[i]).toFixed(1)}`);
      const down = run.map((i) => `${px(one.x[i]).toFixed(1)},${py(one.low[i]).toFixed(1)}`).reverse();
      image.append(svg("polygon", { class: "band", points: [...up, ...down].join(" "), style: `fill:${colour}` }));
    }
    const points = run.map((i) => `${px(one.x[i]).toFixed(1)},${py(one.mean[i]).toFixed(1)}`).join(" ");
    image.append(svg("polyline", { class: "line", points, style: `stroke:${colour};stroke-dasharray:${dashOf(one.style) || "none"}` }));
    if (one.dots === false) continue;
    const radius = run.length > 60 ? 1.4 : 2.6;
    for (const i of run) image.append(svg("circle", { class: "dot", cx: px(one.x[i]), cy: py(one.mean[i]), r: radius, style: `fill:${colour}` }));
  }
}

// Mouse, finger and arrow keys choose a place on the axis; all values there are shown and said.
function pointAt(figure, parts, spec, drawn, series, px, py) {
  const tip = tipFor(parts.plot), cursor = svg("g", { class: "cursor" });
  drawn.image.append(cursor);
  const places = [...new Set(series.flatMap((one) => one.x.filter((_, i) => one.use(i))))].sort((a, b) => a - b);
  let chosen = -1;
  const hide = () => { cursor.replaceChildren(); tip.hide(); chosen = -1; };
  const shownY = spec.y.bytes ? shownBytes : shownNumber;
  const shownX = (value) => (spec.x.bytes ? shownBytes(value) : `${spec.x.title.replace(/ \(.*/, "")} ${shownNumber(value)}`);
  function show(place, aloud) {
    if (!places.length) return;
    chosen = Math.min(Math.max(place, 0), places.length - 1);
    const value = places[chosen], at = px(value), lines = [el("b", {}, shownX(value))], said = [shownX(value)];
    cursor.replaceChildren(svg("line", { x1: at, x2: at, y1: MARGIN.top, y2: drawn.height - MARGIN.bottom }));
    for (const one of series) {
      let near = -1;
      one.x.forEach((x, i) => { if (one.use(i) && (near < 0 || Math.abs(px(x) - at) < Math.abs(px(one.x[near]) - at))) near = i; });
      if (near < 0 || Math.abs(px(one.x[near]) - at) > (spec.x.near ?? 40)) continue;
      cursor.append(svg("circle", { cx: px(one.x[near]), cy: py(one.mean[near]), r: 4.5, style: `fill:${colourOf(one.style)}` }));
      const band = one.low && one.low[near] !== one.high[near] ? ` (${shownY(one.low[near])}–${shownY(one.high[near])})` : "";
      said.push(`${one.label}: ${shownY(one.mean[near])}${band}`);
      if (lines.length <= MOST_IN_TIP) {
        lines.push(el("span", {}, swatch(one.style), el("b", {}, shownY(one.mean[near])), `${band} `, el("bdi", {}, shorten(one.label, 26))));
      }
    }
    if (said.length > MOST_IN_TIP + 1) lines.push(el("span", {}, `… and ${said.length - 1 - MOST_IN_TIP} more`));
    // Where the curves are not: below them if they run high, above them if they run low.
    const heights = [...cursor.querySelectorAll("circle")].map((dot) => Number(dot.getAttribute("cy")));
    const high = heights.reduce((a, b) => a + b, 0) / Math.max(heights.length, 1) < drawn.height / 2;
    tip.show(at * parts.plot.clientWidth / drawn.width, high ? drawn.height : MARGIN.top, ...lines);
    if (aloud) say(figure, said.join("; "));
  }
  const nearest = (event) => {
    const box = drawn.image.getBoundingClientRect(), x = (event.clientX - box.left) * drawn.width / box.width;
    return places.reduce((best, value, i) => (Math.abs(px(value) - x) < Math.abs(px(places[best]) - x) ? i : best), 0);
  };
  drawn.image.addEventListener("pointermove", (event) => show(nearest(event)));
  drawn.image.addEventListener("pointerdown", (event) => show(nearest(event)));
  drawn.image.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  drawn.image.addEventListener("blur", hide);
  drawn.image.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: chosen + 1, ArrowLeft: chosen < 0 ? places.length - 1 : chosen - 1, Home: 0, End: places.length - 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key], true);
  });
}

function lineRows(spec) {
  const rows = [["series", spec.x.title, spec.y.title, "lowest seed", "highest seed"]];
  for (const one of spec.series) {
    one.x.forEach((x, i) => rows.push([one.label, x, one.mean[i], (one.low || one.mean)[i], (one.high || one.mean)[i]]));
  }
  for (const one of spec.references || []) rows.push([`reference: ${one.label}`, "", one.value, "", ""]);
  return rows;
}
