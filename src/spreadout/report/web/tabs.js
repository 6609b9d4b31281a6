// Tabs as the ARIA pattern has them; the address keeps the one that is open. In print all are shown.
function makeTabs(redraw) {
  const panels = [...document.querySelectorAll("main > section[data-tab]")];
  if (panels.length < 2) return;
  const bar = el("div", { role: "tablist", "aria-label": "Parts of this page", class: "tabs" });
  const tabs = panels.map((panel) => {
    const tab = el("button", { type: "button", role: "tab", id: `tab-${panel.id}`, "aria-controls": panel.id }, panel.dataset.tab);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => open(panel));
    bar.append(tab);
    return tab;
  });
  function open(chosen, focus) {
    panels.forEach((panel, i) => {
      const here = panel === chosen;
      panel.classList.toggle("closed", !here);
      tabs[i].setAttribute("aria-selected", String(here));
      tabs[i].tabIndex = here ? 0 : -1;
      if (here && focus) tabs[i].focus();
    });
    history.replaceState(null, "", `#${chosen.id}`);
    redraw();
  }
  bar.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    open(panels[to], true);
  });
  panels[0].before(bar);
  open(panels.find((panel) => `#${panel.id}` === location.hash) || panels[0]);
}
