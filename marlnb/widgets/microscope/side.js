// One episode of the microscope: its pictures, its traces and a card for each agent.
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
  let looker = side.agents[0].name;
  let over = false;
  const all = side.agents.map((agent) => makeCard({
    agent,
    steps,
    onPick: ({ t, unit }) => pick(number, agent.name, unit, t),
    onLook: () => { model.set("explained", agent.name); model.save_changes(); },
  }));
  cards.append(...all.map((one) => one.card));
  let lookerCard = all[0];
  const labels = side.labels.map((label) => ({ ...label, values: floatsOf(label.values) }));

  let factLines = 0;
  const factsText = document.createTextNode("");
  facts.append(factsText);

  function tellLabels(t) {
    const told = labels.map((label) => {
      const width = label.values.length / steps;
      const told = [];
      for (let k = 0; k < width; k++) {
        const v = label.values[t * width + k];
        told.push(label.classes.length ? label.classes[v] ?? brief(v) : brief(v));
      }
      return `${label.name.replaceAll("_", " ")} ${told.join(" / ")}`;
    }).join(" · ");
    if (factsText.data === told) return;
    const lines = Math.min(6, Math.ceil(told.length / 40)); // more is scrolled to
    if (lines > factLines) facts.style.height = `${1.4 * (factLines = lines)}em`;
    factsText.data = told;
  }

  return {
    box, steps, film, traces, cards: all, stepNumbers,
    units(oneScale) {
      const layer = model.get("sides")[number].units[model.get("layer")] || {};
      for (const one of all) one.heatmap.give(layer[one.agent.name], model.get("order"), one.acting, oneScale);
    },
    shown() {
      const chosen = model.get("agents");
      for (const one of all) one.card.hidden = chosen.length > 0 && !chosen.includes(one.agent.name);
      if (side.agents.some((agent) => agent.name === model.get("explained"))) looker = model.get("explained");
      for (const one of all) one.card.classList.toggle("ms-looker", one.agent.name === looker);
      lookerCard = all.find((one) => one.agent.name === looker);
    },
    attributed() {
      const found = model.get("attributions")[number];
      for (const one of all) {
        one.attributed(found && found.agents[one.agent.name], found && found.refused[one.agent.group], found);
      }
    },
    decoded() {
      const found = model.get("concepts")[number] || [];
      for (const one of all) one.decoded(found.filter((concept) => concept.agent === one.agent.name));
    },
    at(t) {
      const here = Math.min(t, steps - 1);
      for (const one of all) if (!one.card.hidden) one.at(here);
      traces.at(here);
      film.at(here, lookerCard.look());
      tellLabels(here);
      if (over !== t >= steps) box.classList.toggle("ms-over", over = t >= steps);
    },
    describe(t) { // for screen readers, once a step has been come to
      const here = Math.min(t, steps - 1);
      film.label(`${side.title} at step ${stepNumbers[here]}; ${all.map((one) => `${one.agent.name} ${one.action()}`).join(", ")}`);
      traces.describe();
      for (const one of all) one.describe();
    },
    redraw() { traces.redraw(); for (const one of all) one.redraw(); },
    end() { film.end(); traces.end(); for (const one of all) one.end(); },
    mark(picked) {
      for (const one of all) one.heatmap.mark(picked.side === number && picked.agent === one.agent.name && picked.layer === model.get("layer") ? picked.unit : null);
    },
  };
}
