// Puts the latest snapshot of a panel into the notebook that this page will save. JupyterLab itself does so only until
// the page is reloaded. Nothing is drawn here.
function outputsOf(model) {
  const cells = model.widget_manager?.context?.model?.cells; // of JupyterLab and Notebook; elsewhere there is none
  const matches = [];
  for (let c = 0; c < (cells?.length ?? 0); c++) {
    const outputs = cells.get(c).outputs;
    for (let index = 0; index < (outputs?.length ?? 0); index++) {
      const output = outputs.get(index);
      if (output.metadata?.marlnb_snapshot === model.get("name")) matches.push({ outputs, index, output });
    }
  }
  return matches;
}

function initialize({ model }) {
  model.on("msg:custom", ({ snapshot }) => {
    if (!snapshot) return;
    for (const { outputs, index, output } of outputsOf(model)) {
      if (["image/png", "text/plain"].every((kind) => output.data[kind] === snapshot[kind])) continue;
      outputs.set(index, { output_type: "display_data", data: snapshot, metadata: { ...output.metadata } });
    }
  });
  model.send({ request: "snapshot" });
}

export default { initialize, render() {} };
