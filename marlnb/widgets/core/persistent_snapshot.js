// The newest still picture of a panel, put into the notebook that this page will save. JupyterLab itself does so only
// until the page is loaded anew. Nothing is drawn here.
function outputsOf(model) {
  const cells = model.widget_manager?.context?.model?.cells; // JupyterLab's and Notebook's; elsewhere nothing is done
  const found = [];
  for (let c = 0; c < (cells?.length ?? 0); c++) {
    const outputs = cells.get(c).outputs;
    for (let k = 0; k < (outputs?.length ?? 0); k++) {
      const output = outputs.get(k);
      if (output.metadata?.marlnb_picture === model.get("name")) found.push({ outputs, k, output });
    }
  }
  return found;
}

function initialize({ model }) {
  model.on("msg:custom", ({ picture }) => {
    if (!picture) return;
    for (const { outputs, k, output } of outputsOf(model)) {
      if (["image/png", "text/plain"].every((kind) => output.data[kind] === picture[kind])) continue;
      outputs.set(k, { output_type: "display_data", data: picture, metadata: { ...output.metadata } });
    }
  });
  model.send({ ask: "picture" });
}

export default { initialize, render() {} };
