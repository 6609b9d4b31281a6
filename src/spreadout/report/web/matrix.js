// Shares of rows taken for columns, as a labelled square; the pointer, a finger and arrow keys name a cell.
const LABELLED = 60;

function drawMatrix(figure, parts, spec) {
  const rows = spec.rows, columns = spec.columns, count = Math.max(rows.length, columns.length, 1);
  const width = Math.max(plotWidth(parts.plot), 240), named = count <= LABELLED && width / count >= 8;
  const longest = (names) => Math.max(8, ...names.map((name) => textWidth(shorten(name, 18), 12.5)));
  const flat = longest(columns) + 4 <= (width - 40) / count;
  const left = named ? Math.min(32 + longest(rows), width * 0.38) : 26, top = named ? (flat ? 40 : 34 + longest(columns)) : 26;
  const side = Math.min((width - left - 6) / columns.length, 34, 640 / Math.max(rows.length, 1)), letters = Math.min(12, side + 2);
  const height = top + side * rows.length + 6, wide = left + side * columns.length + 6;
  const image = svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", tabindex: 0,
    "aria-label": `${spec.row_title} against ${spec.column_title}`, style: `max-width:${Math.max(wide, 240) * enlarged()}px` });
  const shade = (share) => (0.1 + 0.9 * share).toFixed(3);
  image.append(svg("rect", { class: "frame", x: left, y: top, width: side * columns.length, height: side * rows.length }));
  const right = (i, j) => (spec.own ? spec.own[i] : i === j);
  for (const [i, j, share] of spec.cells) {
    image.append(svg("rect", { class: right(i, j) ? "right" : "wrong", x: left + j * side, y: top + i * side, width: side, height: side,
      style: `fill:var(${right(i, j) ? "--c0" : "--c1"})`, "fill-opacity": shade(share) }));
  }
  if (named) {
    const step = Math.ceil(12 / side);
    rows.forEach((name, i) => i % step || image.append(svg("text", { class: "tick", style: `font-size:${letters}px`, x: left - 5, y: top + (i + 0.5) * side + 4, "text-anchor": "end" }, fitted(shorten(name, 18), left - 28, letters))));
    columns.forEach((name, j) => j % step || image.append(svg("text", { class: "tick", style: `font-size:${letters}px`, "text-anchor": flat ? "middle" : "start",
      transform: `translate(${left + (j + 0.5) * side + (flat ? 0 : 4)} ${top - 6})${flat ? "" : " rotate(-90)"}` }, shorten(name, 18))));
  }
  const tall = side * rows.length, room = Math.max(tall, 40) + top - 20;
  image.append(svg("text", { class: "title", x: left, y: 13 }, fitted(`${spec.column_title} →`, wide - left, 13)));
  image.append(svg("text", { class: "title", transform: `translate(13 ${top}) rotate(-90)`, "text-anchor": "end" }, fitted(`← ${spec.row_title}`, room, 13)));
  const cursor = image.appendChild(svg("g", { class: "cursor" }));
  parts.plot.querySelector("svg")?.remove();
  parts.plot.prepend(image);
  parts.legend.replaceChildren();
  pointAtCells(figure, parts, spec, { image, cursor, left, top, side, wide });
  figure.rows = () => [[spec.row_title, spec.column_title, "share", "examples"],
    ...spec.cells.map(([i, j, share, n]) => [rows[i], columns[j], share, n ?? ""])];
}

function pointAtCells(figure, parts, spec, { image, cursor, left, top, side, wide }) {
  const tip = tipFor(parts.plot), shares = new Map(spec.cells.map(([i, j, share, n]) => [i * 4096 + j, [share, n]]));
  let at = null;
  const hide = () => { cursor.replaceChildren(); tip.hide(); at = null; };
  function show(i, j, aloud) {
    if (i < 0 || j < 0 || i >= spec.rows.length || j >= spec.columns.length) return;
    at = [i, j];
    const [share, n] = shares.get(i * 4096 + j) || [0, 0];
    const text = spec.tell ? spec.tell(i, j, share) : `${shorten(spec.rows[i], 60)} taken for ${shorten(spec.columns[j], 60)}: ${(100 * share).toFixed(1)} %${isNumber(n) ? ` (${n} examples)` : ""}`;
    cursor.replaceChildren(svg("rect", { class: "cell", x: left + j * side, y: top + i * side, width: side, height: side }));
    const scale = image.getBoundingClientRect().width / wide;
    tip.show((left + (j + 1) * side) * scale, (top + (i + 1) * side) * scale, el("bdi", {}, text));
    if (aloud) say(figure, text);
  }
  const cell = (event) => {
    const box = image.getBoundingClientRect(), scale = box.width / wide;
    return [Math.floor(((event.clientY - box.top) / scale - top) / side), Math.floor(((event.clientX - box.left) / scale - left) / side)];
  };
  for (const kind of ["pointermove", "pointerdown"]) image.addEventListener(kind, (event) => show(...cell(event)));
  image.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  image.addEventListener("blur", hide);
  image.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [i, j] = at || [0, -1], [di, dj] = at ? moves[event.key] : [0, 1];
    show(i + di, j + dj, true);
  });
}
