// A figure: a caption, buttons that save it, the drawing, a legend, and its numbers as a table.
const drawings = new Map(); // figure → () => void, draws it again
const hiddenArms = new Set(); // labels switched off in any legend

let printing = false;

function plotWidth(plot) {
  if (printing) return plot.closest(".grid2") ? 330 : 690; // as wide as they are on a sheet
  const here = plot.clientWidth;
  if (here > 0) return here / enlarged();
  const main = document.querySelector("main").clientWidth; // in a tab that is not shown
  return (main > 980 && plot.closest(".grid2") ? main / 2 - 40 : main - 44) / enlarged();
}

// On a projector drawings are larger as a whole, letters and lines too.
const enlarged = () => (innerWidth >= 1900 && !printing ? 1.35 : 1);

function register(figure, draw) {
  drawings.set(figure, draw);
  draw();
}

function redrawAll() {
  for (const draw of drawings.values()) draw();
}

// The frame that Python wrote, completed: figure.plot, figure.legend, figure.controls.
function frame(figure) {
  const plot = figure.querySelector(".plot") || figure.appendChild(el("div", { class: "plot" }));
  const controls = el("div", { class: "controls" });
  plot.before(controls);
  const legend = el("div", { class: "legend" });
  plot.after(legend);
  figure.append(el("p", { class: "unseen", "aria-live": "polite" }));
  figure.append(numbersOf(figure));
  addDownloads(figure);
  return { plot, legend, controls };
}

function say(figure, text) {
  figure.querySelector("[aria-live]").textContent = text;
}

function swatch(style, shape) {
  const wide = shape === "area" ? 12 : 26;
  const image = svg("svg", { class: "swatch", viewBox: `0 0 ${wide} 10`, width: wide, height: 10, style: `width:${wide}px`, "aria-hidden": "true" });
  if (shape === "area") {
    image.append(svg("rect", { x: 0, y: 0, width: 12, height: 10, rx: 2, style: `fill:${colourOf(style)}` }));
  } else {
    const look = `stroke:${colourOf(style)};stroke-width:2.6;stroke-dasharray:${dashOf(style) || "none"}`;
    image.append(svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, style: look }));
  }
  return image;
}

// Names of what is drawn; a click switches one off in all figures.
function drawLegend(legend, series, shape) {
  legend.replaceChildren();
  if (series.length < 2 && !(series[0] && series[0].always)) return;
  for (const one of series) {
    const shown = !hiddenArms.has(one.label);
    const button = el("button", { type: "button", "aria-pressed": String(shown), title: one.label },
      swatch(one.style, shape), el("bdi", {}, shorten(one.label, 48)));
    button.addEventListener("click", () => {
      if (shown) hiddenArms.add(one.label); else hiddenArms.delete(one.label);
      redrawAll();
    });
    legend.append(button);
  }
}

const visible = (series) => series.filter((one) => !hiddenArms.has(one.label));

// A small box beside the pointer that never leaves its figure.
function tipFor(plot) {
  let tip = plot.querySelector(".tip");
  if (!tip) tip = plot.appendChild(el("div", { class: "tip", hidden: "" }));
  return {
    node: tip,
    hide() { tip.hidden = true; },
    show(x, y, ...content) {
      tip.replaceChildren(...content);
      tip.hidden = false;
      const wide = plot.clientWidth, high = plot.clientHeight;
      const left = x + 14 + tip.offsetWidth > wide ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.left = `${Math.max(0, Math.min(left, wide - tip.offsetWidth))}px`;
      tip.style.top = `${Math.max(0, Math.min(y, high - tip.offsetHeight))}px`;
    },
  };
}

// Numbers as a table, made when it is opened: for readers of screens, and for whoever wants the value.
function numbersOf(figure) {
  const details = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const [head, ...rows] = figure.rows ? figure.rows() : [[]];
    const table = el("table");
    table.append(el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", { scope: "col" }, String(cell))))));
    const body = table.appendChild(el("tbody"));
    for (const row of rows.slice(0, 400)) {
      body.append(el("tr", {}, ...row.map((cell) => el("td", {}, isNumber(cell) ? shownNumber(cell) : String(cell ?? "–")))));
    }
    details.querySelector(".wide")?.remove();
    const more = rows.length > 400 ? [el("p", { class: "note" }, `${rows.length} rows; the CSV has all of them.`)] : [];
    details.append(el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Numbers" }, table, ...more));
  });
  return details;
}
