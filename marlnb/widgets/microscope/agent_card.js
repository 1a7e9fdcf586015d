// One agent: its units, its action, what it looked at, and what is decoded from it.
const BARS = 8; // features that are drawn

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
  const KINDS = { probability: "action, probability", score: "action, score (no probability)", value: "action" };
  let low = 0, high = 1;
  if (agent.kind !== "probability") for (const v of choices) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (n) actions.append(make("div", "ms-help", KINDS[agent.kind]));
  const signed = low < 0;
  const reach = Math.max(-low, high) || 1;
  const bars = agent.choice_names.map((choice) => makeBar(choice, agent.colour, signed));
  actions.append(...bars.map((bar) => bar.row));

  let look = null;
  let lookBars = [];
  let concepts = [];

  function attributed(found, refused, asked) {
    looks.replaceChildren();
    look = null;
    lookBars = [];
    if (refused) { looks.append(make("div", "ms-problem", refused)); return; }
    if (!found) return;
    const values = floatsOf(found.values);
    const count = found.names.length;
    let top = 0;
    for (const v of values) top = Math.max(top, Math.abs(v));
    const objects = floatsOf(found.by_object);
    let most = 0;
    for (const v of objects) most = Math.max(most, v);
    look = { values, count, top: top || 1, names: found.objects, objects, most: most || 1 };
    looks.append(make("div", "ms-help", `${asked.method.replaceAll("_", " ")} of ${found.target}, in ${found.units}`));
    lookBars = found.names.slice(0, BARS).map((feature) => makeBar(feature, agent.colour, true));
    looks.append(...lookBars.map((bar) => bar.row));
    const hidden = count - lookBars.length + found.left_out;
    if (hidden > 0) looks.append(make("div", "ms-help", `${hidden} features that mattered less are not drawn`));
    for (const warning of found.warnings) looks.append(make("div", "ms-problem", `not to be trusted: ${warning}`));
  }

  function decoded(found) {
    reads.replaceChildren();
    concepts = found.map((concept) => {
      const said = floatsOf(concept.said);
      const truth = floatsOf(concept.truth);
      const width = said.length / steps;
      const heading = make("div", "ms-help", concept.name);
      heading.title = concept.note;
      const note = make("div", concept.note.includes("NOT TO BE TRUSTED") ? "ms-problem" : "ms-help", concept.note);
      const rows = concept.classes.length ? concept.classes.map((c) => makeBar(c, agent.colour, false)) : [makeBar("estimate", agent.colour, true)];
      let top = 0;
      for (const v of said) top = Math.max(top, Math.abs(v));
      const last = make("div", "ms-help");
      reads.append(heading, ...rows.map((bar) => bar.row), last, note);
      return { said, truth, width, rows, classes: concept.classes, top: top || 1, last };
    });
  }

  return {
    card,
    heatmap,
    agent,
    acting,
    attributed,
    decoded,
    lookAt(t) {
      if (!look) return null;
      const objects = look.names.map((object, k) => [object, look.objects[t * look.names.length + k] / look.most]);
      return { objects, colour: agent.colour };
    },
    at(t) {
      heatmap.at(t);
      const now = [];
      for (let p = 0; p < parts; p++) now.push(taken[t * parts + p]);
      did.textContent = acting[t] ? now.map((k) => agent.choice_names[k] ?? `action ${k}`).join(", ") : "does not act";
      bars.forEach((bar, k) => {
        const v = choices[t * n + k];
        bar.set(v, agent.kind === "probability" ? v : v / reach);
        bar.row.classList.toggle("ms-taken", now.includes(k));
      });
      if (look) lookBars.forEach((bar, k) => { const v = look.values[t * look.count + k]; bar.set(v, v / look.top); });
      for (const concept of concepts) {
        const truth = concept.truth[t];
        concept.rows.forEach((bar, k) => {
          const v = concept.said[t * concept.width + k];
          bar.set(v, concept.classes.length ? v : v / concept.top);
          bar.row.classList.toggle("ms-true", concept.classes.length > 0 && truth === k);
        });
        const named = concept.classes.length ? concept.classes[truth] : brief(truth);
        concept.last.textContent = Number.isFinite(truth) ? `in truth: ${named}` : "";
      }
    },
  };
}
