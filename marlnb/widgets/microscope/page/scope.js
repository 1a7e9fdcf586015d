// The microscope: one episode, or two side by side, in step. The page has all arrays, so scrubbing needs no kernel.
const SPEEDS = [2, 5, 10, 25, 60];

function render({ model, el }) {
  const root = make("div", "marlnb-scope");
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "microscope; arrow keys step, Home and End, space plays, up and down choose a unit");
  el.append(root);
  let sides = [];
  let t = Math.max(0, model.get("t"));
  let frame = 0, settleTimer = 0, playing = 0, sharedScale = false, lastTick = 0, longest = null;

  const bar = make("div", "ms-controls");
  const button = (text, label, action) => {
    const node = make("button", "ms-button", text);
    node.type = "button";
    node.title = label;
    node.setAttribute("aria-label", label);
    node.onclick = action;
    return node;
  };
  const play = button("▶", "play", () => (playing ? stop() : start()));
  play.classList.add("ms-play");
  const choose = (label, options, value, action) => {
    const holder = make("label", "ms-choice", `${label} `);
    const select = make("select");
    for (const [key, text] of options) { const option = make("option", "", text); option.value = key; select.append(option); }
    select.value = value;
    select.onchange = () => action(select.value);
    select.setAttribute("aria-label", label);
    holder.append(select);
    return { holder, select };
  };
  const speed = choose("speed", SPEEDS.map((s) => [String(s), `${s} steps a second`]), "10", () => {});
  const slider = make("input", "ms-slider");
  slider.type = "range";
  slider.min = "0";
  slider.setAttribute("aria-label", "step");
  slider.oninput = () => goTo(Number(slider.value));
  const marks = make("div", "ms-marks");
  const track = make("div", "ms-along");
  track.append(slider, marks);
  const reading = make("span", "ms-reading");
  const readingText = document.createTextNode("");
  reading.append(readingText);
  const set = (name) => (value) => { model.set(name, value); model.save_changes(); };
  const layer = choose("units of", [], "", set("layer"));
  const order = choose("order", Object.entries(model.get("orders")), model.get("order"), set("order"));
  const scale = choose("colours", [["unit", "range of each unit"], ["shared", "one range for all units"]], "unit", (v) => { sharedScale = v === "shared"; units(); });
  bar.append(
    button("«", "first step (Home)", () => goTo(0)), button("‹", "step back (left arrow)", () => goTo(t - 1)), play,
    button("›", "step on (right arrow)", () => goTo(t + 1)), button("»", "last step (End)", () => goTo(length() - 1)),
    track, reading,
  );
  const choices = make("div", "ms-controls");
  const working = make("span", "ms-help ms-working");
  working.setAttribute("role", "status");
  choices.append(layer.holder, order.holder, scale.holder, speed.holder, working);
  const stage = make("div", "ms-stage");
  root.append(bar, choices, stage);

  const length = () => Math.max(...sides.map((side) => side.steps));

  function goTo(index) {
    t = Math.min(length() - 1, Math.max(0, index));
    redraw();
  }

  function redraw() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function settle() { // when scrubbing has stopped
    describe();
    if (model.get("t") !== t) { model.set("t", t); model.save_changes(); }
  }

  function draw() {
    frame = 0;
    if (Number(slider.value) !== t) slider.value = String(t);
    const text = `step ${longest.stepNumbers[Math.min(t, longest.steps - 1)]} of ${longest.stepNumbers[longest.steps - 1]}`;
    if (readingText.data !== text) readingText.data = text;
    for (const side of sides) side.at(t);
    root.dataset.t = String(t);
    clearTimeout(settleTimer);
    settleTimer = setTimeout(settle, 250);
  }

  function describe() {
    slider.setAttribute("aria-valuetext", readingText.data);
    for (const side of sides) side.describe(t);
  }

  function start() {
    if (t >= length() - 1) goTo(0);
    lastTick = performance.now();
    const tick = (time) => {
      const due = Math.floor(((time - lastTick) / 1000) * Number(speed.select.value));
      if (due > 0) { lastTick += (due * 1000) / Number(speed.select.value); goTo(t + due); }
      playing = t >= length() - 1 ? 0 : requestAnimationFrame(tick);
      if (!playing) stop();
    };
    playing = requestAnimationFrame(tick);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "pause");
  }
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = "▶";
    play.setAttribute("aria-label", "play");
  }

  function pick(side, agent, unit, index) {
    goTo(index);
    model.set("picked", { side, agent, layer: model.get("layer"), unit, t: index });
    model.save_changes();
    root.focus({ preventScroll: true });
  }

  function onKey(event) {
    if (["SELECT", "TEXTAREA"].includes(event.target.tagName) || isModified(event)) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    const picked = model.get("picked");
    const by = event.shiftKey ? 10 : 1;
    const steps = { ArrowLeft: t - by, ArrowRight: t + by, Home: 0, End: length() - 1, PageUp: t - 10, PageDown: t + 10 };
    if (event.key in steps) goTo(steps[event.key]);
    else if (event.key === " ") { if (playing) stop(); else start(); }
    else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && picked.agent) {
      const card = sides[picked.side]?.cards.find((card) => card.agent.name === picked.agent);
      const unit = card?.heatmap.neighbour(picked.unit, event.key === "ArrowUp" ? -1 : 1);
      if (unit !== null && unit !== undefined) pick(picked.side, picked.agent, unit, t);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
  root.addEventListener("keydown", onKey);
  // or JupyterLab runs commands for letters and arrow keys; it looks for the attribute at the document, after the window
  const keepPlainKeys = (event) => root.toggleAttribute("data-lm-suppress-shortcuts", !isModified(event));
  window.addEventListener("keydown", keepPlainKeys, true);

  const units = () => { for (const side of sides) side.units(sharedScale); mark(); };
  const mark = () => {
    const picked = model.get("picked");
    root.dataset.picked = picked.agent ? `${picked.agent}:${picked.unit}` : "";
    for (const side of sides) side.mark(picked);
  };
  const names = () => {
    layer.select.replaceChildren(...model.get("layers").map((name) => { const option = make("option", "", name); option.value = name; return option; }));
    layer.select.value = model.get("layer");
    order.select.value = model.get("order");
  };
  const films = () => sides.forEach((side, k) => { const film = model.get("films")[k]; if (film) side.film.add(film.images, film.positions); });
  const bookmarks = () => {
    const episode = model.get("sides")[0].episode;
    const ofEpisode = model.get("bookmarks").filter((bookmark) => bookmark.episode === episode);
    marks.replaceChildren(...ofEpisode.map((bookmark) => {
      const index = Math.max(0, sides[0].stepNumbers.indexOf(bookmark.t));
      const mark = button("▾", `bookmark at step ${bookmark.t}: ${bookmark.note}`, () => goTo(index));
      mark.className = "ms-mark";
      mark.style.left = `${(index / Math.max(1, length() - 1)) * 100}%`;
      return mark;
    }));
  };
  const showWorking = () => { working.textContent = model.get("working"); };
  const notes = () => sides.forEach((side, k) => side.film.showNote(model.get("notes")[k] || ""));

  function build() {
    stop();
    for (const side of sides) side.end();
    sides = model.get("sides").map((_, number) => makeSide({ model, number, goTo, pick }));
    longest = sides.reduce((a, b) => (b.steps > a.steps ? b : a));
    stage.replaceChildren(...sides.map((side) => side.box));
    stage.classList.toggle("ms-two", sides.length > 1);
    slider.max = String(length() - 1);
    t = Math.min(Math.max(0, model.get("t")), length() - 1);
    names(); films(); notes(); showWorking(); bookmarks(); units();
    for (const side of sides) { side.shown(); side.showAttributions(); side.showConcepts(); }
    draw();
    describe();
    root.dataset.sides = String(sides.length);
    root.dataset.opened = String(performance.timeOrigin + performance.now());
  }

  const handlers = {
    "change:sides": build,
    "change:films": () => { films(); redraw(); },
    "change:attributions": () => { for (const side of sides) side.showAttributions(); redraw(); },
    "change:concepts": () => { for (const side of sides) side.showConcepts(); redraw(); },
    "change:agents change:explained": () => { for (const side of sides) side.shown(); redraw(); },
    "change:layers": names,
    "change:layer change:order": () => { names(); units(); },
    "change:picked": mark,
    "change:bookmarks": bookmarks,
    "change:notes": notes,
    "change:working": showWorking,
    "change:t": () => { if (model.get("t") !== t) goTo(model.get("t")); },
    "msg:custom": (content, buffers) => {
      if (content.film === undefined || !sides[content.film]) return;
      sides[content.film].film.add(imagesIn(content, buffers), content.positions);
      redraw();
    },
  };
  for (const [name, handler] of Object.entries(handlers)) model.on(name, handler);
  const themeObserver = new MutationObserver(() => { for (const side of sides) side.redraw(); });
  build();
  themeObserver.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  return () => {
    stop();
    window.removeEventListener("keydown", keepPlainKeys, true);
    cancelAnimationFrame(frame);
    clearTimeout(settleTimer);
    themeObserver.disconnect();
    for (const side of sides) side.end();
    for (const [name, handler] of Object.entries(handlers)) model.off(name, handler);
  };
}

// The page puts the frames that it receives into the model's state, from which the notebook is saved, and tells the
// kernel so: it need not send them a second time.
function initialize({ model }) {
  model.on("msg:custom", (content, buffers) => {
    const film = content.film === undefined ? null : model.get("films")[content.film];
    if (!film) return;
    Object.assign(film.images, imagesIn(content, buffers));
    Object.assign(film.positions, content.positions);
  });
  model.send({ saves_frames: true });
}

const isModified = (event) => event.ctrlKey || event.altKey || event.metaKey;

const imagesIn = (content, buffers) => Object.fromEntries(content.at.map((index, k) => [index, buffers[k]]));

export default { initialize, render };
