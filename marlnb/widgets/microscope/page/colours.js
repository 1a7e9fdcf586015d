// Colours, and arrays from the bytes that Python sends.
const STOPS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
]; // cividis: distinct with any colour vision, and in greyscale
const LUT = new Uint32Array(256).map((_, v) => {
  const at = (v / 255) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const [r, g, b] = STOPS[low].map((c, k) => Math.round(c + (STOPS[low + 1][k] - c) * (at - low)));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
});
const ABSENT = ((255 << 24) | (150 << 16) | (150 << 8) | 150) >>> 0;

// a DataView may have any alignment; slice() makes an aligned copy
const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const floatsOf = (view) => new Float32Array(bytesOf(view).slice().buffer);
const intsOf = (view) => new Int32Array(bytesOf(view).slice().buffer);

// 1235, 12.3, 0.50; two digits of what is smaller: 0.012, 1.2e-4
const brief = (v) => {
  if (!Number.isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a >= 0.1 || a === 0) return v.toFixed(a >= 1000 ? 0 : a >= 10 ? 1 : 2);
  const rounded = Number(v.toPrecision(2));
  return a < 1e-3 ? rounded.toExponential() : String(rounded);
};

function make(tag, className, text) {
  const el = document.createElement(tag);
  if (className) el.className = className;
  if (text !== undefined) el.textContent = text;
  return el;
}
