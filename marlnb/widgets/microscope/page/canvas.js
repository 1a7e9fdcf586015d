// A canvas as wide as its container, of a given height in CSS pixels, drawn again when the width or the theme changes.
// An observer supplies the width: reading it from the page would force a layout.
function makeCanvas(className, height, draw) {
  const canvas = make("canvas", className);
  const context = canvas.getContext("2d");
  canvas.style.height = `${height}px`;
  const face = {
    canvas,
    context,
    width: 0,
    height,
    ink: { text: "#222", faint: "#666", back: "#fff", track: "#eee", line: "#ddd", font: "11px sans-serif" },
    draw() {
      if (!face.width) return;
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.max(1, Math.round(face.width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      context.scale(ratio, ratio);
      face.ink = inkOf(canvas);
      context.font = face.ink.font;
      draw(face);
    },
    end: () => sizeObserver.disconnect(),
  };
  const sizeObserver = new ResizeObserver(([entry]) => {
    const width = entry.contentRect.width;
    if (width === face.width) return;
    face.width = width;
    face.draw();
  });
  sizeObserver.observe(canvas);
  return face;
}

function inkOf(el) {
  const style = getComputedStyle(el);
  const of = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: of("--jp-ui-font-color1", "#222"),
    faint: of("--jp-ui-font-color2", "#666"),
    back: of("--jp-layout-color1", "#fff"),
    track: of("--jp-layout-color2", "#eee"),
    line: of("--jp-border-color2", "#ddd"),
    font: `11px ${of("--jp-ui-font-family", "sans-serif")}`,
  };
}
