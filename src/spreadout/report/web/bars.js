// Bars, one group at each label; values at the pointer, by finger and by arrow keys.
function drawBars(figure, parts, spec) {
  const shown = visible(spec.series);
  drawLegend(parts.legend, spec.series, "area");
  const values = shown.flatMap((one) => one.values.filter(isNumber));
  const range = spec.y.range || [Math.min(0, ...values), Math.max(...values, 1e-9)];
  const y = axisOf({ ...spec.y, range }, values);
  const count = spec.labels.length, x = { low: 0, high: count, title: spec.x.title, labels: true };
  const drawn = drawAxes(parts.plot, x, y, `${spec.y.title} by ${spec.x.title}`);
  const floor = drawn.py(Math.max(y.low, 0)), room = drawn.px(1) - drawn.px(0), each = Math.min((room * 0.84) / Math.max(shown.length, 1), 56), edge = (room - each * shown.length) / 2;
  const widest = Math.max(...spec.labels.map((label) => Math.min(label.length, 14))) * 6.6 + 8, every = Math.ceil(widest / room);
  spec.labels.forEach((label, i) => {
    if (i % every === 0) {
      const half = textWidth(shorten(label, 14), 12.5) / 2 + 2, at = Math.min(Math.max(drawn.px(i + 0.5), half), drawn.width - half);
      drawn.image.append(svg("text", { class: "tick", x: at, y: drawn.height - MARGIN.bottom + 18, "text-anchor": "middle" }, shorten(label, 14)));
    }
    shown.forEach((one, k) => {
      if (!isNumber(one.values[i])) return;
      const top = drawn.py(Math.min(Math.max(y.at(one.values[i]), y.low), y.high)), left = drawn.px(i) + edge + k * each;
      drawn.image.append(svg("rect", { class: "bar", x: left, width: Math.max(each - 1, 0.8), y: Math.min(top, floor),
        height: Math.max(Math.abs(floor - top), 0.6), style: `fill:${colourOf(one.style)}` }));
    });
  });
  figure.rows = () => [[spec.x.title, ...spec.series.map((one) => one.label), ...Object.keys(spec.notes || {})],
    ...spec.labels.map((label, i) => [label, ...spec.series.map((one) => one.values[i]), ...Object.values(spec.notes || {}).map((n) => n[i])])];
  pointAtBars(figure, parts, spec, drawn, shown);
}

function pointAtBars(figure, parts, spec, drawn, shown) {
  const tip = tipFor(parts.plot), cursor = svg("g", { class: "cursor" });
  drawn.image.append(cursor);
  let chosen = -1;
  const hide = () => { cursor.replaceChildren(); tip.hide(); chosen = -1; };
  function show(place, aloud) {
    chosen = Math.min(Math.max(place, 0), spec.labels.length - 1);
    const title = `${spec.labels[chosen]} ${spec.x.unit || ""}`, lines = [el("b", {}, title)], said = [title];
    for (const one of shown) {
      said.push(`${one.label}: ${shownNumber(one.values[chosen])}`);
      lines.push(el("span", {}, swatch(one.style, "area"), el("b", {}, shownNumber(one.values[chosen])), " ", el("bdi", {}, shorten(one.label, 34))));
    }
    for (const name in spec.notes || {}) lines.push(el("span", {}, `${name}: ${shownNumber(spec.notes[name][chosen])}`));
    const left = drawn.px(chosen), right = drawn.px(chosen + 1);
    cursor.replaceChildren(svg("rect", { class: "hit", x: left, width: right - left, y: MARGIN.top, height: drawn.height - MARGIN.top - MARGIN.bottom }));
    tip.show((left + right) / 2 * parts.plot.clientWidth / drawn.width, MARGIN.top, ...lines);
    if (aloud) say(figure, said.join("; "));
  }
  const nearest = (event) => {
    const box = drawn.image.getBoundingClientRect(), x = (event.clientX - box.left) * drawn.width / box.width;
    return Math.floor((x - drawn.px(0)) / (drawn.px(1) - drawn.px(0)));
  };
  for (const kind of ["pointermove", "pointerdown"]) drawn.image.addEventListener(kind, (event) => show(nearest(event)));
  drawn.image.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  drawn.image.addEventListener("blur", hide);
  drawn.image.addEventListener("keydown", (event) => {
    const last = spec.labels.length - 1;
    const steps = { ArrowRight: chosen + 1, ArrowLeft: chosen < 0 ? last : chosen - 1, Home: 0, End: last };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key], true);
  });
}
