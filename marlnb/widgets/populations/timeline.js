// Snapshots of each player of a league on a line; one can be chosen by click or with the arrow keys.
const CSS = `
.marlnb-timeline { color: var(--jp-ui-font-color1, #222); font-size: var(--jp-ui-font-size1, 13px);
  max-height: 17em; overflow-y: auto; }
.marlnb-timeline .line { display: flex; align-items: center; min-height: 26px; }
.marlnb-timeline .name { flex: 0 0 13em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.marlnb-timeline .track { position: relative; flex: 1; height: 22px; margin: 0 10px;
  border-bottom: 1px solid var(--jp-border-color2, #ccc); }
.marlnb-timeline button { position: absolute; top: 4px; width: 14px; height: 14px; margin-left: -7px; padding: 0;
  border-radius: 50%; border: 1px solid var(--jp-layout-color1, #fff); background: var(--jp-brand-color1, #1976d2);
  cursor: pointer; }
.marlnb-timeline button:hover { background: var(--jp-brand-color0, #0d47a1); }
.marlnb-timeline button[aria-checked=true] { outline: 3px solid var(--jp-ui-font-color1, #222); z-index: 2; }
.marlnb-timeline i { width: 3px; height: 12px; background: var(--jp-warn-color1, #d55e00); }
.marlnb-timeline i.frozen, .marlnb-timeline i.retired { background: var(--jp-success-color1, #2e7d32); height: 20px; }
.marlnb-timeline .track i { position: absolute; bottom: -7px; margin-left: -1px; }
.marlnb-timeline .legend { gap: 6px; padding-left: 13em; color: var(--jp-ui-font-color2, #666); }
.marlnb-timeline .legend i { display: inline-block; margin-left: 12px; }
.marlnb-timeline .legend b { width: 12px; height: 12px; margin-left: 12px; border-radius: 50%;
  background: var(--jp-brand-color1, #1976d2); }
.marlnb-timeline .state { flex: 0 0 7em; color: var(--jp-ui-font-color2, #666); }
`;

function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = CSS;
  const root = document.createElement("div");
  root.className = "marlnb-timeline";
  root.setAttribute("role", "radiogroup");
  root.setAttribute("aria-label", "snapshots of the league's players");
  el.append(style, root);

  const legend = () => {
    const line = document.createElement("div");
    line.className = "line legend";
    line.append(`0 to ${model.get("content").end.toLocaleString("en")} frames of the player`);
    for (const [tag, kind, text] of [
      ["b", "", "snapshot"], ["i", "reset", "reset to fresh weights"], ["i", "frozen", "frozen or retired"],
    ]) {
      const sign = document.createElement(tag);
      sign.className = kind;
      line.append(sign, text);
    }
    return line;
  };
  const buttons = () => [...root.querySelectorAll("button")];
  const choose = (name) => {
    model.set("chosen", name);
    model.save_changes();
  };
  const mark = () => {
    const chosen = model.get("chosen");
    const all = buttons();
    for (const button of all) {
      button.setAttribute("aria-checked", String(button.dataset.name === chosen));
      button.tabIndex = button.dataset.name === chosen ? 0 : -1;
    }
    if (all.length && !all.some(({ tabIndex }) => tabIndex === 0)) all[all.length - 1].tabIndex = 0;
  };
  const draw = () => {
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const { lines, end } = model.get("content");
    root.replaceChildren(...(lines.length ? [legend()] : []), ...lines.map(({ player, state, marks }) => {
      const [line, name, track, after] = ["div", "div", "div", "div"].map((tag) => document.createElement(tag));
      line.className = "line"; name.className = "name"; track.className = "track"; after.className = "state";
      name.textContent = name.title = player;
      after.textContent = state;
      for (const { x, kind, id, text } of marks) {
        const item = document.createElement(kind === "snapshot" ? "button" : "i");
        item.style.left = `${(100 * x) / Math.max(end, 1)}%`;
        item.title = text;
        if (kind === "snapshot") {
          item.dataset.name = id;
          item.setAttribute("role", "radio");
          item.setAttribute("aria-label", text);
          item.onclick = () => choose(id);
        } else {
          item.className = kind;
        }
        track.append(item);
      }
      line.append(name, track, after);
      return line;
    }));
    mark();
    const again = buttons().find(({ dataset }) => dataset.name === focused);
    if (again) again.focus();
  };
  // keys pressed here must not trigger shortcuts of the notebook
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.stopPropagation();
    event.preventDefault();
    const all = buttons();
    const next = all[all.indexOf(document.activeElement) + step];
    if (next) { next.focus(); choose(next.dataset.name); }
  });
  model.on("change:content", draw);
  model.on("change:chosen", mark);
  draw();
  return () => {
    model.off("change:content", draw);
    model.off("change:chosen", mark);
  };
}

export default { render };
