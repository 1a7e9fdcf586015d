// Values and rewards of all agents over the episode, drawn once; scrubbing moves a line over them and shows numbers.
const CHART_HEIGHT = 64; // CSS pixels

function makeTraces({ steps, agents, onPick }) {
  const box = make("div", "ms-traces");
  const head = make("div", "ms-playhead");
  const holder = make("div", "ms-trace-holder");
  const curves = agents.map((agent) => ({
    name: agent.name,
    colour: agent.colour,
    reward: floatsOf(agent.reward),
    value: agent.value ? floatsOf(agent.value) : null,
  }));
  const withValues = curves.some((curve) => curve.value);
  const face = makeCanvas("ms-trace-canvas", withValues ? 2 * CHART_HEIGHT + 4 : CHART_HEIGHT + 2, draw);
  const legend = makeLegend(curves, withValues);
  holder.append(face.canvas, head);
  box.append(holder, legend.box);
  let now = 0, shown = -1;

  function chart(name, lines, top) {
    const { context, width, ink } = face;
    let [low, high] = [Infinity, -Infinity];
    for (const { y } of lines) for (const v of y) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (!(high >= low)) [low, high] = [0, 1];
    const text = `${name} ${brief(low)} to ${brief(high)}`;
    if (high === low) [low, high] = [low - 0.5, high + 0.5];
    const py = (v) => top + 3 + (1 - (v - low) / (high - low)) * (CHART_HEIGHT - 6);
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
    context.textBaseline = "top";
    context.globalAlpha = 0.8; // curves stay visible behind the text
    context.fillStyle = ink.back;
    context.fillRect(2, top + 1, context.measureText(text).width + 4, 13);
    context.globalAlpha = 1;
    context.fillStyle = ink.text;
    context.fillText(text, 4, top + 2);
  }

  function draw() {
    chart("reward", curves.map((c) => ({ y: c.reward, colour: c.colour })), 0);
    head.style.width = `${Math.max(3, face.width / steps)}px`;
    shown = -1;
    at(now);
    if (!withValues) return;
    face.context.fillStyle = face.ink.line;
    face.context.fillRect(0, CHART_HEIGHT + 2, face.width, 1);
    chart("value", curves.filter((c) => c.value).map((c) => ({ y: c.value, colour: c.colour })), CHART_HEIGHT + 4);
  }

  function at(t) {
    now = t;
    if (shown === t || !face.width) return;
    shown = t;
    head.style.transform = `translateX(${(t / steps) * face.width}px)`;
    legend.at(t);
  }

  holder.addEventListener("click", (event) => {
    const area = face.canvas.getBoundingClientRect();
    onPick(Math.min(steps - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * steps))));
  });
  return {
    box,
    at,
    redraw() { face.draw(); legend.redraw(); },
    describe: legend.describe,
    end() { face.end(); legend.end(); },
  };
}

// the colour and the numbers of each agent at the step
function makeLegend(curves, withValues) {
  const box = make("div", "ms-legend");
  const names = make("div", "ms-bar-names");
  for (const curve of curves) {
    const entry = make("div", "ms-bar-name");
    const swatch = make("span", "ms-swatch");
    swatch.style.background = curve.colour;
    entry.append(swatch, make("span", "", curve.name));
    names.append(entry);
  }
  let now = 0;
  const face = makeCanvas("ms-bar-canvas", curves.length * ROW, draw);
  face.canvas.setAttribute("role", "img");
  box.append(names, face.canvas);

  function draw() {
    const { context, width, ink } = face;
    context.clearRect(0, 0, width, face.height);
    context.textBaseline = "middle";
    for (let k = 0; k < curves.length; k++) {
      const y = k * ROW + ROW / 2 + 1, { reward, value } = curves[k];
      context.fillStyle = ink.faint;
      context.textAlign = "left";
      context.fillText("reward", 0, y);
      if (withValues) context.fillText("value", width / 2 + 4, y);
      context.fillStyle = ink.text;
      context.textAlign = "right";
      context.fillText(brief(reward[now]), withValues ? width / 2 - 4 : width, y);
      if (withValues) context.fillText(value ? brief(value[now]) : "–", width, y);
    }
  }

  return {
    box,
    at(t) { now = t; if (face.width) draw(); },
    redraw: face.draw,
    end: face.end,
    describe() {
      const text = curves.map((c) => `${c.name}: reward ${brief(c.reward[now])}${c.value ? `, value ${brief(c.value[now])}` : ""}`);
      face.canvas.setAttribute("aria-label", text.join("; "));
    },
  };
}
