// What held-out examples are taken for: over all classes or the hundred worst, or of one client's classes.
const WORST = 100;

function drawConfusion(figure, data) {
  const arms = data.arms.filter((arm) => arm.details && arm.details.confused), parts = frame(figure);
  const wanted = { arm: "0", client: "" };
  const change = (key) => (value) => { wanted[key] = value; fill(); draw(); };
  const clients = el("span");
  function fill() {
    const own = arms[wanted.arm].details.clients, numbers = own ? own.number.map((n, i) => [i, n]).filter(([i]) => own.holds[i]) : [];
    if (!numbers.some(([i]) => String(i) === wanted.client)) wanted.client = "";
    clients.replaceChildren(...(numbers.length
      ? [select("classes of", [["", "all clients"], ...numbers.slice(0, 500).map(([i, n]) => [String(i), `client ${n}`])], wanted.client, change("client"))] : []));
  }
  parts.controls.append(...(arms.length > 1 ? [select("Of", arms.map((arm, i) => [String(i), arm.label]), "0", change("arm"))] : []), clients);
  const note = figure.appendChild(el("p", { class: "note" })), often = el("div", { class: "often wide", tabindex: 0, role: "region", "aria-label": "Most frequent errors" });
  const both = el("div", { class: "beside" });
  parts.plot.before(both);
  both.append(parts.plot, often);
  function draw() {
    const arm = arms[wanted.arm], spec = confusionOf(arm, data.names[arm.names] || [], wanted.client);
    note.textContent = spec.note;
    parts.plot.style.maxWidth = ""; // all the room there is, then no more than was used
    drawMatrix(figure, parts, spec);
    parts.plot.style.maxWidth = parts.plot.querySelector("svg").style.maxWidth;
    often.replaceChildren(...mostConfused(spec));
  }
  fill();
  register(figure, draw);
}

// The errors that are made most often, as a list: what one would look for in the matrix.
function mostConfused(spec) {
  const wrong = spec.cells.filter(([i, j]) => i !== j).sort((a, b) => b[3] - a[3]).slice(0, 8);
  if (!wrong.length) return [];
  const head = ["true class", "taken for", "examples", "share"].map((text) => el("th", { scope: "col" }, text));
  const rows = wrong.map(([i, j, share, n]) => el("tr", {}, ...[spec.rows[i], spec.columns[j]].map((name) => el("td", {}, el("bdi", {}, shorten(name, 24)))),
    el("td", {}, shownNumber(n)), el("td", {}, `${(100 * share).toFixed(0)} %`)));
  return [el("table", {}, el("caption", {}, "Most frequent errors"), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows))];
}

// Classes on both sides, and a last column for all others.
function confusionOf(arm, names, client) {
  const { confused, clients } = arm.details, totals = new Map(), right = new Map();
  for (const [from, to, n] of confused) {
    totals.set(from, (totals.get(from) || 0) + n);
    if (from === to) right.set(from, n);
  }
  const share = (c) => (right.get(c) || 0) / totals.get(c);
  let shown = [...totals.keys()], what = `all ${shown.length} classes that were tested`;
  if (client !== "") {
    const own = new Set(clients.holds[Number(client)]);
    shown = shown.filter((c) => own.has(c));
    what = `the ${shown.length} tested classes of client ${clients.number[Number(client)]}`;
  }
  if (shown.length > WORST) {
    shown = shown.sort((a, b) => share(a) - share(b) || totals.get(b) - totals.get(a)).slice(0, WORST);
    what = `the ${WORST} worst of ${what.replace(/^(all|the) /, "")}`;
  }
  shown.sort((a, b) => a - b);
  const place = new Map(shown.map((c, i) => [c, i])), nameOf = (c) => names[c] || `class ${c}`, takenFor = new Map();
  for (const [from, to, n] of confused) if (place.has(from)) takenFor.set(to, (takenFor.get(to) || 0) + n);
  // Columns: the same classes, and what they are most often taken for beside them.
  const beside = [...takenFor].filter(([c]) => !place.has(c)).sort((a, b) => b[1] - a[1]), taken = [...shown, ...beside.slice(0, 30).map(([c]) => c)];
  const column = new Map(taken.map((c, j) => [c, j])), cells = new Map();
  for (const [from, to, n] of confused) {
    if (!place.has(from)) continue;
    const key = place.get(from) * 4096 + (column.get(to) ?? taken.length);
    cells.set(key, (cells.get(key) || 0) + n);
  }
  return {
    rows: shown.map(nameOf), columns: beside.length > 30 ? [...taken.map(nameOf), "another class"] : taken.map(nameOf),
    row_title: "true class", column_title: "taken for",
    cells: [...cells].map(([key, n]) => [Math.floor(key / 4096), key % 4096, n / totals.get(shown[Math.floor(key / 4096)]), n]),
    note: `Rows: ${what}; columns: what their held-out examples are taken for. The stronger the colour of a cell, the larger its share of the row; the diagonal (blue) is right.`,
  };
}
