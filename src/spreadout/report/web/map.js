// The embedding space on a plane, on a canvas: search, names at the pointer, nearest neighbours, zoom.
const MAP_EDGE = 1.12, NUMBERED = 20, MANY = 3000, CELLS = 64;

// One search for all maps of the page: what is chosen is chosen in each of them.
const mapChoice = { id: null, maps: new Set(), set(id) { this.id = id; for (const map of this.maps) map(); } };

// Points by cells of a grid: the nearest to the pointer is found among a few, however many there are.
function gridOf(points) {
  const cells = new Map(), cell = (v) => Math.floor(((v + MAP_EDGE) / (2 * MAP_EDGE)) * CELLS);
  points.forEach(([x, y], i) => {
    const key = cell(x) * 4096 + cell(y);
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(i);
  });
  return (x, y, reach) => {
    let best = -1, least = reach * reach;
    for (let a = cell(x - reach); a <= cell(x + reach); a++) {
      for (let b = cell(y - reach); b <= cell(y + reach); b++) {
        for (const i of cells.get(a * 4096 + b) || []) {
          const far = (points[i][0] - x) ** 2 + (points[i][1] - y) ** 2;
          if (far < least) [best, least] = [i, far];
        }
      }
    }
    return best;
  };
}

// Rows kept as small whole numbers: a cosine is a dot product of them.
function vectorsOf(kept) {
  if (!kept) return null;
  const raw = atob(kept.data), rows = new Int8Array(raw.length);
  for (let i = 0; i < raw.length; i++) rows[i] = raw.charCodeAt(i);
  const lengths = new Float32Array(rows.length / kept.dims);
  for (let i = 0; i < rows.length; i++) lengths[Math.floor(i / kept.dims)] += rows[i] ** 2;
  return { rows, dims: kept.dims, lengths: lengths.map(Math.sqrt) };
}

function neighboursOf(vectors, place, count = 6) {
  const { rows, dims, lengths } = vectors, found = [];
  for (let j = 0; j < lengths.length; j++) {
    if (j === place) continue;
    let dot = 0;
    for (let k = 0; k < dims; k++) dot += rows[place * dims + k] * rows[j * dims + k];
    const cosine = dot / (lengths[place] * lengths[j] || 1);
    if (found.length < count || cosine > found.at(-1)[1]) {
      found.push([j, cosine]);
      found.sort((a, b) => b[1] - a[1]);
      found.length = Math.min(found.length, count);
    }
  }
  return found;
}

function drawMap(figure, data) {
  const arm = data.maps[Number(figure.dataset.arm)], names = data.names[arm.names] || [];
  const parts = frame(figure), { plot } = parts, ids = arm.ids, place = ids && new Map(ids.map((id, i) => [id, i]));
  const idOf = (i) => (ids ? ids[i] : i), placeOf = (id) => (ids ? place.get(id) ?? -1 : id < arm.classes.length ? id : -1);
  const nameOf = (i) => names[idOf(i)] || `class ${idOf(i)}`;
  const canvas = plot.appendChild(el("canvas", { tabindex: 0, role: "img", "aria-label": `Map of ${arm.classes.length} classes: ${arm.label}` }));
  const near = gridOf(arm.classes), vectors = vectorsOf(arm.vectors), tip = tipFor(plot);
  const about = el("p", { class: "note chosen" });
  plot.after(about);
  const view = { x: 0, y: 0, zoom: 1 };
  let size = 300, hovered = -1, known = [-1, []]; // neighbours are found once for a class, not at every paint
  const neighbours = (at) => (known[0] === at ? known : (known = [at, vectors ? neighboursOf(vectors, at) : []]))[1];
  const toScreen = ([x, y]) => [((x - view.x) * view.zoom / MAP_EDGE + 1) * size / 2, (1 - (y - view.y) * view.zoom / MAP_EDGE) * size / 2];
  const toMap = (sx, sy) => [((2 * sx) / size - 1) * MAP_EDGE / view.zoom + view.x, (1 - (2 * sy) / size) * MAP_EDGE / view.zoom + view.y];

  function chosenPlace() {
    return mapChoice.id === null ? -1 : placeOf(mapChoice.id);
  }
  function paint() {
    size = Math.min(plotWidth(plot), 460) * enlarged();
    const sharp = devicePixelRatio || 1, pen = canvas.getContext("2d", { willReadFrequently: arm.classes.length > MANY }), looks = getComputedStyle(document.documentElement);
    canvas.width = canvas.height = Math.round(size * sharp);
    canvas.style.width = canvas.style.height = `${size}px`;
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.strokeStyle = looks.getPropertyValue("--rule");
    pen.lineWidth = 1.5;
    const [cx, cy] = toScreen([0, 0]);
    pen.beginPath();
    pen.arc(cx, cy, (size / 2 / MAP_EDGE) * view.zoom, 0, 7);
    pen.stroke();
    const colours = Array.from({ length: COLOURS }, (_, i) => looks.getPropertyValue(`--c${i}`));
    pen.globalAlpha = 0.5;
    arm.examples.forEach((point, i) => {
      pen.fillStyle = colours[arm.labels[i] % COLOURS];
      const [x, y] = toScreen(point);
      pen.fillRect(x - 1.5, y - 1.5, 3, 3);
    });
    const few = arm.classes.length <= NUMBERED, dot = arm.classes.length > 200 ? 2.6 : 4;
    pen.globalAlpha = 1;
    if (arm.classes.length > MANY) paintPixels(pen, colours, sharp);
    else for (let c = 0; c < COLOURS; c++) { // one colour after another: setting it is what takes time
      pen.fillStyle = colours[c];
      for (let i = 0; i < arm.classes.length; i++) {
        if (idOf(i) % COLOURS !== c) continue;
        const [x, y] = toScreen(arm.classes[i]);
        if (x < -9 || y < -9 || x > size + 9 || y > size + 9) continue;
        if (!few) { pen.fillRect(x - dot, y - dot, 2 * dot, 2 * dot); continue; }
        pen.beginPath();
        pen.arc(x, y, 8.5, 0, 7);
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
    if (few) {
      pen.font = "600 11px system-ui";
      pen.textAlign = "center";
      pen.fillStyle = looks.getPropertyValue("--ground");
      arm.classes.forEach((point, i) => { const [x, y] = toScreen(point); pen.fillText(shorten(String(names[idOf(i)] ?? idOf(i)), 3), x, y + 4); });
    }
    paintChosen(pen, looks);
    figure.dataset.painted = "yes";
  }
  // Very many points as pixels of one image: drawing each by itself would take a third of a second.
  function paintPixels(pen, colours, sharp) {
    const wide = canvas.width, image = pen.getImageData(0, 0, wide, wide), pixels = new Uint32Array(image.data.buffer);
    const words = colours.map((colour) => {
      const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.trim().slice(i, i + 2), 16));
      return (255 << 24) | (b << 16) | (g << 8) | r;
    });
    const scale = (view.zoom / MAP_EDGE) * (wide / 2), half = Math.max(1, Math.round(sharp));
    for (let i = 0; i < arm.classes.length; i++) {
      const x = Math.round((arm.classes[i][0] - view.x) * scale + wide / 2), y = Math.round(wide / 2 - (arm.classes[i][1] - view.y) * scale);
      if (x < half || y < half || x >= wide - half || y >= wide - half) continue;
      const word = words[idOf(i) % COLOURS];
      for (let dy = -half; dy <= half; dy++) pixels.fill(word, (y + dy) * wide + x - half, (y + dy) * wide + x + half + 1);
    }
    pen.putImageData(image, 0, 0);
  }
  function paintChosen(pen, looks) {
    const at = chosenPlace();
    if (at < 0) { about.textContent = ""; return; }
    const [x, y] = toScreen(arm.classes[at]), close = neighbours(at);
    pen.strokeStyle = looks.getPropertyValue("--ink");
    pen.lineWidth = 1.4;
    for (const [j] of close) {
      const [nx, ny] = toScreen(arm.classes[j]);
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(nx, ny);
      pen.stroke();
    }
    pen.lineWidth = 3;
    pen.beginPath();
    pen.arc(x, y, 12, 0, 7);
    pen.stroke();
    about.replaceChildren(el("b", {}, el("bdi", {}, nameOf(at))), close.length ? ", nearest: " : "");
    close.forEach(([j, cosine], k) => about.append(k ? ", " : "", el("bdi", {}, shorten(nameOf(j), 40)), ` (cosine ${cosine.toFixed(2)})`));
    say(figure, about.textContent);
  }
  function hover(event) {
    const box = canvas.getBoundingClientRect(), [x, y] = toMap(event.clientX - box.left, event.clientY - box.top);
    hovered = near(x, y, (16 / size) * 2 * MAP_EDGE / view.zoom);
    if (hovered < 0) return tip.hide();
    return tip.show(event.clientX - box.left + canvas.offsetLeft, event.clientY - box.top, el("b", {}, el("bdi", {}, shorten(nameOf(hovered), 80))));
  }
  function zoom(by, at = [view.x, view.y]) {
    const to = Math.min(Math.max(view.zoom * by, 1), 400), keep = 1 - view.zoom / to;
    view.x += (at[0] - view.x) * keep;
    view.y += (at[1] - view.y) * keep;
    if (to === 1) view.x = view.y = 0;
    view.zoom = to;
    paint();
  }
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = [event.clientX, event.clientY, view.x, view.y, false]; hover(event); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons || event.pointerType === "touch") return hover(event);
    const per = (2 * MAP_EDGE) / view.zoom / size, dx = event.clientX - drag[0], dy = event.clientY - drag[1];
    if (Math.abs(dx) + Math.abs(dy) > 4) drag[4] = true;
    view.x = drag[2] - dx * per;
    view.y = drag[3] + dy * per;
    return paint();
  });
  canvas.addEventListener("click", () => { if (!(drag && drag[4])) mapChoice.set(hovered < 0 ? null : idOf(hovered)); drag = null; });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tip.hide(); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && view.zoom === 1 && event.deltaY > 0) return; // let the page scroll
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, toMap(event.clientX - box.left, event.clientY - box.top));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = (0.2 * MAP_EDGE) / view.zoom, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "Escape") { mapChoice.set(null); zoom(0); }
    else if (event.key in moves) { view.x += moves[event.key][0]; view.y += moves[event.key][1]; paint(); }
    else return;
    event.preventDefault();
  });
  const button = (text, label, action) => {
    const made = el("button", { type: "button", "aria-label": label }, text);
    made.addEventListener("click", action);
    return made;
  };
  parts.controls.append(button("+", "Zoom in", () => zoom(1.6)), button("−", "Zoom out", () => zoom(1 / 1.6)), button("Whole map", "Show the whole map", () => zoom(0)));
  figure.rows = () => [["class", "name", "x", "y"], ...arm.classes.map(([x, y], i) => [idOf(i), nameOf(i), x, y])];
  figure.picture = () => mapAsSvg(arm, size, toScreen, idOf, (size / 2 / MAP_EDGE) * view.zoom, (i) => String(names[idOf(i)] ?? idOf(i)));
  mapChoice.maps.add(paint);
  register(figure, paint);
}

// What the canvas shows: the sphere, examples, classes, and their names where they are few.
function mapAsSvg(arm, size, toScreen, idOf, radius, nameOf) {
  const image = svg("svg", { viewBox: `0 0 ${size} ${size}` }), looks = getComputedStyle(document.documentElement);
  const dot = (point, colour, r, opacity) => {
    const [x, y] = toScreen(point);
    image.append(svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r, fill: looks.getPropertyValue(`--c${colour % COLOURS}`).trim(), "fill-opacity": opacity }));
  };
  const [cx, cy] = toScreen([0, 0]), few = arm.classes.length <= NUMBERED;
  image.append(svg("circle", { cx, cy, r: radius, fill: "none", stroke: looks.getPropertyValue("--rule").trim(), "stroke-width": 1.5 }));
  arm.examples.forEach((point, i) => dot(point, arm.labels[i], 1.6, 0.5));
  arm.classes.forEach((point, i) => dot(point, idOf(i), few ? 8.5 : arm.classes.length > 200 ? 2.2 : 5, 1));
  for (const [i, point] of few ? arm.classes.entries() : []) {
    const [x, y] = toScreen(point), style = `font:600 11px system-ui,sans-serif;fill:${looks.getPropertyValue("--ground").trim()}`;
    image.append(svg("text", { x: x.toFixed(1), y: (y + 4).toFixed(1), "text-anchor": "middle", style }, shorten(nameOf(i), 3)));
  }
  return image;
}

function makeSearch(box, data) {
  const names = data.names.flat(), many = Math.max(...data.maps.map((map) => map.classes.length));
  const input = el("input", { type: "search", list: "class-names", placeholder: "name or number of a class", "aria-label": "Find a class on the maps" });
  const hints = el("datalist", { id: "class-names" }), list = data.names[0] || [];
  const texts = Array.from({ length: Math.max(list.length, many) }, (_, i) => (list[i] || `class ${i}`).toLowerCase());
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    const found = [];
    let exact = texts.indexOf(wanted);
    if (exact < 0) exact = /^\d+$/.test(wanted) && Number(wanted) < texts.length ? Number(wanted) : null;
    for (let i = 0; wanted && i < texts.length && found.length < 30; i++) if (texts[i].includes(wanted)) found.push(i);
    hints.replaceChildren(...found.map((i) => el("option", { value: list[i] || `class ${i}` })));
    mapChoice.set(exact ?? (found.length ? found[0] : null));
  });
  box.append(el("label", {}, "Find a class ", input), hints);
  if (!names.length) box.append(el("span", { class: "note" }, " This run has no names of classes."));
}
