// Draws what the page has, and again when there is more or less room.
const KINDS = { lines: drawLines, bars: drawBars, matrix: drawMatrix };

function start() {
  const data = contentOf("runs");
  makeTabs(() => redrawAll());
  for (const box of document.querySelectorAll("[data-search]")) makeSearch(box, data);
  for (const figure of document.querySelectorAll("figure[data-kind]")) {
    const kind = figure.dataset.kind;
    if (kind in KINDS) {
      const parts = frame(figure), spec = JSON.parse(figure.querySelector("script").textContent);
      register(figure, () => KINDS[kind](figure, parts, spec));
    } else {
      VIEWS[kind](figure, data);
    }
  }
  addEventListener("beforeprint", () => { printing = true; redrawAll(); });
  addEventListener("afterprint", () => { printing = false; redrawAll(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll); // a canvas has no variables
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redrawAll, 80);
  });
}

const VIEWS = { curves: drawCurves, traffic: drawTraffic, map: drawMap, confusion: drawConfusion, clients: drawClients, beliefs: drawBeliefs };
start();
