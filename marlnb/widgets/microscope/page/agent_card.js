// One agent: its units, its action, the attribution of its features, and its decoded concepts.
const MAX_BARS = 8; // features that are drawn
const KINDS = { probability: "action, probability", score: "action, score (no probability)", value: "action" };

// the row of a step's values in an attribution; null: the step is not attributed
const rowOf = (attribution, t) => (attribution.at === undefined || attribution.at === null ? t : attribution.at === t ? 0 : null);

function makeCard({ agent, steps, onPick, onLook }) {
  const card = make("section", "ms-card");
  card.dataset.agent = agent.name;
  card.setAttribute("aria-label", agent.name);
  const title = make("div", "ms-card-title");
  const name = make("button", "ms-agent", agent.name);
  name.type = "button";
  name.style.borderColor = agent.colour;
  name.title = "draw this agent's attribution onto the picture";
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
  const nothing = new Float32Array(n).fill(NaN); // drawn where the agent does not act
  let low = 0, high = 1;
  if (agent.kind !== "probability") for (const v of choices) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  const reach = Math.max(-low, high) || 1;
  const bars = n ? makeBars({ names: agent.choice_names, colour: agent.colour, signed: low < 0, sign: taken ? "▸" : "" }) : null;
  if (bars) actions.append(make("div", "ms-help", KINDS[agent.kind]), bars.box);

  let look = null;
  let lookBars = null;
  let lookNote = null; // if only one step is attributed
  let concepts = [];
  let now = 0;
  let visible = true; // in the window; otherwise nothing is drawn while scrubbing
  const visibilityObserver = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    if (visible) draw(now);
  }, { rootMargin: "100px" });
  visibilityObserver.observe(card);

  function showAttribution(attribution, reason, request) {
    lookBars?.end();
    looks.replaceChildren();
    look = lookBars = lookNote = null;
    if (reason) { looks.append(make("div", "ms-problem", reason)); return; }
    if (!attribution) return;
    const values = floatsOf(attribution.values);
    const count = attribution.names.length;
    let top = 0;
    for (const v of values) top = Math.max(top, Math.abs(v));
    const objects = floatsOf(attribution.by_object);
    let largest = 0;
    for (const v of objects) largest = Math.max(largest, v);
    look = { values, count, scale: 1 / (top || 1), names: attribution.objects, objects, largest: largest || 1, colour: agent.colour, row: (t) => rowOf(attribution, t) };
    looks.append(make("div", "ms-help", `${request.method.replaceAll("_", " ")} of ${attribution.target}, in ${attribution.units}`));
    lookBars = makeBars({ names: attribution.names.slice(0, MAX_BARS), colour: agent.colour, signed: true });
    looks.append(lookBars.box);
    lookNote = attribution.at === undefined || attribution.at === null ? null : make("div", "ms-help ms-alone");
    if (lookNote) looks.append(lookNote);
    const hidden = count - lookBars.count + attribution.n_hidden;
    if (hidden > 0) looks.append(make("div", "ms-help", `${hidden} smaller features are not drawn`));
    for (const warning of attribution.warnings) looks.append(make("div", "ms-problem", `not to be trusted: ${warning}`));
  }

  function showConcepts(all) {
    for (const concept of concepts) concept.rows.end();
    reads.replaceChildren();
    concepts = all.map((concept) => makeConcept(concept, agent, steps));
    for (const concept of concepts) reads.append(...concept.parts);
  }

  function action(t) {
    if (!acting[t]) return "does not act";
    let text = "";
    for (let p = 0; p < parts; p++) {
      const k = taken[t * parts + p];
      text += `${p ? ", " : ""}${agent.choice_names[k] ?? `action ${k}`}`;
    }
    return text;
  }

  function drawLook(row) {
    if (row === null) lookBars.set(new Float32Array(lookBars.count).fill(NaN), 0, look.scale, null);
    else lookBars.set(look.values, row * look.count, look.scale, null);
    const text = row === null ? "attributed when scrubbing stops" : "only this step is attributed";
    if (lookNote && lookNote.textContent !== text) lookNote.textContent = text;
  }

  function draw(t) {
    heatmap.at(t);
    const text = action(t);
    if (didText.data !== text) didText.data = text;
    isTaken.fill(0);
    if (acting[t]) for (let p = 0; p < parts; p++) isTaken[taken[t * parts + p]] = 1;
    bars?.set(acting[t] ? choices : nothing, acting[t] ? t * n : 0, agent.kind === "probability" ? 1 : 1 / reach, isTaken);
    if (look) drawLook(look.row(t));
    for (const concept of concepts) concept.at(t);
  }

  return {
    card,
    heatmap,
    agent,
    acting,
    showAttribution,
    showConcepts,
    look: () => look,
    action: () => action(now),
    at(t) {
      now = t;
      if (visible) draw(t);
    },
    describe() {
      if (!visible) draw(now); // screen readers read what is out of the window, too
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
      visibilityObserver.disconnect();
      heatmap.end();
      bars?.end();
      lookBars?.end();
      for (const concept of concepts) concept.rows.end();
    },
  };
}

// what a decoder says at each step, and the true value
function makeConcept(concept, agent, steps) {
  const decoded = floatsOf(concept.decoded);
  const truth = floatsOf(concept.truth);
  const width = decoded.length / steps;
  const classes = concept.classes;
  const isTrue = new Uint8Array(width);
  const rows = makeBars({
    names: classes.length ? classes : ["estimate"], colour: agent.colour, signed: !classes.length, sign: classes.length ? "✓" : "",
  });
  let top = 0;
  for (const v of decoded) top = Math.max(top, Math.abs(v));
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
      rows.set(decoded, t * width, classes.length ? 1 : 1 / (top || 1), isTrue);
      const named = Number.isFinite(truth[t]) ? `true value: ${classes.length ? classes[truth[t]] : brief(truth[t])}` : "";
      if (lastText.data !== named) lastText.data = named;
    },
  };
}
