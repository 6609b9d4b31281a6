// Clients as points: what they hold, move and get, any of it against any other.
const OF_CLIENTS = {
  examples: ["examples held", (own, i) => own.examples[i]],
  classes: ["classes held", (own, i) => (own.holds[i] ? own.holds[i].length : null)],
  visits: ["rounds taken part in", (own, i) => own.visits[i]],
  down: ["bytes received", (own, i) => own.down[i], true],
  up: ["bytes sent", (own, i) => own.up[i], true],
  score: ["score on its classes (%)", (own, i) => (own.score[i] === null ? null : 100 * own.score[i])],
};

function drawClients(figure, data) {
  const arms = data.arms.filter((arm) => arm.details && arm.details.clients), parts = frame(figure);
  const wanted = { x: figure.dataset.x, y: figure.dataset.y, log: "linear" };
  const options = Object.entries(OF_CLIENTS).map(([key, [title]]) => [key, title]);
  const change = (key) => (value) => { wanted[key] = value; draw(); };
  parts.controls.append(select("Show", options, wanted.y, change("y")), select("against", options, wanted.x, change("x")),
    select("scale", [["linear", "linear"], ["log", "log"]], wanted.log, change("log")));
  function draw() {
    const [xTitle, xOf, xBytes] = OF_CLIENTS[wanted.x], [yTitle, yOf, yBytes] = OF_CLIENTS[wanted.y];
    const series = arms.map((arm) => ({ label: arm.label, style: arm.style, always: true, points: arm.details.clients.number.map((number, i) =>
      ({ number, x: xOf(arm.details.clients, i), y: yOf(arm.details.clients, i) })).filter((p) => isNumber(p.x) && isNumber(p.y)) }));
    const log = wanted.log === "log", most = Math.max(1e-9, ...series.flatMap((one) => one.points.map((p) => p.y)));
    const top = wanted.y === "score" && most > 50 ? 100 : most * 1.05;
    drawPoints(figure, parts, { series, x: { title: xTitle, bytes: xBytes, log }, y: { title: yTitle, bytes: yBytes, range: [0, top] } });
  }
  register(figure, draw);
}

function drawPoints(figure, parts, spec) {
  const shown = visible(spec.series), every = shown.flatMap((one) => one.points);
  drawLegend(parts.legend, spec.series, "area");
  const x = axisOf(spec.x, every.map((p) => p.x)), y = axisOf(spec.y, every.map((p) => p.y));
  const drawn = drawAxes(parts.plot, x, y, `${spec.y.title} against ${spec.x.title}, a point for each client`), placed = [];
  for (const one of shown) {
    for (const p of one.points) {
      if (x.log && p.x <= 0) continue;
      const at = [drawn.px(x.at(p.x)), drawn.py(y.at(p.y))];
      placed.push({ ...p, at, label: one.label, style: one.style });
      drawn.image.append(svg("circle", { class: "point", cx: at[0].toFixed(1), cy: at[1].toFixed(1), r: every.length > 500 ? 2.2 : 4, style: `fill:${colourOf(one.style)}` }));
    }
  }
  placed.sort((a, b) => a.at[0] - b.at[0] || a.number - b.number);
  const value = (axis, v) => (axis.bytes ? shownBytes(v) : shownNumber(v));
  figure.rows = () => [["run", "client", spec.x.title, spec.y.title], ...spec.series.flatMap((one) => one.points.map((p) => [one.label, p.number, p.x, p.y]))];
  pointAtPoints(figure, parts, drawn, placed, (p) => [`client ${p.number}`, `${spec.x.title}: ${value(spec.x, p.x)}`, `${spec.y.title}: ${value(spec.y, p.y)}`, p.label]);
}

function pointAtPoints(figure, parts, drawn, placed, tell) {
  const tip = tipFor(parts.plot), cursor = svg("g", { class: "cursor" });
  drawn.image.append(cursor);
  let chosen = -1;
  const hide = () => { cursor.replaceChildren(); tip.hide(); chosen = -1; };
  function show(place, aloud) {
    if (place < 0 || place >= placed.length) return;
    chosen = place;
    const p = placed[place], [head, ...rest] = tell(p), scale = parts.plot.clientWidth / drawn.width;
    cursor.replaceChildren(svg("circle", { cx: p.at[0], cy: p.at[1], r: 6, style: `fill:${colourOf(p.style)}` }));
    tip.show(p.at[0] * scale, p.at[1] * scale, el("b", {}, head), ...rest.map((text) => el("bdi", {}, shorten(text, 60))));
    if (aloud) say(figure, [head, ...rest].join("; "));
  }
  const nearest = (event) => {
    const box = drawn.image.getBoundingClientRect(), s = drawn.width / box.width, x = (event.clientX - box.left) * s, y = (event.clientY - box.top) * s;
    let best = -1, least = 30 ** 2;
    placed.forEach((p, i) => { const far = (p.at[0] - x) ** 2 + (p.at[1] - y) ** 2; if (far < least) [best, least] = [i, far]; });
    return best;
  };
  for (const kind of ["pointermove", "pointerdown"]) {
    drawn.image.addEventListener(kind, (event) => { const at = nearest(event); if (at < 0) hide(); else show(at); });
  }
  drawn.image.addEventListener("blur", hide);
  drawn.image.addEventListener("keydown", (event) => {
    const last = placed.length - 1;
    const steps = { ArrowRight: Math.min(chosen + 1, last), ArrowLeft: chosen < 0 ? last : Math.max(chosen - 1, 0), Home: 0, End: last };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key], true);
  });
}
