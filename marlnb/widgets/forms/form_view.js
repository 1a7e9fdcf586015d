// Options below each other: label, control, help next to it, and the problem below. Each value is a separate trait of
// the model. Native controls make keys and screen readers work.
const TYPING_MS = 700; // after a key press, values from the kernel wait this long, so that they do not replace typed text

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
  const node = Object.assign(document.createElement(kind), properties);
  node.append(...children);
  return node;
};

function controlOf(option, id) {
  if (option.control === "choice") {
    const choices = option.choices.map((text) => element("option", { value: text, textContent: text }));
    return element("select", { id }, ...choices);
  }
  if (option.control === "tick") return element("input", { id, type: "checkbox" });
  return element("input", { id, type: "text", placeholder: option.placeholder, autocomplete: "off", spellcheck: false });
}

function fieldOf(option, model, id, listen) {
  const key = `option_${option.name}`;
  const property = option.control === "tick" ? "checked" : "value";
  const control = controlOf(option, id);
  const help = element("span", { id: `${id}-help`, className: "marlnb-help", textContent: option.help });
  const words = option.name.split("_").flatMap((word, index) => (index ? ["_", element("wbr"), word] : [word]));
  const label = element("label", { htmlFor: id }, ...words);
  const root = element("div", { className: `marlnb-field marlnb-field-${option.name}` },
    label, element("div", { className: "control" }, control), help);
  let typedAt = -Infinity;
  let timer = 0;
  const show = () => {
    clearTimeout(timer);
    if (control[property] === model.get(key)) return;
    const wait = typedAt + TYPING_MS - performance.now();
    if (wait > 0) timer = setTimeout(show, wait); else control[property] = model.get(key);
  };
  const showProblem = () => {
    const problem = model.get("problems")[option.name] || "";
    let alert = root.querySelector(".marlnb-problem");
    if (problem && !alert) {
      alert = element("div", { id: `${id}-problem`, className: "marlnb-problem" });
      alert.setAttribute("role", "alert");
      root.append(alert);
    }
    if (!problem && alert) alert.remove(); else if (problem && alert.textContent !== problem) alert.textContent = problem;
    control.setAttribute("aria-invalid", String(Boolean(problem)));
    control.setAttribute("aria-describedby", problem ? `${id}-problem ${id}-help` : `${id}-help`);
  };
  control.addEventListener("input", () => {
    if (option.control === "text") typedAt = performance.now();
    model.set(key, control[property]);
    model.save_changes();
  });
  listen(`change:${key}`, show);
  listen("change:problems", showProblem);
  show();
  showProblem();
  return root;
}

function render({ model, el }) {
  const id = `marlnb-form-${Math.random().toString(36).slice(2)}`; // ids must be unique on the page
  const handlers = [];
  const listen = (event, handler) => { handlers.push([event, handler]); model.on(event, handler); };
  const fields = model.get("options").map((option, index) => fieldOf(option, model, `${id}-${index}`, listen));
  const list = element("div", {}, ...fields);
  const root = element("div", { className: "marlnb-form" });
  if (model.get("title")) {
    const summary = element("summary");
    const details = element("details", {}, summary, list);
    const showTitle = () => { summary.textContent = model.get("title"); };
    const showOpen = () => { details.open = model.get("is_open"); };
    details.addEventListener("toggle", () => {
      if (details.open === model.get("is_open")) return;
      model.set("is_open", details.open);
      model.save_changes();
    });
    listen("change:title", showTitle);
    listen("change:is_open", showOpen);
    showTitle();
    showOpen();
    root.append(details);
  } else root.append(list);
  // keys pressed in the form must not trigger shortcuts of the notebook
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && !event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  el.append(element("style", { textContent: CSS }), root);
  return () => { for (const [event, handler] of handlers) model.off(event, handler); };
}

export default { render };
