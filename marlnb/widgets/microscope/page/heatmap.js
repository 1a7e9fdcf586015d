// One agent's units over time, painted once into a small canvas that CSS stretches; scrubbing moves a line over it.
function makeHeatmap({ steps, onPick, onHover }) {
  const box = make("div", "ms-heatmap");
  const canvas = make("canvas");
  const head = make("div", "ms-playhead");
  const row = make("div", "ms-unit-row");
  row.hidden = true;
  box.append(canvas, row, head);
  let units = null; // {n, quantised, low, high, order}
  let acting = null;
  let sharedScale = false;
  let width = 0, now = 0, shown = -1;
  const sizeObserver = new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    shown = -1;
    head.style.width = `${Math.max(3, width / steps)}px`;
    moveTo(now);
  });
  sizeObserver.observe(box);

  function moveTo(t) { // the compositor moves it: no layout, no painting
    now = t;
    if (shown === t || !width) return;
    shown = t;
    head.style.transform = `translateX(${(t / steps) * width}px)`;
  }

  function paint() {
    if (!units) return;
    canvas.width = steps;
    canvas.height = units.n;
    box.style.height = `${Math.min(190, Math.max(36, units.n * 3))}px`;
    const context = canvas.getContext("2d");
    const image = context.createImageData(steps, units.n);
    const pixels = new Uint32Array(image.data.buffer);
    let [low, high] = [Infinity, -Infinity];
    for (let u = 0; u < units.n; u++) { low = Math.min(low, units.low[u]); high = Math.max(high, units.high[u]); }
    const span = high - low || 1;
    for (let y = 0; y < units.n; y++) {
      const u = units.order[y];
      const scale = sharedScale ? (units.high[u] - units.low[u]) / span : 1;
      const shift = sharedScale ? ((units.low[u] - low) / span) * 255 : 0;
      const from = u * steps;
      for (let t = 0; t < steps; t++) {
        pixels[y * steps + t] = acting[t] ? LUT[Math.min(255, Math.round(units.quantised[from + t] * scale + shift))] : ABSENT;
      }
    }
    context.putImageData(image, 0, 0);
    canvas.dataset.painted = String(Number(canvas.dataset.painted || 0) + 1);
  }

  const unitAt = (event) => {
    const area = canvas.getBoundingClientRect();
    const t = Math.floor(((event.clientX - area.left) / area.width) * steps);
    const y = Math.floor(((event.clientY - area.top) / area.height) * units.n);
    return { t: Math.min(steps - 1, Math.max(0, t)), unit: units.order[Math.min(units.n - 1, Math.max(0, y))] };
  };
  const approximate = (unit, t) => units.low[unit] + (units.quantised[unit * steps + t] / 255) * (units.high[unit] - units.low[unit]);
  box.addEventListener("click", (event) => { if (units) onPick(unitAt(event)); });
  box.addEventListener("mousemove", (event) => {
    if (!units) return;
    const at = unitAt(event);
    onHover(`unit ${at.unit} at step ${at.t}: about ${brief(approximate(at.unit, at.t))}`);
  });
  const isConstant = () => units && units.low.every((low, unit) => low === units.high[unit]);
  const clearHover = () => onHover(isConstant() ? "no unit changes in this episode; choose one range for all units to compare them" : "");
  box.addEventListener("mouseleave", clearHover);

  return {
    box,
    canvas,
    setUnits(data, order, isActing, useSharedScale) {
      acting = isActing;
      sharedScale = useSharedScale;
      units = data && {
        n: data.n,
        quantised: bytesOf(data.quantised),
        low: floatsOf(data.low),
        high: floatsOf(data.high),
        order: intsOf(data.orders[order] || data.orders.raw),
      };
      box.hidden = !units;
      clearHover();
      paint();
    },
    at: moveTo,
    end: () => sizeObserver.disconnect(),
    mark(unit) {
      const index = units && unit !== null ? units.order.indexOf(unit) : -1;
      row.hidden = index < 0;
      if (index >= 0) {
        row.style.top = `${(index / units.n) * 100}%`;
        row.style.height = `max(2px, ${100 / units.n}%)`;
      }
    },
    neighbour(unit, by) { // the unit that is drawn above or below
      if (!units) return null;
      const index = Math.min(units.n - 1, Math.max(0, units.order.indexOf(unit) + by));
      return units.order[index];
    },
    approximate: (unit, t) => (units ? approximate(unit, t) : NaN),
  };
}
