// A table in which one row can be chosen. Native radio buttons make arrow keys and screen readers work.
const CSS = `
.marlnb-choice { overflow: auto; max-height: 15em; color: var(--jp-ui-font-color1, #222); }
.marlnb-choice table { border-collapse: collapse; width: 100%; font-size: var(--jp-ui-font-size1, 13px); }
.marlnb-choice th { position: sticky; top: 0; background: var(--jp-layout-color1, #fff); font-weight: 600;
  text-align: left; border-bottom: 1px solid var(--jp-border-color1, #bbb); padding: 3px 12px 3px 4px; }
.marlnb-choice td { padding: 2px 12px 2px 4px; text-align: left; }
.marlnb-choice tbody tr { cursor: pointer; }
.marlnb-choice tbody tr:hover { background: var(--jp-layout-color2, #f2f2f2); }
.marlnb-choice tr[data-chosen=true] { background: var(--jp-layout-color2, #eee);
  box-shadow: inset 3px 0 0 var(--jp-brand-color1, #1976d2); }
`;

function render({ model, el }) {
  const group = `marlnb-choice-${Math.random().toString(36).slice(2)}`;
  const style = document.createElement("style");
  style.textContent = CSS;
  const root = document.createElement("div");
  root.className = "marlnb-choice";
  el.append(style, root);

  const choose = (name) => {
    model.set("chosen", name);
    model.save_changes();
  };
  const mark = () => {
    for (const row of root.querySelectorAll("tbody tr")) {
      const chosen = row.dataset.name === model.get("chosen");
      row.dataset.chosen = String(chosen);
      row.querySelector("input").checked = chosen;
    }
  };
  const draw = () => {
    const focused = root.contains(document.activeElement) ? document.activeElement.value : null;
    const { names, rows } = model.get("content");
    const table = document.createElement("table");
    table.setAttribute("role", "radiogroup");
    table.setAttribute("aria-label", model.get("label"));
    const head = table.createTHead().insertRow();
    for (const title of ["", ...model.get("header")]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      head.append(cell);
    }
    const body = table.createTBody();
    names.forEach((name, index) => {
      const row = body.insertRow();
      row.dataset.name = name;
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: group, value: name });
      input.setAttribute("aria-label", model.get("header").map((title, column) => `${title} ${rows[index][column]}`).join(", "));
      input.onchange = () => choose(name);
      row.insertCell().append(input);
      for (const text of rows[index]) row.insertCell().textContent = text;
      row.onclick = (event) => { if (event.target !== input) { input.focus(); choose(name); } };
    });
    root.replaceChildren(table);
    mark();
    const input = [...root.querySelectorAll("input")].find(({ value }) => value === focused);
    if (input) input.focus();
  };
  // keys pressed in the table must not trigger shortcuts of the notebook
  const stop = (event) => { if (event.key.startsWith("Arrow") || event.key === " ") event.stopPropagation(); };
  root.addEventListener("keydown", stop);
  model.on("change:content change:header", draw);
  model.on("change:chosen", mark);
  draw();
  return () => {
    model.off("change:content change:header", draw);
    model.off("change:chosen", mark);
  };
}

export default { render };
