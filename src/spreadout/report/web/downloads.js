// Every figure as SVG, PNG and CSV, made here in the page.
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "paint-order", "opacity",
  "font-size", "font-family", "font-weight", "text-anchor"];

function save(name, content, kind) {
  const link = el("a", { download: name });
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function csvOf(rows) {
  // A leading =, +, - or @ of a text would be a formula in a spreadsheet.
  const text = (cell) => (typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell ?? ""));
  const quoted = (cell) => (/[",\r\n]/.test(text(cell)) ? `"${text(cell).replaceAll('"', '""')}"` : text(cell));
  return "\ufeff" + rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

// The drawing with its looks written into it, its caption above and its legend below.
function standalone(figure) {
  const drawn = figure.picture ? figure.picture() : figure.querySelector(".plot svg");
  const { width, height } = drawn.viewBox.baseVal, copy = drawn.cloneNode(true);
  const here = [...drawn.querySelectorAll("*")], there = [...copy.querySelectorAll("*")];
  if (drawn.isConnected) {
    here.forEach((node, i) => {
      const looks = getComputedStyle(node);
      there[i].setAttribute("style", STYLES.map((key) => `${key}:${looks.getPropertyValue(key)}`).join(";"));
      there[i].removeAttribute("class");
    });
  }
  copy.querySelectorAll(".cursor").forEach((node) => node.remove());
  const looks = getComputedStyle(document.body), family = "font-family:system-ui,sans-serif";
  const entries = [...figure.querySelectorAll(".legend button[aria-pressed=true], .legend .entry")];
  const top = 30, whole = svg("svg", { xmlns: SVG_NAME, viewBox: `0 0 ${width} ${height + top + 18 * entries.length + 8}` });
  whole.setAttribute("width", width);
  whole.setAttribute("height", whole.viewBox.baseVal.height);
  whole.append(svg("rect", { width: "100%", height: "100%", fill: looks.backgroundColor }));
  const ink = looks.color;
  whole.append(svg("text", { x: 8, y: 20, style: `${family};font-size:15px;font-weight:600;fill:${ink}` },
    figure.querySelector("figcaption b").textContent));
  const moved = whole.appendChild(svg("g", { transform: `translate(0 ${top})` }));
  moved.append(...copy.childNodes);
  entries.forEach((entry, i) => {
    const y = top + height + 18 * i + 8, mark = entry.querySelector("line, rect"), colours = getComputedStyle(mark);
    const dash = `stroke-dasharray:${colours.strokeDasharray}`;
    whole.append(svg("line", { x1: 12, x2: 38, y1: y, y2: y,
      style: `stroke:${mark.tagName === "rect" ? colours.fill : colours.stroke};stroke-width:3;${dash}` }));
    whole.append(svg("text", { x: 46, y: y + 4, style: `${family};font-size:12px;fill:${ink}` }, entry.tagName === "SPAN" ? entry.textContent : entry.title));
  });
  return whole;
}

async function pngOf(figure) {
  const image = new Image(), drawn = standalone(figure), canvas = el("canvas"), sharp = 2;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(drawn))}`;
  await image.decode();
  canvas.width = drawn.viewBox.baseVal.width * sharp;
  canvas.height = drawn.viewBox.baseVal.height * sharp;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function addDownloads(figure) {
  const caption = figure.querySelector("figcaption"), title = caption.textContent.trim();
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/^-|-$/g, "") || "figure";
  const actions = {
    SVG: () => save(`${name}.svg`, new XMLSerializer().serializeToString(standalone(figure)), "image/svg+xml"),
    PNG: async () => save(`${name}.png`, await pngOf(figure)),
    CSV: () => save(`${name}.csv`, csvOf(figure.rows()), "text/csv"),
  };
  const box = el("span", { class: "downloads" });
  for (const kind in actions) {
    const button = el("button", { type: "button", "aria-label": `Save “${title}” as ${kind}` }, kind);
    button.addEventListener("click", actions[kind]);
    box.append(button);
  }
  caption.replaceChildren(el("b", {}, title), box);
}
