// The environment's frames, decoded ahead in the direction of scrubbing, and circles around objects by their attribution.
const MAX_DECODED = 120; // frames in memory, 0.4 MB each
const MAX_DECODING = 3; // frames that are being decoded
const AHEAD = 3; // strides
const RADIUS = 0.16; // of the picture's width, for the largest attribution of an object in the episode

function makeFilm(steps) {
  const box = make("div", "ms-film");
  const canvas = make("canvas");
  canvas.width = 320;
  canvas.height = 320;
  canvas.setAttribute("role", "img");
  const note = make("div", "ms-help");
  box.append(canvas, note);
  const context = canvas.getContext("2d");
  const decoded = new Map(); // index -> bitmap, the least recently used first
  const decoding = new Set();
  let images = {};
  const positions = new Map(); // object -> x, y of every step, NaN if not known
  let available = []; // indices of steps that have frames, ascending
  let t = 0, stride = 1, look = null, ended = false, circles = -1;
  let shown = null; // index of the frame in the canvas

  const nearest = (at) => {
    let [low, high] = [0, available.length];
    while (low < high) { const mid = (low + high) >> 1; if (available[mid] <= at) low = mid + 1; else high = mid; }
    return low ? available[low - 1] : available.length ? available[0] : null;
  };

  function decode(index) {
    decoding.add(index);
    const bytes = bytesOf(images[index]);
    const kind = bytes[0] === 0xff ? "image/jpeg" : "image/png";
    createImageBitmap(new Blob([bytes], { type: kind })).then((bitmap) => {
      decoding.delete(index);
      if (ended) { bitmap.close(); return; }
      decoded.set(index, bitmap);
      for (const [other, old] of decoded) {
        if (decoded.size <= MAX_DECODED) break;
        decoded.delete(other);
        old.close();
      }
      const wanted = nearest(t);
      if (index === wanted || shown === null || Math.abs(index - wanted) < Math.abs(shown - wanted)) draw(index);
      fetch();
    }, () => { decoding.delete(index); note.textContent = `the frame of step ${index} cannot be decoded`; });
  }

  function fetch() { // the frame of this step first, then those that come next in the direction of scrubbing
    for (let k = 0; k <= AHEAD && decoding.size < MAX_DECODING; k++) {
      const index = nearest(Math.min(steps - 1, Math.max(0, t + k * stride)));
      if (index !== null && !decoded.has(index) && !decoding.has(index)) decode(index);
    }
  }

  function draw(index) {
    const bitmap = decoded.get(index);
    decoded.delete(index);
    decoded.set(index, bitmap);
    if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    context.drawImage(bitmap, 0, 0);
    if (shown !== index) canvas.dataset.index = String(index);
    shown = index;
    const count = look && index === nearest(t) ? overlay() : 0;
    if (count !== circles) canvas.dataset.circles = String(count);
    circles = count;
  }

  function overlay() {
    let count = 0;
    const row = look.row(t);
    if (row === null) return 0;
    context.strokeStyle = context.fillStyle = look.colour;
    context.lineWidth = 3;
    const n = look.names.length;
    for (let k = 0; k < n; k++) {
      const share = look.objects[row * n + k] / look.largest, spots = positions.get(look.names[k]);
      if (!(share > 0.01) || !spots || Number.isNaN(spots[2 * t])) continue;
      context.beginPath();
      context.arc(spots[2 * t] * canvas.width, spots[2 * t + 1] * canvas.height, Math.sqrt(share) * RADIUS * canvas.width, 0, 7);
      context.stroke();
      context.globalAlpha = 0.18;
      context.fill();
      context.globalAlpha = 1;
      count += 1;
    }
    return count;
  }

  function refresh() {
    const index = nearest(t);
    if (index !== null && decoded.has(index)) draw(index); // otherwise the last frame stays until this one is decoded
    fetch();
  }

  return {
    box,
    add(more, newPositions) {
      Object.assign(images, more);
      for (const [step, things] of Object.entries(newPositions)) for (const [name, [x, y]] of Object.entries(things)) {
        if (!positions.has(name)) positions.set(name, new Float32Array(2 * steps).fill(NaN));
        positions.get(name).set([x, y], 2 * Number(step));
      }
      available = Object.keys(images).map(Number).sort((a, b) => a - b);
      canvas.dataset.pictures = String(available.length);
      canvas.hidden = !available.length;
      refresh();
    },
    at(index, attribution) {
      if (index !== t) stride = index - t;
      t = index;
      look = attribution;
      refresh();
    },
    showNote(text) { note.textContent = text; },
    end() { ended = true; for (const bitmap of decoded.values()) bitmap.close(); },
    label(text) { canvas.setAttribute("aria-label", text); },
  };
}
