// Views of the runs' histories: any quantity by round or time, scores against bytes, bytes to reach a score.

// The rounds that every seed was evaluated at, with the mean and the range over seeds.
function seriesOf(arm, name, xOf) {
  const [first, ...others] = arm.seeds, x = [], mean = [], low = [], high = [];
  if (!first.values[name]) return null;
  first.round.forEach((round, i) => {
    const places = [i, ...others.map((seed) => seed.round.indexOf(round))];
    if (places.some((place) => place < 0)) return;
    const found = arm.seeds.map((seed, k) => seed.values[name] && seed.values[name][places[k]]);
    const known = found.every(isNumber);
    const where = arm.seeds.map((seed, k) => xOf(seed, places[k]));
    x.push(where.reduce((a, b) => a + b, 0) / where.length);
    mean.push(known ? found.reduce((a, b) => a + b, 0) / found.length : null);
    low.push(known ? Math.min(...found) : null);
    high.push(known ? Math.max(...found) : null);
  });
  return mean.some(isNumber) ? { label: arm.label, style: arm.style, x, mean, low, high, always: true } : null;
}

const AGAINST = {
  round: ["round", (seed, i) => seed.round[i]],
  seconds: ["seconds of training", (seed, i) => seed.seconds[i]],
};
const WAYS = {
  both: ["bytes moved by all clients, both ways", (seed, i) => seed.down[i] + seed.up[i]],
  down: ["bytes sent down to clients", (seed, i) => seed.down[i]],
  up: ["bytes sent up by clients", (seed, i) => seed.up[i]],
};

function quantityAxis(quantity, log) {
  return { title: quantity.title, range: quantity.axis, log };
}

function drawCurves(figure, data) {
  const parts = frame(figure);
  const wanted = { name: figure.dataset.quantity || data.quantities[0].name, against: "round", log: "linear" };
  const change = (key) => (value) => { wanted[key] = value; draw(); };
  parts.controls.append(
    select("Show", data.quantities.map((q) => [q.name, q.title]), wanted.name, change("name")),
    select("against", Object.entries(AGAINST).map(([key, [title]]) => [key, title]), wanted.against, change("against")),
    select("scale", [["linear", "linear"], ["log", "log"]], wanted.log, change("log")));
  function draw() {
    const quantity = data.quantities.find((q) => q.name === wanted.name), [title, xOf] = AGAINST[wanted.against];
    const series = data.arms.map((arm) => seriesOf(arm, quantity.name, xOf)).filter(Boolean);
    const collapses = wanted.against === "round" ? data.arms.filter((arm) => isNumber(arm.collapse)) : [];
    const verticals = quantity.marks
      ? collapses.map((arm, place) => ({ x: arm.collapse, label: arm.label, style: arm.style, place, text: `collapse: ${arm.label}` })) : [];
    drawLines(figure, parts, { x: { title }, y: quantityAxis(quantity, wanted.log === "log"), series, verticals, references: quantity.references });
  }
  register(figure, draw);
}

function drawTraffic(figure, data) {
  const parts = frame(figure), arms = data.arms.filter((arm) => !arm.central);
  const metrics = data.quantities.filter((q) => q.metric);
  const wanted = { name: metrics[0].name, way: "both", log: "linear", goal: "" };
  const change = (key) => (value) => { wanted[key] = value; draw(); };
  const goal = el("input", { type: "number", step: "any", size: 7, inputmode: "decimal" });
  goal.addEventListener("input", () => change("goal")(goal.value));
  parts.controls.append(
    select("Score", metrics.map((q) => [q.name, q.title]), wanted.name, (name) => { wanted.name = name; wanted.goal = ""; draw(); }),
    select("against", Object.entries(WAYS).map(([key]) => [key, key === "both" ? "bytes both ways" : `bytes ${key}`]), wanted.way, change("way")),
    select("scale", [["linear", "linear"], ["log", "log"]], wanted.log, change("log")),
    el("label", {}, el("span", { class: "goal" }), goal));
  const reached = el("div", { class: "wide reached", tabindex: 0, role: "region", "aria-label": "Bytes to reach a score" });
  figure.querySelector("details").before(reached);
  function draw() {
    const quantity = metrics.find((q) => q.name === wanted.name), [title, xOf] = WAYS[wanted.way];
    const series = arms.map((arm) => seriesOf(arm, quantity.name, xOf)).filter(Boolean);
    if (wanted.goal === "" && series.length) wanted.goal = goal.value = suggestedGoal(series, quantity);
    figure.querySelector(".goal").textContent = `bytes to reach ${quantity.name} ${quantity.lower ? "≤" : "≥"} `;
    const sought = goal.value === "" || !isNumber(Number(goal.value)) ? [] : [{ label: "goal", value: Number(goal.value) }];
    drawLines(figure, parts, { x: { title, bytes: true, log: wanted.log === "log" }, y: quantityAxis(quantity, false), series, references: sought });
    reached.replaceChildren(reachTable(arms, quantity, Number(wanted.goal)));
  }
  register(figure, draw);
}

// What the weakest arm reaches, so that there is a number for every one of them.
function suggestedGoal(series, quantity) {
  const best = series.map((one) => one.mean.filter(isNumber)).map((found) => (quantity.lower ? Math.min(...found) : Math.max(...found)));
  const weakest = quantity.lower ? Math.max(...best) : Math.min(...best);
  const digits = Math.abs(weakest) >= 10 ? 0 : 2, tens = 10 ** digits;
  return String((quantity.lower ? Math.ceil(weakest * tens) : Math.floor(weakest * tens)) / tens);
}

// The first evaluation at which the mean over seeds is there: no interpolation between evaluations.
function firstReached(one, quantity, goal) {
  return one.mean.findIndex((value) => isNumber(value) && (quantity.lower ? value <= goal : value >= goal));
}

function reachTable(arms, quantity, goal) {
  const head = ["", "round", "down", "up", "both ways"].map((text) => el("th", { scope: "col" }, text));
  const table = el("table", {}, el("caption", {}, `First evaluation with ${quantity.name} ${quantity.lower ? "≤" : "≥"} ${goal}, mean over seeds`),
    el("thead", {}, el("tr", {}, ...head)));
  const body = table.appendChild(el("tbody"));
  for (const arm of arms) {
    const [byRound, down, up] = [AGAINST.round[1], WAYS.down[1], WAYS.up[1]].map((xOf) => seriesOf(arm, quantity.name, xOf));
    const place = byRound ? firstReached(byRound, quantity, goal) : -1;
    const cells = place < 0 ? ["never", "–", "–", "–"]
      : [shownNumber(byRound.x[place]), shownBytes(down.x[place]), shownBytes(up.x[place]), shownBytes(down.x[place] + up.x[place])];
    body.append(el("tr", {}, el("th", { scope: "row" }, swatch(arm.style), el("bdi", {}, shorten(arm.label, 60))), ...cells.map((cell) => el("td", {}, cell))));
  }
  return table;
}
