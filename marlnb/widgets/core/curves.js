// Lines over a shared x axis on a canvas. Colours come from JupyterLab's theme; nothing is downloaded. New points are
// drawn at most twice a second, and only while the canvas is visible: the page may share its cores with the training.
const DRAW_MS = 500;
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C"];
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [12, 4]];
const MARGIN = { left: 64, right: 118, top: 10, bottom: 34 };

const shortNumber = (v) => {
  const a = Math.abs(v);
  if (a >= 1e6) return `${+(v / 1e6).toPrecision(3)}M`;
  if (a >= 1e4) return `${+(v / 1e3).toPrecision(3)}k`;
  return `${+v.toPrecision(4)}`;
};

function ticks(low, high, maxTicks) {
  const span = high - low || 1;
  const rough = span / maxTicks;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const values = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) values.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return values;
}

function render({ model, el }) {
  const themeColour = (name, fallback) => getComputedStyle(el).getPropertyValue(name).trim() || fallback;
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
  let pointer = null; // x in data units; null: none
  let frame = 0; // id of the animation frame that will draw; 0: none
  let timer = 0; // id of the timer after which new points are drawn; 0: none
  let drawnAt = -Infinity;
  let visible = true;
  let requested = false; // all points, because some did not reach this page

  const shownLines = () => Object.keys(lines).filter((name) => !model.get("hidden").includes(name));
  const styleOf = (name) => {
    const index = Object.keys(lines).indexOf(name);
    return { colour: COLOURS[index % COLOURS.length], dash: DASHES[Math.floor(index / COLOURS.length + index) % DASHES.length] };
  };

  function range() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const name of shownLines()) {
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
    frame = 0;
    drawnAt = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(220, canvas.clientWidth || 600);
    const height = model.get("height");
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const ink = themeColour("--jp-ui-font-color1", "#222");
    const muted = themeColour("--jp-ui-font-color2", "#666");
    const grid = themeColour("--jp-border-color2", "#e0e0e0");
    const right = Object.keys(model.get("references")).length && width > 420 ? MARGIN.right : 14;
    const { x0, x1, y0, y1 } = range();
    const px = (x) => MARGIN.left + ((x - x0) / (x1 - x0)) * (width - MARGIN.left - right);
    const py = (y) => height - MARGIN.bottom - ((y - y0) / (y1 - y0)) * (height - MARGIN.top - MARGIN.bottom);
    c.font = `11px ${themeColour("--jp-ui-font-family", "sans-serif")}`;
    c.lineWidth = 1;
    for (const y of ticks(y0, y1, 5)) {
      c.strokeStyle = grid;
      c.beginPath(); c.moveTo(MARGIN.left, py(y)); c.lineTo(width - right, py(y)); c.stroke();
      c.fillStyle = ink; c.textAlign = "right"; c.textBaseline = "middle";
      c.fillText(shortNumber(y), MARGIN.left - 6, py(y));
    }
    c.textAlign = "center"; c.textBaseline = "top";
    for (const x of ticks(x0, x1, Math.max(2, Math.floor(width / 110)))) c.fillText(shortNumber(x), px(x), height - MARGIN.bottom + 5);
    c.fillStyle = muted;
    c.fillText(model.get("x_label"), (MARGIN.left + width - right) / 2, height - 14);
    c.save();
    c.translate(12, (height - MARGIN.bottom + MARGIN.top) / 2); c.rotate(-Math.PI / 2); c.textBaseline = "middle";
    c.fillText(model.get("y_label"), 0, 0);
    c.restore();
    let lastLabelY = Infinity;
    for (const [name, y] of Object.entries(model.get("references")).sort((a, b) => a[1] - b[1])) {
      c.strokeStyle = muted; c.setLineDash([5, 4]);
      c.beginPath(); c.moveTo(MARGIN.left, py(y)); c.lineTo(width - right, py(y)); c.stroke();
      c.setLineDash([]);
      if (right > 20) {
        const labelY = Math.min(py(y), lastLabelY - 13);
        lastLabelY = labelY;
        c.fillStyle = muted; c.textAlign = "left"; c.textBaseline = "middle";
        c.fillText(`${name} ${shortNumber(y)}`, width - right + 5, labelY, right - 6);
      }
    }
    drawMarkers(c, px, { x0, x1, height, ink, muted });
    for (const name of shownLines()) {
      const [xs, ys] = lines[name];
      const { colour, dash } = styleOf(name);
      c.strokeStyle = colour; c.lineWidth = 2; c.setLineDash(dash); c.beginPath();
      xs.forEach((x, k) => (k ? c.lineTo(px(x), py(ys[k])) : c.moveTo(px(x), py(ys[k]))));
      if (xs.length === 1) c.arc(px(xs[0]), py(ys[0]), 2, 0, 7);
      c.stroke(); c.setLineDash([]);
    }
    if (pointer !== null) {
      c.strokeStyle = muted; c.lineWidth = 1;
      c.beginPath(); c.moveTo(px(pointer), MARGIN.top); c.lineTo(px(pointer), height - MARGIN.bottom); c.stroke();
    }
  }

  // the newest values as text, for screen readers, whether or not the canvas is visible
  function describe() {
    canvas.dataset.points = String(Math.max(0, ...Object.values(lines).map(([xs]) => xs.length)));
    canvas.setAttribute("aria-label", `${model.get("title")}: ${newestValues()}${markerText()}`);
    showReading();
  }

  // vertical lines with labels at the top: strong ones first, others only where their label has room
  function drawMarkers(c, px, { x0, x1, height, ink, muted }) {
    const occupied = [];
    const inside = model.get("markers").filter(([x]) => x >= x0 && x <= x1);
    for (const [x, label, strong] of [...inside].sort((a, b) => b[2] - a[2])) {
      c.strokeStyle = strong ? ink : muted;
      c.lineWidth = strong ? 1.5 : 1;
      c.globalAlpha = strong ? 1 : 0.45;
      c.setLineDash(strong ? [] : [1, 3]);
      c.beginPath(); c.moveTo(px(x), MARGIN.top + 12); c.lineTo(px(x), height - MARGIN.bottom); c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 1;
      const half = c.measureText(label).width / 2 + 3;
      const labelX = Math.min(Math.max(MARGIN.left + half, px(x)), px(x1) + 12 - half);
      if (occupied.some(([low, high]) => labelX + half > low && labelX - half < high)) continue;
      occupied.push([labelX - half, labelX + half]);
      c.fillStyle = strong ? ink : muted; c.textAlign = "center"; c.textBaseline = "top";
      c.fillText(label, labelX, MARGIN.top - 2);
    }
  }

  const markerText = () => {
    const all = model.get("markers");
    const strong = all.filter(([, , strong]) => strong).map(([x, label]) => `, ${label} at ${shortNumber(x)}`).join("");
    return all.length ? `; ${all.length} marked${strong}` : "";
  };

  const newestValues = () => shownLines().filter((n) => lines[n][0].length).map((n) => {
    const [xs, ys] = lines[n];
    return `${n} ${shortNumber(ys[ys.length - 1])} at ${shortNumber(xs[xs.length - 1])}`;
  }).join("; ") || "no points yet";

  function showReading() {
    reading.setAttribute("aria-live", pointer === null ? "off" : "polite"); // new points are not read aloud
    if (pointer === null) { reading.textContent = newestValues(); return; }
    reading.textContent = `${model.get("x_label")} ${shortNumber(pointer)}: ` + shownLines().filter((n) => lines[n][0].length).map((n) => {
      const [xs, ys] = lines[n];
      let nearest = 0;
      xs.forEach((x, k) => { if (Math.abs(x - pointer) < Math.abs(xs[nearest] - pointer)) nearest = k; });
      return `${n} ${shortNumber(ys[nearest])}`;
    }).join("; ");
  }

  const redraw = () => {
    clearTimeout(timer);
    timer = 0;
    describe();
    if (visible && !frame) frame = requestAnimationFrame(draw);
  };
  const redrawSoon = () => { if (!timer) timer = setTimeout(redraw, Math.max(0, drawnAt + DRAW_MS - performance.now())); };

  function drawLegend() {
    heading.textContent = model.get("title");
    legend.replaceChildren(...Object.keys(lines).map((line) => {
      const { colour } = styleOf(line);
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

  const reset = () => { requested = false; lines = structuredClone(model.get("lines")); drawLegend(); redraw(); };
  const onMessage = (content) => {
    for (const [line, [xs, ys]] of Object.entries(content.add || {})) {
      const received = lines[line] ? lines[line][0].length : 0;
      const known = received - content.after[line]; // points of this message that a full state has already brought
      if (known < 0 && !requested) {
        requested = true;
        model.send({ request: "lines" });
      }
      if (known < 0 || !lines[line]) continue;
      lines[line][0].push(...xs.slice(known));
      lines[line][1].push(...ys.slice(known));
    }
    redrawSoon();
  };
  const movePointer = (event) => {
    const box = canvas.getBoundingClientRect();
    const { x0, x1 } = range();
    const right = Object.keys(model.get("references")).length && box.width > 420 ? MARGIN.right : 14;
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - right);
    pointer = share >= 0 && share <= 1 ? x0 + share * (x1 - x0) : null;
    redraw();
  };
  const onKey = (event) => {
    const { x0, x1 } = range();
    const step = ((x1 - x0) / 50) * ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0);
    if (event.key === "Escape") pointer = null;
    else if (step) pointer = Math.min(x1, Math.max(x0, (pointer === null ? x1 : pointer) + step));
    else return;
    event.preventDefault();
    event.stopPropagation();
    redraw();
  };
  canvas.addEventListener("mousemove", movePointer);
  canvas.addEventListener("mouseleave", () => { pointer = null; redraw(); });
  canvas.addEventListener("keydown", onKey);
  const sizeObserver = new ResizeObserver(redraw);
  sizeObserver.observe(root);
  const visibilityObserver = new IntersectionObserver((entries) => { visible = entries.at(-1).isIntersecting; if (visible) redraw(); });
  visibilityObserver.observe(canvas);
  const themeObserver = new MutationObserver(redraw);
  themeObserver.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const onHidden = () => { drawLegend(); redraw(); };
  model.on("change:lines", reset);
  model.on("change:hidden change:title", onHidden);
  model.on("change:references change:height change:markers", redraw);
  model.on("msg:custom", onMessage);
  reset();
  model.send({ seen: true });
  return () => {
    sizeObserver.disconnect();
    visibilityObserver.disconnect();
    themeObserver.disconnect();
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    model.off("change:lines", reset);
    model.off("change:hidden change:title", onHidden);
    model.off("change:references change:height change:markers", redraw);
    model.off("msg:custom", onMessage);
  };
}

export default { render };
