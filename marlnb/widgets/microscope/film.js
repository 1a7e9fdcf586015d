// The environment's pictures, decoded as they are needed, and circles where an agent looks.
const KEPT = 80; // decoded pictures
const RADIUS = 0.16; // of the picture's width, of the object that matters most in the episode

function makeFilm() {
  const box = make("div", "ms-film");
  const canvas = make("canvas");
  canvas.width = 320;
  canvas.height = 320;
  canvas.setAttribute("role", "img");
  const words = make("div", "ms-help");
  box.append(canvas, words);
  const context = canvas.getContext("2d");
  const decoded = new Map();
  let images = {};
  let places = {};
  let drawn = []; // places of steps that have pictures, ascending
  let now = { t: 0, look: null };
  let ended = false;

  const nearest = (t) => {
    let [low, high] = [0, drawn.length];
    while (low < high) { const mid = (low + high) >> 1; if (drawn[mid] <= t) low = mid + 1; else high = mid; }
    return low ? drawn[low - 1] : drawn.length ? drawn[0] : null;
  };

  function decode(place) {
    const bytes = bytesOf(images[place]);
    const kind = bytes[0] === 0xff ? "image/jpeg" : "image/png";
    decoded.set(place, null);
    createImageBitmap(new Blob([bytes], { type: kind })).then((bitmap) => {
      if (ended) { bitmap.close(); return; }
      decoded.set(place, bitmap);
      for (const [other, old] of decoded) {
        if (decoded.size <= KEPT) break;
        if (other !== place) { decoded.delete(other); if (old) old.close(); }
      }
      if (nearest(now.t) === place) draw();
    }, () => { words.textContent = `the picture of step ${place} cannot be read`; });
  }

  function draw() {
    const place = nearest(now.t);
    if (place === null) return;
    if (!decoded.has(place)) decode(place);
    const bitmap = decoded.get(place);
    if (!bitmap) return; // the last picture stays until this one is decoded
    if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    context.drawImage(bitmap, 0, 0);
    canvas.dataset.place = String(place);
    overlay(now.look, places[now.t]);
    const ahead = nearest(now.t + 1);
    if (ahead !== null && !decoded.has(ahead)) decode(ahead);
  }

  function overlay(look, where) {
    canvas.dataset.circles = "0";
    if (!look || !where) return;
    let count = 0;
    for (const [name, share] of look.objects) {
      if (!(share > 0.01) || !where[name]) continue;
      const [x, y] = where[name];
      context.beginPath();
      context.arc(x * canvas.width, y * canvas.height, Math.sqrt(share) * RADIUS * canvas.width, 0, 7);
      context.strokeStyle = look.colour;
      context.lineWidth = 3;
      context.stroke();
      context.globalAlpha = 0.18;
      context.fillStyle = look.colour;
      context.fill();
      context.globalAlpha = 1;
      count += 1;
    }
    canvas.dataset.circles = String(count);
  }

  return {
    box,
    add(more, where) {
      Object.assign(images, more);
      Object.assign(places, where);
      drawn = Object.keys(images).map(Number).sort((a, b) => a - b);
      canvas.dataset.pictures = String(drawn.length);
      canvas.hidden = !drawn.length;
      draw();
    },
    at(t, look) { now = { t, look }; draw(); },
    say(text) { words.textContent = text; },
    hasPlaces: () => Object.keys(places).length > 0,
    end() { ended = true; for (const bitmap of decoded.values()) if (bitmap) bitmap.close(); },
    label(text) { canvas.setAttribute("aria-label", text); },
  };
}
