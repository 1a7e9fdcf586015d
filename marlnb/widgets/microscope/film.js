// The environment's pictures, decoded ahead in the direction of travel, and circles where an agent looks.
const KEPT = 120; // decoded pictures, 0.4 MB each
const AT_ONCE = 3; // pictures being decoded
const AHEAD = 3; // strides
const RADIUS = 0.16; // of the picture's width, of the object that matters most in the episode

function makeFilm(steps) {
  const box = make("div", "ms-film");
  const canvas = make("canvas");
  canvas.width = 320;
  canvas.height = 320;
  canvas.setAttribute("role", "img");
  const words = make("div", "ms-help");
  box.append(canvas, words);
  const context = canvas.getContext("2d");
  const decoded = new Map(); // place -> bitmap, the longest unused first
  const decoding = new Set();
  let images = {};
  const where = new Map(); // object -> x, y of every step, NaN where it is not known
  let drawn = []; // places of steps that have pictures, ascending
  let t = 0, stride = 1, look = null, ended = false, circles = -1;
  let shown = null; // place of the picture in the canvas

  const nearest = (at) => {
    let [low, high] = [0, drawn.length];
    while (low < high) { const mid = (low + high) >> 1; if (drawn[mid] <= at) low = mid + 1; else high = mid; }
    return low ? drawn[low - 1] : drawn.length ? drawn[0] : null;
  };

  function decode(place) {
    decoding.add(place);
    const bytes = bytesOf(images[place]);
    const kind = bytes[0] === 0xff ? "image/jpeg" : "image/png";
    createImageBitmap(new Blob([bytes], { type: kind })).then((bitmap) => {
      decoding.delete(place);
      if (ended) { bitmap.close(); return; }
      decoded.set(place, bitmap);
      for (const [other, old] of decoded) {
        if (decoded.size <= KEPT) break;
        decoded.delete(other);
        old.close();
      }
      const wanted = nearest(t);
      if (place === wanted || shown === null || Math.abs(place - wanted) < Math.abs(shown - wanted)) draw(place);
      fetch();
    }, () => { decoding.delete(place); words.textContent = `the picture of step ${place} cannot be read`; });
  }

  function fetch() { // what is wanted now, then what will be wanted if the travel goes on
    for (let k = 0; k <= AHEAD && decoding.size < AT_ONCE; k++) {
      const place = nearest(Math.min(steps - 1, Math.max(0, t + k * stride)));
      if (place !== null && !decoded.has(place) && !decoding.has(place)) decode(place);
    }
  }

  function draw(place) {
    const bitmap = decoded.get(place);
    decoded.delete(place);
    decoded.set(place, bitmap);
    if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    context.drawImage(bitmap, 0, 0);
    if (shown !== place) canvas.dataset.place = String(place);
    shown = place;
    const count = look && place === nearest(t) ? overlay() : 0;
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
      const share = look.objects[row * n + k] / look.most, spots = where.get(look.names[k]);
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
    const place = nearest(t);
    if (place !== null && decoded.has(place)) draw(place); // else the last picture stays until this one is decoded
    fetch();
  }

  return {
    box,
    add(more, places) {
      Object.assign(images, more);
      for (const [step, things] of Object.entries(places)) for (const [name, [x, y]] of Object.entries(things)) {
        if (!where.has(name)) where.set(name, new Float32Array(2 * steps).fill(NaN));
        where.get(name).set([x, y], 2 * Number(step));
      }
      drawn = Object.keys(images).map(Number).sort((a, b) => a - b);
      canvas.dataset.pictures = String(drawn.length);
      canvas.hidden = !drawn.length;
      refresh();
    },
    at(place, seen) {
      if (place !== t) stride = place - t;
      t = place;
      look = seen;
      refresh();
    },
    say(text) { words.textContent = text; },
    end() { ended = true; for (const bitmap of decoded.values()) bitmap.close(); },
    label(text) { canvas.setAttribute("aria-label", text); },
  };
}
