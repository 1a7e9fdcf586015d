// Bars with names: the names are text, bars and numbers one canvas. At each step only rows that changed are drawn.
const ROW = 16; // height of a row in CSS pixels
const NUMBER = 44; // width of a number
const SIGN = 13; // width of the sign that marks a row

function makeBars({ names, colour, signed, sign, className }) {
  const box = make("div", `ms-bars ${className || ""}`);
  const column = make("div", "ms-bar-names");
  for (const name of names) {
    const label = make("div", "ms-bar-name", name);
    label.title = name;
    column.append(label);
  }
  const n = names.length;
  const values = new Float32Array(n).fill(NaN);
  const marked = new Uint8Array(n);
  const stale = new Uint8Array(n).fill(1);
  let scale = 1;
  const face = makeCanvas("ms-bar-canvas", n * ROW, () => { stale.fill(1); draw(); });
  face.canvas.setAttribute("role", "img");
  box.append(column, face.canvas);

  function draw() {
    if (!face.width) return;
    for (let k = 0; k < n; k++) if (stale[k]) { stale[k] = 0; row(k); }
  }

  function row(k) {
    const { context, width, ink } = face;
    const top = k * ROW, left = sign ? SIGN : 0, length = Math.max(10, width - NUMBER - left);
    context.clearRect(0, top, width, ROW);
    context.fillStyle = ink.track;
    context.fillRect(left, top + 4, length, 9);
    const share = Math.max(-1, Math.min(1, values[k] * scale || 0));
    context.fillStyle = colour;
    if (signed) context.fillRect(left + length / 2, top + 4, (share * length) / 2, 9);
    else context.fillRect(left, top + 4, Math.max(0, share) * length, 9);
    if (signed) { context.fillStyle = ink.faint; context.fillRect(left + length / 2, top + 3, 1, 11); }
    context.fillStyle = ink.text;
    context.textBaseline = "middle";
    if (sign && marked[k]) { context.textAlign = "left"; context.fillText(sign, 1, top + ROW / 2 + 1); }
    context.textAlign = "right";
    context.fillText(brief(values[k]), width, top + ROW / 2 + 1);
  }

  return {
    box,
    count: n,
    set(source, from, by, marks) { // shows the numbers from source[from] on; the length of a bar is its number times `by`
      if (by !== scale) { scale = by; stale.fill(1); }
      for (let k = 0; k < n; k++) {
        const value = source[from + k], mark = marks ? marks[k] : 0;
        if (Object.is(value, values[k]) && mark === marked[k]) continue;
        values[k] = value;
        marked[k] = mark;
        stale[k] = 1;
      }
      draw();
    },
    redraw: face.draw,
    end: face.end,
    describe() {
      const text = names.map((name, k) => `${name} ${brief(values[k])}${sign && marked[k] ? ` ${sign}` : ""}`).join(", ");
      if (face.canvas.getAttribute("aria-label") !== text) face.canvas.setAttribute("aria-label", text);
    },
  };
}
