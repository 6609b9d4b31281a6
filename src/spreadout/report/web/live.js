// A page of runs in progress loads itself again when there is something new, and keeps what was chosen on it.
(() => {
  const KEY = `choices of ${location.pathname}`;
  const choices = () => [...document.querySelectorAll("figure")].flatMap((figure) => {
    const title = figure.querySelector("figcaption b")?.textContent;
    return [...figure.querySelectorAll("select, input")].map((one, i) => [`${title} ${i}`, one]);
  });
  const switches = (on) => [...document.querySelectorAll(`.legend button[aria-pressed=${on}]`)];
  const { values = {}, hidden = [] } = JSON.parse(sessionStorage.getItem(KEY) || "{}");
  for (const [key, one] of choices()) {
    if (!(key in values) || one.value === values[key]) continue;
    if (one.options && ![...one.options].some((option) => option.value === values[key])) continue;
    one.value = values[key];
    one.dispatchEvent(new Event(one.tagName === "SELECT" ? "change" : "input"));
  }
  for (const label of hidden) switches(true).find((one) => one.title === label)?.click();
  new EventSource("events?STATE").onmessage = () => {
    const kept = { values: Object.fromEntries(choices().map(([key, one]) => [key, one.value])), hidden: [...new Set(switches(false).map((one) => one.title))] };
    sessionStorage.setItem(KEY, JSON.stringify(kept));
    location.reload();
  };
})();
