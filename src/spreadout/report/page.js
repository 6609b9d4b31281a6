// Values under the pointer: a vertical line at the nearest evaluation, and every variant's value there.
for (const chart of document.querySelectorAll("svg.chart")) {
  const lines = JSON.parse(chart.dataset.lines), cursor = chart.querySelector(".cursor");
  const height = chart.viewBox.baseVal.height, width = chart.viewBox.baseVal.width;
  const make = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return cursor.appendChild(node);
  };
  chart.addEventListener("pointerleave", () => cursor.replaceChildren());
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) * width / box.width;
    const near = lines.map((line) => [line, line.at.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)]);
    const [px, , where] = near[0][1], left = px > width * 0.6 ? px - 176 : px + 10;
    cursor.replaceChildren();
    make("line", { x1: px, x2: px, y1: 14, y2: height - 40 });
    make("rect", { x: left, y: 18, width: 166, height: 20 + 15 * near.length, rx: 5 });
    make("text", { x: left + 8, y: 32 }, where);
    near.forEach(([line, at], i) => {
      make("circle", { cx: at[0], cy: at[1], r: 3.5, fill: line.colour });
      make("circle", { cx: left + 12, cy: 44 + 15 * i, r: 4, fill: line.colour });
      make("text", { x: left + 21, y: 48 + 15 * i }, `${at[3]}  ${line.label}`.slice(0, 27));
    });
  });
}
