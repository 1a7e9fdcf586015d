// A canvas as wide as its place and of a given height in CSS pixels, drawn again whenever that or the theme changes.
// Its width comes from an observer, never from a question to the page: a question would lay the page out.
function makeCanvas(className, height, draw) {
  const canvas = make("canvas", className);
  const context = canvas.getContext("2d");
  canvas.style.height = `${height}px`;
  const made = {
    canvas,
    context,
    width: 0,
    height,
    ink: { text: "#222", faint: "#666", back: "#fff", track: "#eee", line: "#ddd", font: "11px sans-serif" },
    draw() {
      if (!made.width) return;
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.max(1, Math.round(made.width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      context.scale(ratio, ratio);
      made.ink = inkOf(canvas);
      context.font = made.ink.font;
      draw(made);
    },
    end: () => sized.disconnect(),
  };
  const sized = new ResizeObserver(([entry]) => {
    const width = entry.contentRect.width;
    if (width === made.width) return;
    made.width = width;
    made.draw();
  });
  sized.observe(canvas);
  return made;
}

function inkOf(el) {
  const style = getComputedStyle(el);
  const of = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return {
    text: of("--jp-ui-font-color1", "#222"),
    faint: of("--jp-ui-font-color2", "#666"),
    back: of("--jp-layout-color1", "#fff"),
    track: of("--jp-layout-color2", "#eee"),
    line: of("--jp-border-color2", "#ddd"),
    font: `11px ${of("--jp-ui-font-family", "sans-serif")}`,
  };
}
