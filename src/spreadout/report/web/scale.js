// From values to places on an axis, and the round numbers that are written there.
function linearTicks(low, high, about, least = 0) {
  const raw = Math.max((high - low) / Math.max(about, 1), high > low ? least : 0);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

// Powers of ten; with 2 and 5 between them, or a linear choice, where there are fewer than three.
function logTicks(low, high, about) {
  const found = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / Math.max(about, 1)));
  for (let p = first; p <= last; p += every) {
    for (const m of last - first < 4 ? [1, 2, 5] : [1]) found.push(Number((m * 10 ** p).toPrecision(12)));
  }
  const inside = found.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
  return inside.length > 1 ? inside : linearTicks(low, high, about);
}

function makeScale({ low, high, from, to, log = false, whole = false }) {
  if (!(high > low)) high = low + (Math.abs(low) || 1) * 1e-6;
  const turn = log ? Math.log10 : (value) => value;
  const [a, b] = [turn(low), turn(high)];
  const place = (value) => from + ((turn(value) - a) / (b - a)) * (to - from);
  place.ticks = (about) => (log ? logTicks(low, high, about) : linearTicks(low, high, about, whole ? 1 : 0));
  // As many decimals as tell neighbouring ticks apart.
  place.shown = (tick) => {
    const step = log ? Math.abs(tick) : (high - low) / 8, digits = Math.max(0, Math.ceil(-Math.log10(step || 1)));
    if (tick !== 0 && (Math.abs(tick) >= 1e7 || Math.abs(tick) < 1e-4)) return tick.toExponential(0);
    return tick.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 12) });
  };
  return place;
}
