// What an observer believes about one client after each of its requests.
function drawBeliefs(figure, data) {
  const parts = frame(figure), clients = data.beliefs;
  let chosen = 0;
  parts.controls.append(select("Client", clients.map((one, i) => [String(i), `client ${one.client}, ${one.requests} request${one.requests === 1 ? "" : "s"}`]), "0",
    (value) => { chosen = Number(value); draw(); }));
  function draw() {
    const one = clients[chosen];
    drawMatrix(figure, parts, {
      rows: one.classes.map((c, i) => `class ${c}${one.own[i] ? " ●" : ""}`), columns: Array.from({ length: one.requests }, (_, i) => String(i + 1)),
      row_title: "candidate class", column_title: "requests seen", cells: one.cells.map(([i, j, p]) => [i, j, p]), own: one.own,
      tell: (i, j, p) => `class ${one.classes[i]}, which client ${one.client} ${one.own[i] ? "holds" : "does not hold"}: ${(100 * p).toFixed(1)} % after ${j + 1} requests`,
    });
  }
  register(figure, draw);
}
