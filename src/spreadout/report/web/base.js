// Small helpers that all drawings share: elements, numbers, bytes, colours.
const SVG_NAME = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children);
  return node;
}

function svg(name, attributes = {}, text) {
  const node = document.createElementNS(SVG_NAME, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function shownNumber(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

const BYTE_UNITS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

function byteUnit(most) {
  return BYTE_UNITS.find(([size]) => most >= size) || BYTE_UNITS[4];
}

function shownBytes(value) {
  if (!isNumber(value)) return "–";
  const [size, unit] = byteUnit(value);
  return `${shownNumber(value / size)} ${unit}`;
}

// Eight colours, then the same eight dashed, dotted, and so on: 32 arms can be told apart, also in print.
const COLOURS = 8, DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const colourOf = (style) => `var(--c${style % COLOURS})`;
const dashOf = (style) => DASHES[Math.floor(style / COLOURS) % DASHES.length];

function shorten(text, most) {
  const letters = Array.from(text);
  return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
}

const ruler = el("canvas").getContext("2d");

function textWidth(text, size) {
  ruler.font = `${size}px system-ui, sans-serif`;
  return ruler.measureText(text).width;
}

// As much of a text as there is room for.
function fitted(text, room, size) {
  let most = Math.min(Array.from(text).length, 60);
  while (most > 2 && textWidth(shorten(text, most), size) > room) most--;
  return shorten(text, most);
}

function contentOf(id) {
  const node = document.getElementById(id);
  return node ? JSON.parse(node.textContent) : null;
}

function select(title, options, chosen, change) {
  const box = el("select");
  for (const [value, text] of options) {
    const option = el("option", { value }, shorten(text, 60));
    option.selected = value === chosen;
    box.append(option);
  }
  box.addEventListener("change", () => change(box.value));
  return el("label", {}, `${title} `, box);
}
