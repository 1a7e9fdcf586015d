// Sites as a tree with checkboxes. Keys as in any tree: arrows move and open, space checks, a letter finds a name.
const CSS = `
.marlnb-sites { color: var(--jp-ui-font-color1, #222); max-height: 20em; overflow: auto; padding: 2px;
  font-size: var(--jp-ui-font-size1, 13px); border: 1px solid var(--jp-border-color2, #ddd); }
.marlnb-sites ul { list-style: none; margin: 0; padding: 0 0 0 1.4em; }
.marlnb-sites > ul { padding: 0; }
.marlnb-sites li[aria-expanded=false] > ul { display: none; }
.marlnb-sites .row { display: flex; align-items: center; gap: 5px; padding: 1px 4px; cursor: pointer; border-radius: 2px; }
.marlnb-sites .row:hover { background: var(--jp-layout-color2, #f2f2f2); }
.marlnb-sites li:focus { outline: none; }
.marlnb-sites li:focus > .row { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px; }
.marlnb-sites .open { width: 1em; text-align: center; flex: none; color: var(--jp-ui-font-color2, #666); }
.marlnb-sites input { margin: 0; pointer-events: none; }
.marlnb-sites .shape { color: var(--jp-ui-font-color2, #666); }
`;

function treeOf(sites) {
  const root = { children: new Map(), path: "" };
  for (const site of sites) {
    let node = root;
    for (const part of site.name.split("/")) {
      if (!node.children.has(part)) node.children.set(part, { name: part, path: node.path ? `${node.path}/${part}` : part, children: new Map() });
      node = node.children.get(part);
    }
    node.site = site;
  }
  return root;
}

const leaves = (node) => [...(node.site ? [node.site] : []), ...[...node.children.values()].flatMap(leaves)];
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = CSS;
  const root = document.createElement("div");
  root.className = "marlnb-sites";
  el.append(style, root);
  const closed = new Set();
  let items = []; // { li, box, node, shape } in display order

  const describe = (node) => {
    if (node.site) return `${plural(node.site.agents, "agent")} × ${plural(node.site.units, "unit")}, ${node.site.kind}`;
    const below = leaves(node);
    const chosen = below.filter((site) => model.get("chosen").includes(site.name)).length;
    return `${chosen} of ${plural(below.length, "site")}`;
  };
  const mark = () => {
    for (const { li, box, node, shape } of items) {
      const below = leaves(node);
      const chosen = below.filter((site) => model.get("chosen").includes(site.name)).length;
      box.checked = chosen === below.length;
      box.indeterminate = chosen > 0 && chosen < below.length;
      li.setAttribute("aria-checked", box.indeterminate ? "mixed" : String(box.checked));
      shape.textContent = describe(node);
      li.setAttribute("aria-label", `${node.path}: ${describe(node)}`);
    }
  };
  const toggle = (node) => {
    const below = leaves(node).map((site) => site.name);
    const all = below.every((name) => model.get("chosen").includes(name));
    const chosen = new Set(model.get("chosen"));
    for (const name of below) if (all) chosen.delete(name); else chosen.add(name);
    model.set("chosen", model.get("sites").map((site) => site.name).filter((name) => chosen.has(name)));
    model.save_changes();
    mark();
  };
  const setOpen = (item, opened) => {
    if (!item.node.children.size) return;
    item.li.setAttribute("aria-expanded", String(opened));
    item.sign.textContent = opened ? "▾" : "▸";
    if (opened) closed.delete(item.node.path); else closed.add(item.node.path);
  };
  const visible = () => items.filter(({ li }) => li.offsetParent !== null);
  const focus = (item) => {
    if (!item) return;
    for (const other of items) other.li.tabIndex = -1;
    item.li.tabIndex = 0;
    item.li.focus();
  };
  const onKey = (event) => {
    const shown = visible();
    const index = shown.findIndex(({ li }) => li === document.activeElement);
    if (index < 0) return;
    const item = shown[index];
    const opened = item.li.getAttribute("aria-expanded") === "true";
    const actions = {
      ArrowDown: () => focus(shown[index + 1]),
      ArrowUp: () => focus(shown[index - 1]),
      ArrowRight: () => (opened ? focus(shown[index + 1]) : setOpen(item, true)),
      ArrowLeft: () => (opened ? setOpen(item, false) : focus(items.find(({ node }) => node === item.parent))),
      Home: () => focus(shown[0]),
      End: () => focus(shown[shown.length - 1]),
      " ": () => toggle(item.node),
      Enter: () => toggle(item.node),
    };
    let action = actions[event.key];
    if (!action && /^[a-z0-9_]$/i.test(event.key) && !event.ctrlKey && !event.metaKey) {
      const next = [...shown.slice(index + 1), ...shown.slice(0, index)].find(({ node }) => node.name.startsWith(event.key));
      action = () => focus(next);
    }
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  };

  const build = (node, parent) => {
    const list = document.createElement("ul");
    list.setAttribute("role", parent ? "group" : "tree");
    if (!parent) {
      list.setAttribute("aria-label", "sites to record");
      list.setAttribute("aria-multiselectable", "true");
    }
    for (const child of node.children.values()) {
      const li = document.createElement("li");
      li.setAttribute("role", "treeitem");
      li.tabIndex = -1;
      const row = document.createElement("div");
      row.className = "row";
      const sign = document.createElement("span");
      sign.className = "open";
      const box = document.createElement("input");
      Object.assign(box, { type: "checkbox", tabIndex: -1 });
      box.setAttribute("aria-hidden", "true");
      const name = document.createElement("span");
      name.textContent = child.name;
      const shape = document.createElement("span");
      shape.className = "shape";
      row.append(sign, box, name, shape);
      li.append(row);
      const item = { li, box, node: child, shape, sign, parent: node };
      items.push(item);
      row.onclick = (event) => {
        focus(item);
        if (event.target === sign && child.children.size) setOpen(item, li.getAttribute("aria-expanded") !== "true");
        else toggle(child);
      };
      if (child.children.size) {
        li.append(build(child, node));
        setOpen(item, !closed.has(child.path));
      }
      list.append(li);
    }
    return list;
  };
  const draw = () => {
    items = [];
    const tree = treeOf(model.get("sites"));
    const list = build(tree, null);
    if (!items.length) list.textContent = "no sites";
    root.replaceChildren(list);
    if (items.length) items[0].li.tabIndex = 0;
    mark();
  };
  root.addEventListener("keydown", onKey);
  model.on("change:sites", draw);
  model.on("change:chosen", mark);
  draw();
  return () => {
    model.off("change:sites", draw);
    model.off("change:chosen", mark);
  };
}

export default { render };
