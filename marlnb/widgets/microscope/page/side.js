// One episode of the microscope: its frames, its traces and a card for each agent.
function makeSide({ model, number, goTo, pick }) {
  const side = model.get("sides")[number];
  const steps = side.steps;
  const box = make("div", "ms-side");
  box.dataset.side = String(number);
  const heading = make("h4", "ms-side-title", side.title);
  const returns = make("div", "ms-help", `returns: ${side.agents.map((a) => `${a.name} ${brief(a.return)}`).join(", ")}`);
  const film = makeFilm(steps);
  const traces = makeTraces({ steps, agents: side.agents, onPick: goTo });
  const facts = make("div", "ms-facts");
  const left = make("div", "ms-left");
  left.append(film.box, traces.box, facts);
  const cards = make("div", "ms-cards");
  const body = make("div", "ms-body");
  body.append(left, cards);
  box.append(heading, returns, body);
  const stepNumbers = floatsOf(side.t);
  let observer = side.agents[0].name;
  let isOver = false;
  const agentCards = side.agents.map((agent) => makeCard({
    agent,
    steps,
    onPick: ({ t, unit }) => pick(number, agent.name, unit, t),
    onLook: () => { model.set("explained", agent.name); model.save_changes(); },
  }));
  cards.append(...agentCards.map((card) => card.card));
  let observerCard = agentCards[0];
  const labels = side.labels.map((label) => ({ ...label, values: floatsOf(label.values) }));

  let factLines = 0;
  const factsText = document.createTextNode("");
  facts.append(factsText);

  function showLabels(t) {
    const text = labels.map((label) => {
      const width = label.values.length / steps;
      const values = [];
      for (let k = 0; k < width; k++) {
        const v = label.values[t * width + k];
        values.push(label.classes.length ? label.classes[v] ?? brief(v) : brief(v));
      }
      return `${label.name}: ${values.join(" / ")}`;
    }).join(" · ");
    if (factsText.data === text) return;
    const lines = Math.min(6, Math.ceil(text.length / 40)); // more lines scroll
    if (lines > factLines) facts.style.height = `${1.4 * (factLines = lines)}em`;
    factsText.data = text;
  }

  return {
    box, steps, film, traces, cards: agentCards, stepNumbers,
    units(sharedScale) {
      const layer = model.get("sides")[number].units[model.get("layer")] || {};
      for (const card of agentCards) card.heatmap.setUnits(layer[card.agent.name], model.get("order"), card.acting, sharedScale);
    },
    shown() {
      const chosen = model.get("agents");
      for (const card of agentCards) card.card.hidden = chosen.length > 0 && !chosen.includes(card.agent.name);
      if (side.agents.some((agent) => agent.name === model.get("explained"))) observer = model.get("explained");
      for (const card of agentCards) card.card.classList.toggle("ms-observer", card.agent.name === observer);
      observerCard = agentCards.find((card) => card.agent.name === observer);
    },
    showAttributions() {
      const request = model.get("attributions")[number];
      for (const card of agentCards) {
        card.showAttribution(request && request.agents[card.agent.name], request && request.reasons[card.agent.group], request);
      }
    },
    showConcepts() {
      const concepts = model.get("concepts")[number] || [];
      for (const card of agentCards) card.showConcepts(concepts.filter((concept) => concept.agent === card.agent.name));
    },
    at(t) {
      const index = Math.min(t, steps - 1);
      for (const card of agentCards) card.at(index);
      traces.at(index);
      film.at(index, observerCard.look());
      showLabels(index);
      if (isOver !== t >= steps) box.classList.toggle("ms-over", isOver = t >= steps);
    },
    describe(t) { // for screen readers, when scrubbing stops
      const index = Math.min(t, steps - 1);
      film.label(`${side.title} at step ${stepNumbers[index]}; ${agentCards.map((card) => `${card.agent.name} ${card.action()}`).join(", ")}`);
      traces.describe();
      for (const card of agentCards) card.describe();
    },
    redraw() { traces.redraw(); for (const card of agentCards) card.redraw(); },
    end() { film.end(); traces.end(); for (const card of agentCards) card.end(); },
    mark(picked) {
      for (const card of agentCards) card.heatmap.mark(picked.side === number && picked.agent === card.agent.name && picked.layer === model.get("layer") ? picked.unit : null);
    },
  };
}
