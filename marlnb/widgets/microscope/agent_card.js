// One agent: its units, its action, what it looked at, and what is decoded from it.
const BARS = 8; // features that are drawn
const KINDS = { probability: "action, probability", score: "action, score (no probability)", value: "action" };

// where a step's values lie among those that are there; null where it is not explained
const rowOf = (found, t) => (found.at === undefined || found.at === null ? t : found.at === t ? 0 : null);

function makeCard({ agent, steps, onPick, onLook }) {
  const card = make("section", "ms-card");
  card.dataset.agent = agent.name;
  card.setAttribute("aria-label", agent.name);
  const title = make("div", "ms-card-title");
  const name = make("button", "ms-agent", agent.name);
  name.type = "button";
  name.style.borderColor = agent.colour;
  name.title = "show on the picture what this agent looked at";
  name.onclick = onLook;
  const did = make("span", "ms-did");
  const didText = document.createTextNode("");
  did.append(didText);
  title.append(name, did);
  const hover = make("div", "ms-help ms-hover");
  const heatmap = makeHeatmap({ steps, onPick, onHover: (text) => { hover.textContent = text; } });
  const columns = make("div", "ms-columns");
  const actions = make("div", "ms-actions");
  const looks = make("div", "ms-looks");
  const reads = make("div", "ms-reads");
  columns.append(actions, looks, reads);
  card.append(title, heatmap.box, hover, columns);

  const n = agent.choice_names.length;
  const choices = floatsOf(agent.choices);
  const taken = agent.taken ? floatsOf(agent.taken) : null;
  const parts = taken ? taken.length / steps : 0;
  const acting = bytesOf(agent.acting);
  const isTaken = new Uint8Array(n);
  let low = 0, high = 1;
  if (agent.kind !== "probability") for (const v of choices) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  const reach = Math.max(-low, high) || 1;
  const bars = n ? makeBars({ names: agent.choice_names, colour: agent.colour, signed: low < 0, sign: taken ? "▸" : "" }) : null;
  if (bars) actions.append(make("div", "ms-help", KINDS[agent.kind]), bars.box);

  let look = null;
  let lookBars = null;
  let lookNote = null; // where only one step is explained
  let concepts = [];
  let now = 0;
  let visible = true; // in the window: what is not is not drawn
  const seen = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    if (visible) draw(now);
  }, { rootMargin: "100px" });
  seen.observe(card);

  function attributed(found, refused, asked) {
    lookBars?.end();
    looks.replaceChildren();
    look = lookBars = lookNote = null;
    if (refused) { looks.append(make("div", "ms-problem", refused)); return; }
    if (!found) return;
    const values = floatsOf(found.values);
    const count = found.names.length;
    let top = 0;
    for (const v of values) top = Math.max(top, Math.abs(v));
    const objects = floatsOf(found.by_object);
    let most = 0;
    for (const v of objects) most = Math.max(most, v);
    look = { values, count, scale: 1 / (top || 1), names: found.objects, objects, most: most || 1, colour: agent.colour, row: (t) => rowOf(found, t) };
    looks.append(make("div", "ms-help", `${asked.method.replaceAll("_", " ")} of ${found.target}, in ${found.units}`));
    lookBars = makeBars({ names: found.names.slice(0, BARS), colour: agent.colour, signed: true });
    looks.append(lookBars.box);
    lookNote = found.at === undefined || found.at === null ? null : make("div", "ms-help ms-alone");
    if (lookNote) looks.append(lookNote);
    const hidden = count - lookBars.count + found.left_out;
    if (hidden > 0) looks.append(make("div", "ms-help", `${hidden} features that mattered less are not drawn`));
    for (const warning of found.warnings) looks.append(make("div", "ms-problem", `not to be trusted: ${warning}`));
  }

  function decoded(found) {
    for (const concept of concepts) concept.rows.end();
    reads.replaceChildren();
    concepts = found.map((concept) => makeConcept(concept, agent, steps));
    for (const concept of concepts) reads.append(...concept.parts);
  }

  function action(t) {
    if (!acting[t]) return "does not act";
    let told = "";
    for (let p = 0; p < parts; p++) {
      const k = taken[t * parts + p];
      told += `${p ? ", " : ""}${agent.choice_names[k] ?? `action ${k}`}`;
    }
    return told;
  }

  function drawLook(row) {
    if (row === null) lookBars.set(new Float32Array(lookBars.count).fill(NaN), 0, look.scale, null);
    else lookBars.set(look.values, row * look.count, look.scale, null);
    const told = row === null ? "explained once scrubbing rests" : "this step alone is explained";
    if (lookNote && lookNote.textContent !== told) lookNote.textContent = told;
  }

  function draw(t) {
    heatmap.at(t);
    const told = action(t);
    if (didText.data !== told) didText.data = told;
    isTaken.fill(0);
    for (let p = 0; p < parts; p++) isTaken[taken[t * parts + p]] = 1;
    bars?.set(choices, t * n, agent.kind === "probability" ? 1 : 1 / reach, isTaken);
    if (look) drawLook(look.row(t));
    for (const concept of concepts) concept.at(t);
  }

  return {
    card,
    heatmap,
    agent,
    acting,
    attributed,
    decoded,
    look: () => look,
    action: () => action(now),
    at(t) {
      now = t;
      if (visible) draw(t);
    },
    describe() {
      bars?.describe();
      lookBars?.describe();
      for (const concept of concepts) concept.rows.describe();
    },
    redraw() {
      bars?.redraw();
      lookBars?.redraw();
      for (const concept of concepts) concept.rows.redraw();
    },
    end() {
      seen.disconnect();
      heatmap.end();
      bars?.end();
      lookBars?.end();
      for (const concept of concepts) concept.rows.end();
    },
  };
}

// what a decoder reads at each step, and what was true
function makeConcept(concept, agent, steps) {
  const said = floatsOf(concept.said);
  const truth = floatsOf(concept.truth);
  const width = said.length / steps;
  const classes = concept.classes;
  const isTrue = new Uint8Array(width);
  const rows = makeBars({
    names: classes.length ? classes : ["estimate"], colour: agent.colour, signed: !classes.length, sign: classes.length ? "✓" : "",
  });
  let top = 0;
  for (const v of said) top = Math.max(top, Math.abs(v));
  const last = make("div", "ms-help ms-truth");
  const lastText = document.createTextNode("");
  last.append(lastText);
  const note = make("div", concept.note.includes("NOT TO BE TRUSTED") ? "ms-problem" : "ms-help", concept.note);
  return {
    rows,
    parts: [make("div", "ms-help", concept.name), rows.box, last, note],
    at(t) {
      isTrue.fill(0);
      if (classes.length && Number.isFinite(truth[t])) isTrue[truth[t]] = 1;
      rows.set(said, t * width, classes.length ? 1 : 1 / (top || 1), isTrue);
      const named = Number.isFinite(truth[t]) ? `in truth: ${classes.length ? classes[truth[t]] : brief(truth[t])}` : "";
      if (lastText.data !== named) lastText.data = named;
    },
  };
}
