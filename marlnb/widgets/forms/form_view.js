// Options one below the other: label, control, help beside it, and what is wrong with it below. What stands in each
// control is a value of its own in the model. Native controls, so that keys and screen readers work as usual.
const WRITING_MS = 700; // for so long after a key nothing else is put under the writer's fingers

const CSS = `
.marlnb-form { container-type: inline-size; color: var(--jp-ui-font-color1, #222); margin: 2px;
  font-size: var(--jp-widgets-font-size, 13px); }
.marlnb-form summary { cursor: pointer; padding: 7px 9px; line-height: 1.2; font-weight: 600;
  border: 1px solid var(--jp-border-color1, #bbb); background: var(--jp-layout-color2, #eee); }
.marlnb-form summary:hover { background: var(--jp-layout-color1, #fff); }
.marlnb-form details[open] > div { border: 1px solid var(--jp-border-color1, #bbb); border-top: 0; padding: 10px 6px; }
.marlnb-field { display: flex; flex-wrap: wrap; align-items: center; column-gap: 8px; padding: 2px 0; }
.marlnb-field label { flex: 0 0 11em; text-align: right; overflow-wrap: anywhere; line-height: 1.2; }
.marlnb-field .control { flex: 0 1 15em; min-width: 6em; display: flex; }
.marlnb-field input[type=text], .marlnb-field select { box-sizing: border-box; width: 100%; min-width: 0; height: 28px;
  padding: 3px 8px; font: inherit; color: var(--jp-ui-font-color1, #222); border: 1px solid var(--jp-border-color1, #bbb);
  border-radius: 0; background: var(--jp-layout-color1, #fff); }
.marlnb-field input[type=checkbox] { margin: 6px 0; }
.marlnb-field input::placeholder { color: var(--jp-ui-font-color2, #666); opacity: 1; }
.marlnb-field :is(input, select):focus-visible, .marlnb-form summary:focus-visible {
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -1px; }
.marlnb-field [aria-invalid=true] { border-color: var(--jp-error-color1, #b00020); }
.marlnb-field .marlnb-help { flex: 1 1 18em; min-width: 0; }
.marlnb-field .marlnb-problem { flex: 1 0 100%; box-sizing: border-box; margin: 0; padding: 2px 0 4px calc(11em + 8px); }
@container (max-width: 42em) {
  .marlnb-field .control { flex: 1 1 12em; max-width: 15em; }
  .marlnb-field { padding: 4px 0; }
  .marlnb-field .marlnb-help { flex: 1 0 100%; box-sizing: border-box; padding-left: calc(11em / 0.9 + 8px); }
}
@container (max-width: 26em) {
  .marlnb-field label { flex-basis: 100%; text-align: left; }
  .marlnb-field .marlnb-help, .marlnb-field .marlnb-problem { padding-left: 0; }
}
`;

const element = (kind, properties = {}, ...children) => {
  const found = Object.assign(document.createElement(kind), properties);
  found.append(...children);
  return found;
};

function controlOf(option, id) {
  if (option.control === "choice") {
    const choices = option.choices.map((words) => element("option", { value: words, textContent: words }));
    return element("select", { id }, ...choices);
  }
  if (option.control === "tick") return element("input", { id, type: "checkbox" });
  return element("input", { id, type: "text", placeholder: option.placeholder, autocomplete: "off", spellcheck: false });
}

function fieldOf(option, model, id, listen) {
  const key = `option_${option.name}`;
  const read = option.control === "tick" ? "checked" : "value";
  const control = controlOf(option, id);
  const help = element("span", { id: `${id}-help`, className: "marlnb-help", textContent: option.help });
  const words = option.name.split("_").flatMap((word, place) => (place ? ["_", element("wbr"), word] : [word]));
  const label = element("label", { htmlFor: id }, ...words);
  const root = element("div", { className: `marlnb-field marlnb-field-${option.name}` },
    label, element("div", { className: "control" }, control), help);
  let wroteAt = -Infinity;
  let later = 0;
  const show = () => {
    clearTimeout(later);
    if (control[read] === model.get(key)) return;
    const left = wroteAt + WRITING_MS - performance.now();
    if (left > 0) later = setTimeout(show, left); else control[read] = model.get(key);
  };
  const complain = () => {
    const told = model.get("problems")[option.name] || "";
    let place = root.querySelector(".marlnb-problem");
    if (told && !place) {
      place = element("div", { id: `${id}-problem`, className: "marlnb-problem" });
      place.setAttribute("role", "alert");
      root.append(place);
    }
    if (!told && place) place.remove(); else if (told && place.textContent !== told) place.textContent = told;
    control.setAttribute("aria-invalid", String(Boolean(told)));
    control.setAttribute("aria-describedby", told ? `${id}-problem ${id}-help` : `${id}-help`);
  };
  control.addEventListener("input", () => {
    if (option.control === "text") wroteAt = performance.now();
    model.set(key, control[read]);
    model.save_changes();
  });
  listen(`change:${key}`, show);
  listen("change:problems", complain);
  show();
  complain();
  return root;
}

function render({ model, el }) {
  const id = `marlnb-form-${Math.random().toString(36).slice(2)}`; // a widget's module is its own
  const heard = [];
  const listen = (event, act) => { heard.push([event, act]); model.on(event, act); };
  const fields = model.get("options").map((option, place) => fieldOf(option, model, `${id}-${place}`, listen));
  const list = element("div", {}, ...fields);
  const root = element("div", { className: "marlnb-form" });
  if (model.get("title")) {
    const summary = element("summary");
    const folded = element("details", {}, summary, list);
    const name = () => { summary.textContent = model.get("title"); };
    const fold = () => { folded.open = model.get("is_open"); };
    folded.addEventListener("toggle", () => {
      if (folded.open === model.get("is_open")) return;
      model.set("is_open", folded.open);
      model.save_changes();
    });
    listen("change:title", name);
    listen("change:is_open", fold);
    name();
    fold();
    root.append(folded);
  } else root.append(list);
  // the notebook's own shortcuts are not for keys that are pressed in here
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && !event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  el.append(element("style", { textContent: CSS }), root);
  return () => { for (const [event, act] of heard) model.off(event, act); };
}

export default { render };
