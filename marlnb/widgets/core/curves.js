// Lines over a shared x axis on a canvas. Colours come from JupyterLab's theme; nothing is fetched. New points are drawn
// twice a second at most, and nothing while nobody can see it: the training may share the cores with the page.
const DRAW_MS = 500;
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C"];
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [12, 4]];
const EDGE = { left: 64, right: 118, top: 10, bottom: 34 };

const short = (v) => {
  const a = Math.abs(v);
  if (a >= 1e6) return `${+(v / 1e6).toPrecision(3)}M`;
  if (a >= 1e4) return `${+(v / 1e3).toPrecision(3)}k`;
  return `${+v.toPrecision(4)}`;
};

function ticks(low, high, most) {
  const span = high - low || 1;
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

function render({ model, el }) {
  const theme = (name, otherwise) => getComputedStyle(el).getPropertyValue(name).trim() || otherwise;
  const root = document.createElement("div");
  root.className = "marlnb-curves";
  const heading = document.createElement("div");
  heading.style.cssText = "font-weight:600;margin:2px 0;color:var(--jp-ui-font-color1,#222)";
  const legend = document.createElement("div");
  legend.style.cssText = "display:flex;flex-wrap:wrap;gap:2px 12px;margin:2px 0";
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.style.cssText = "width:100%;display:block";
  const reading = document.createElement("div");
  reading.setAttribute("role", "status");
  reading.style.cssText = "min-height:1.4em;color:var(--jp-ui-font-color1,#222);font-size:90%";
  root.append(heading, legend, canvas, reading);
  el.append(root);

  let lines = {};
  let pointer = null; // x in data units, null where none
  let wanted = 0; // the number of the frame that draws, 0: none
  let waiting = 0; // the number of the timer after which new points are drawn, 0: none
  let drawn = -Infinity; // when
  let visible = true;
  let asked = false; // for all points, since some did not reach this page

  const shown = () => Object.keys(lines).filter((name) => !model.get("hidden").includes(name));
  const look = (name) => {
    const place = Object.keys(lines).indexOf(name);
    return { colour: COLOURS[place % COLOURS.length], dash: DASHES[Math.floor(place / COLOURS.length + place) % DASHES.length] };
  };

  function range() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const name of shown()) {
      const [xs, ys] = lines[name];
      if (!xs.length) continue;
      x0 = Math.min(x0, xs[0]);
      x1 = Math.max(x1, xs[xs.length - 1]);
      for (const y of ys) { if (y < y0) y0 = y; if (y > y1) y1 = y; }
    }
    for (const y of Object.values(model.get("references"))) { y0 = Math.min(y0, y); y1 = Math.max(y1, y); }
    if (!(x1 > -Infinity)) [x0, x1] = [0, 1];
    if (!(y1 > -Infinity)) [y0, y1] = [0, 1];
    const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
    return { x0, x1: x1 > x0 ? x1 : x0 + 1, y0: y0 - pad, y1: y1 + pad };
  }

  function draw() {
    wanted = 0;
    drawn = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(220, canvas.clientWidth || 600);
    const height = model.get("height");
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const ink = theme("--jp-ui-font-color1", "#222");
    const muted = theme("--jp-ui-font-color2", "#666");
    const grid = theme("--jp-border-color2", "#e0e0e0");
    const right = Object.keys(model.get("references")).length && width > 420 ? EDGE.right : 14;
    const { x0, x1, y0, y1 } = range();
    const px = (x) => EDGE.left + ((x - x0) / (x1 - x0)) * (width - EDGE.left - right);
    const py = (y) => height - EDGE.bottom - ((y - y0) / (y1 - y0)) * (height - EDGE.top - EDGE.bottom);
    c.font = `11px ${theme("--jp-ui-font-family", "sans-serif")}`;
    c.lineWidth = 1;
    for (const y of ticks(y0, y1, 5)) {
      c.strokeStyle = grid;
      c.beginPath(); c.moveTo(EDGE.left, py(y)); c.lineTo(width - right, py(y)); c.stroke();
      c.fillStyle = ink; c.textAlign = "right"; c.textBaseline = "middle";
      c.fillText(short(y), EDGE.left - 6, py(y));
    }
    c.textAlign = "center"; c.textBaseline = "top";
    for (const x of ticks(x0, x1, Math.max(2, Math.floor(width / 110)))) c.fillText(short(x), px(x), height - EDGE.bottom + 5);
    c.fillStyle = muted;
    c.fillText(model.get("x_label"), (EDGE.left + width - right) / 2, height - 14);
    c.save();
    c.translate(12, (height - EDGE.bottom + EDGE.top) / 2); c.rotate(-Math.PI / 2); c.textBaseline = "middle";
    c.fillText(model.get("y_label"), 0, 0);
    c.restore();
    let last = Infinity;
    for (const [name, y] of Object.entries(model.get("references")).sort((a, b) => a[1] - b[1])) {
      c.strokeStyle = muted; c.setLineDash([5, 4]);
      c.beginPath(); c.moveTo(EDGE.left, py(y)); c.lineTo(width - right, py(y)); c.stroke();
      c.setLineDash([]);
      if (right > 20) {
        const at = Math.min(py(y), last - 13);
        last = at;
        c.fillStyle = muted; c.textAlign = "left"; c.textBaseline = "middle";
        c.fillText(`${name} ${short(y)}`, width - right + 5, at, right - 6);
      }
    }
    mark(c, px, { x0, x1, height, ink, muted });
    for (const name of shown()) {
      const [xs, ys] = lines[name];
      const { colour, dash } = look(name);
      c.strokeStyle = colour; c.lineWidth = 2; c.setLineDash(dash); c.beginPath();
      xs.forEach((x, k) => (k ? c.lineTo(px(x), py(ys[k])) : c.moveTo(px(x), py(ys[k]))));
      if (xs.length === 1) c.arc(px(xs[0]), py(ys[0]), 2, 0, 7);
      c.stroke(); c.setLineDash([]);
    }
    if (pointer !== null) {
      c.strokeStyle = muted; c.lineWidth = 1;
      c.beginPath(); c.moveTo(px(pointer), EDGE.top); c.lineTo(px(pointer), height - EDGE.bottom); c.stroke();
    }
  }

  // what the page knows, in words, whether or not it is in sight
  function tell() {
    canvas.dataset.points = String(Math.max(0, ...Object.values(lines).map(([xs]) => xs.length)));
    canvas.setAttribute("aria-label", `${model.get("title")}: ${newest()}${marked()}`);
    read();
  }

  // upright lines with labels at the top: strong ones first, others only where there is room for their label
  function mark(c, px, { x0, x1, height, ink, muted }) {
    const taken = [];
    const inside = model.get("markers").filter(([x]) => x >= x0 && x <= x1);
    for (const [x, label, strong] of [...inside].sort((a, b) => b[2] - a[2])) {
      c.strokeStyle = strong ? ink : muted;
      c.lineWidth = strong ? 1.5 : 1;
      c.globalAlpha = strong ? 1 : 0.45;
      c.setLineDash(strong ? [] : [1, 3]);
      c.beginPath(); c.moveTo(px(x), EDGE.top + 12); c.lineTo(px(x), height - EDGE.bottom); c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 1;
      const half = c.measureText(label).width / 2 + 3;
      const at = Math.min(Math.max(EDGE.left + half, px(x)), px(x1) + 12 - half);
      if (taken.some(([low, high]) => at + half > low && at - half < high)) continue;
      taken.push([at - half, at + half]);
      c.fillStyle = strong ? ink : muted; c.textAlign = "center"; c.textBaseline = "top";
      c.fillText(label, at, EDGE.top - 2);
    }
  }

  const marked = () => {
    const all = model.get("markers");
    const told = all.filter(([, , strong]) => strong).map(([x, label]) => `, ${label} at ${short(x)}`).join("");
    return all.length ? `; ${all.length} marked${told}` : "";
  };

  const newest = () => shown().filter((n) => lines[n][0].length).map((n) => {
    const [xs, ys] = lines[n];
    return `${n} ${short(ys[ys.length - 1])} at ${short(xs[xs.length - 1])}`;
  }).join(", ") || "no points yet";

  function read() {
    reading.setAttribute("aria-live", pointer === null ? "off" : "polite"); // points that come are not read out
    if (pointer === null) { reading.textContent = newest(); return; }
    reading.textContent = `${model.get("x_label")} ${short(pointer)}: ` + shown().filter((n) => lines[n][0].length).map((n) => {
      const [xs, ys] = lines[n];
      let best = 0;
      xs.forEach((x, k) => { if (Math.abs(x - pointer) < Math.abs(xs[best] - pointer)) best = k; });
      return `${n} ${short(ys[best])}`;
    }).join(", ");
  }

  const redraw = () => {
    clearTimeout(waiting);
    waiting = 0;
    tell();
    if (visible && !wanted) wanted = requestAnimationFrame(draw);
  };
  const soon = () => { if (!waiting) waiting = setTimeout(redraw, Math.max(0, drawn + DRAW_MS - performance.now())); };

  function name() {
    heading.textContent = model.get("title");
    legend.replaceChildren(...Object.keys(lines).map((line) => {
      const { colour } = look(line);
      const button = document.createElement("button");
      const off = model.get("hidden").includes(line);
      button.type = "button";
      button.setAttribute("aria-pressed", String(!off));
      button.title = off ? `show ${line}` : `hide ${line}`;
      button.style.cssText = `border:0;background:none;cursor:pointer;padding:1px 2px;color:var(--jp-ui-font-color1,#222);text-decoration:${off ? "line-through" : "none"}`;
      const swatch = document.createElement("span");
      swatch.style.cssText = `display:inline-block;width:18px;height:3px;margin-right:5px;vertical-align:middle;background:${colour};opacity:${off ? 0.35 : 1}`;
      button.append(swatch, line);
      button.onclick = () => {
        const hidden = model.get("hidden");
        model.set("hidden", off ? hidden.filter((h) => h !== line) : [...hidden, line]);
        model.save_changes();
      };
      return button;
    }));
  }

  const whole = () => { asked = false; lines = structuredClone(model.get("lines")); name(); redraw(); };
  const message = (content) => {
    for (const [line, [xs, ys]] of Object.entries(content.add || {})) {
      const had = lines[line] ? lines[line][0].length : 0;
      const known = had - content.after[line]; // points of this message that the whole state brought before it
      if (known < 0 && !asked) {
        asked = true;
        model.send({ ask: "lines" });
      }
      if (known < 0 || !lines[line]) continue;
      lines[line][0].push(...xs.slice(known));
      lines[line][1].push(...ys.slice(known));
    }
    soon();
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const { x0, x1 } = range();
    const right = Object.keys(model.get("references")).length && box.width > 420 ? EDGE.right : 14;
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - right);
    pointer = share >= 0 && share <= 1 ? x0 + share * (x1 - x0) : null;
    redraw();
  };
  const key = (event) => {
    const { x0, x1 } = range();
    const step = ((x1 - x0) / 50) * ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0);
    if (event.key === "Escape") pointer = null;
    else if (step) pointer = Math.min(x1, Math.max(x0, (pointer === null ? x1 : pointer) + step));
    else return;
    event.preventDefault();
    event.stopPropagation();
    redraw();
  };
  canvas.addEventListener("mousemove", place);
  canvas.addEventListener("mouseleave", () => { pointer = null; redraw(); });
  canvas.addEventListener("keydown", key);
  const sized = new ResizeObserver(redraw);
  sized.observe(root);
  const seen = new IntersectionObserver((entries) => { visible = entries.at(-1).isIntersecting; if (visible) redraw(); });
  seen.observe(canvas);
  const themed = new MutationObserver(redraw);
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const hidden = () => { name(); redraw(); };
  model.on("change:lines", whole);
  model.on("change:hidden change:title", hidden);
  model.on("change:references change:height change:markers", redraw);
  model.on("msg:custom", message);
  whole();
  model.send({ seen: true });
  return () => {
    sized.disconnect();
    seen.disconnect();
    themed.disconnect();
    clearTimeout(waiting);
    cancelAnimationFrame(wanted);
    model.off("change:lines", whole);
    model.off("change:hidden change:title", hidden);
    model.off("change:references change:height change:markers", redraw);
    model.off("msg:custom", message);
  };
}

export default { render };
