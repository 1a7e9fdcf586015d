// Values and rewards of all agents over the episode, drawn once; scrubbing moves a line over them.
function makeTraces({ steps, agents, onPick }) {
  const box = make("div", "ms-traces");
  const canvas = make("canvas");
  const head = make("div", "ms-playhead");
  const holder = make("div", "ms-trace-holder");
  holder.append(canvas, head);
  const legend = make("div", "ms-legend");
  box.append(holder, legend);
  const curves = agents.map((agent) => ({
    name: agent.name,
    colour: agent.colour,
    reward: floatsOf(agent.reward),
    value: agent.value ? floatsOf(agent.value) : null,
  }));
  const entries = curves.map((curve) => {
    const entry = make("span", "ms-entry");
    const swatch = make("span", "ms-swatch");
    swatch.style.background = curve.colour;
    const text = make("span");
    entry.append(swatch, text);
    legend.append(entry);
    return text;
  });

  function chart(context, name, lines, top, height, width, ink) {
    let [low, high] = [Infinity, -Infinity];
    for (const { y } of lines) for (const v of y) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (!(high >= low)) [low, high] = [0, 1];
    if (high === low) [low, high] = [low - 0.5, high + 0.5];
    const py = (v) => top + 3 + (1 - (v - low) / (high - low)) * (height - 6);
    context.lineWidth = 1.5;
    lines.forEach(({ y, colour }, k) => {
      context.strokeStyle = colour;
      context.setLineDash(k % 2 ? [6, 3] : []);
      context.beginPath();
      y.forEach((v, t) => { const x = ((t + 0.5) / steps) * width; if (t) context.lineTo(x, py(v)); else context.moveTo(x, py(v)); });
      if (steps === 1) context.arc(width / 2, py(y[0]), 2, 0, 7);
      context.stroke();
    });
    context.setLineDash([]);
    context.fillStyle = ink;
    context.textBaseline = "top";
    context.fillText(`${name} ${brief(low)} to ${brief(high)}`, 4, top + 2);
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(160, holder.clientWidth);
    const withValues = curves.some((curve) => curve.value);
    const height = withValues ? 132 : 66;
    holder.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = `11px ${theme(box, "--jp-ui-font-family", "sans-serif")}`;
    const ink = theme(box, "--jp-ui-font-color1", "#222");
    chart(context, "reward", curves.map((c) => ({ y: c.reward, colour: c.colour })), 0, 64, width, ink);
    if (withValues) {
      context.strokeStyle = theme(box, "--jp-border-color2", "#ddd");
      context.beginPath(); context.moveTo(0, 66); context.lineTo(width, 66); context.stroke();
      const lines = curves.filter((c) => c.value).map((c) => ({ y: c.value, colour: c.colour }));
      chart(context, "value", lines, 68, 64, width, ink);
    }
  }
  holder.addEventListener("click", (event) => {
    const area = canvas.getBoundingClientRect();
    onPick(Math.min(steps - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * steps))));
  });
  return {
    box,
    draw,
    at(t) {
      head.style.left = `${(t / steps) * 100}%`;
      head.style.width = `max(2px, ${100 / steps}%)`;
      curves.forEach((curve, k) => {
        const value = curve.value ? `, value ${brief(curve.value[t])}` : "";
        entries[k].textContent = `${curve.name}: reward ${brief(curve.reward[t])}${value}`;
      });
    },
  };
}
