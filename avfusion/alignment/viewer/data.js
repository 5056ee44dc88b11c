// What the page knows: its JSON, what is chosen, arrays taken out of base64, and pictures painted out of sight.
// Maps are painted once, one pixel a lag and frame; scrubbing moves a line and redraws what stands beside it.
// Time: video frame i stands at i / fps seconds and fills the half frame on both sides.
// page.py puts data.js, draw.js, sound.js and viewer.js into one function, in this order.
const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const OUTSIDE = [230, 230, 230], SPEAKING = "#0072b2", SILENT = "#d9d9d9", NULL = "#7a7a7a", FOLLOWS = "#3fd0ff";
const OF_HEAD = ["#d55e00", "#009e73", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#6b6b00"];
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3]];
const THUMB = 40, BAND = 7, LINE = 28, FOLDED = 15, TALL = 76, MEL = 58, NULL_ROW = 12, SECONDS = 16;
const state = { scene: 0, face: 0, variant: "trained", shift: 0, layer: 0, frame: 0, off: new Set(), zoom: 0, first: 0,
  playing: false, ready: false, drawMs: 0 };
let scene, view, others, mel, ablated, rows = {}, generation = 0, dragging = false;
const kept = new Map(); // decoded arrays, the last ones used

// ---- from base64 to arrays
function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
async function unpack(packed) {
  if (kept.has(packed)) { const found = kept.get(packed); kept.delete(packed); kept.set(packed, found); return found; }
  const stream = new Blob([bytes(packed.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  let out = new Uint8Array(await new Response(stream).arrayBuffer());
  if (packed.type === "u16") {
    const words = new DataView(out.buffer), wide = new Uint16Array(out.length / 2);
    for (let i = 0; i < wide.length; i++) wide[i] = words.getUint16(2 * i, true);
    out = wide;
  }
  if (packed.differences) {
    const length = packed.shape[packed.shape.length - 1];
    for (let i = 0; i < out.length; i++) if (i % length) out[i] += out[i - 1];
  }
  kept.set(packed, out);
  if (kept.size > 400) kept.delete(kept.keys().next().value);
  return out;
}
const colors = bytes(page.colors);

// ---- what is chosen
const face = () => scene.faces[state.face];
const variants = () => Object.keys(page.variants).filter((name) => face().views[name]);
const shifts = () => Object.keys(face().views[state.variant]).map(Number).sort((a, b) => a - b);
const folded = (index) => scene.faces.length > 2 && index !== state.face; // no pictures: there is room for the heads
const soundName = () => (state.variant === "other_sound" && scene.sounds.other ? "other" : "own");
const here = () => state.frame - face().first; // frame of the face
const seen = (index, of = face()) => index >= 0 && index < of.frames;
const half = () => (scene.lags - 1) / 2;
const headOffset = (head) => state.layer * scene.heads + head;
const seconds = () => scene.frames / scene.fps;
const ms = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(Math.round(value)) + " ms";

async function load() {
  const mine = ++generation, of = face(), chosen = of.views[state.variant][state.shift];
  state.ready = false;
  const [maps, nulls, from, to] = await Promise.all([chosen.maps, chosen.null, of.lag_from, of.lag_to].map(unpack));
  const all = await Promise.all(scene.faces.map(async (one) => {
    const found = one.views[state.variant] && one.views[state.variant][state.shift];
    return { scores: found ? await unpack(found.scores) : null, speaking: await unpack(one.speaking) };
  }));
  const heard = await unpack(scene.sounds[soundName()].log_mel);
  const without = state.shift === 0 && of.ablated[state.variant] ? await unpack(of.ablated[state.variant]) : null;
  if (mine !== generation) return;
  view = { maps, nulls, from, to, levels: chosen.levels, canvases: [] };
  others = all; mel = melPicture(heard, scene.sounds[soundName()].log_mel.shape); ablated = without;
  for (let head = 0; head < scene.heads; head++) view.canvases.push(mapPicture(head));
  state.ready = true;
  drawControls(); drawAll();
  setSound();
  loadPictures();
}

// ---- pictures out of sight
function mapPicture(head) {
  const frames = face().frames, lags = scene.lags, canvas = new OffscreenCanvas(frames, lags);
  const image = new ImageData(frames, lags), start = headOffset(head) * lags * frames;
  const gain = Math.sqrt(scene.largest / scene.bright) / view.levels * 255;
  for (let lag = 0; lag < lags; lag++) {
    for (let frame = 0, at = 4 * (lags - 1 - lag) * frames; frame < frames; frame++, at += 4) {
      const outside = lag < view.from[frame] || lag >= view.to[frame];
      const color = 3 * Math.min(255, Math.round(view.maps[start + lag * frames + frame] * gain));
      for (let c = 0; c < 3; c++) image.data[at + c] = outside ? OUTSIDE[c] : colors[color + c];
      image.data[at + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
function melPicture(shades, [bins, frames]) {
  const canvas = new OffscreenCanvas(frames, bins), image = new ImageData(frames, bins);
  for (let bin = 0; bin < bins; bin++)
    for (let frame = 0, at = 4 * (bins - 1 - bin) * frames; frame < frames; frame++, at += 4) {
      image.data.fill(255 - shades[bin * frames + frame], at, at + 3);
      image.data[at + 3] = 255;
    }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
async function loadPictures() {
  const wanted = scene;
  for (const one of wanted.faces) {
    if (one.pictures) continue;
    one.pictures = [];
    await Promise.all(one.sheets.map(async (sheet, second) => {
      one.pictures[second] = await createImageBitmap(new Blob([bytes(sheet)], { type: "image/webp" }));
    }));
    if (wanted === scene && state.ready) drawAll();
  }
}
function drawCrop(context, one, index, x, y, width, height) {
  const sheet = one.pictures && one.pictures[Math.floor(index / one.sheet_frames)];
  if (!sheet) return;
  const [h, w] = one.crop;
  context.drawImage(sheet, (index % one.sheet_frames) * w, 0, w, h, x, y, width, height);
}

// ---- time to pixels
function span() { // first and last second shown
  const whole = [-0.5 / scene.fps, (scene.frames - 0.5) / scene.fps];
  if (!state.zoom || state.zoom >= seconds()) return whole;
  return [state.first, state.first + state.zoom];
}
function keepInView() { // whether the shown stretch had to move
  if (!state.zoom || state.zoom >= seconds()) return false;
  const now = state.frame / scene.fps, margin = dragging ? 0 : 0.1 * state.zoom;
  if (now >= state.first + margin && now <= state.first + state.zoom - margin) return false;
  const least = -0.5 / scene.fps, most = least + seconds() - state.zoom;
  const before = state.first;
  state.first = Math.min(Math.max(now - (dragging ? (now < state.first ? 0 : state.zoom) : state.zoom / 2), least), most);
  return state.first !== before;
}
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = Math.round(canvas.clientWidth * ratio);
  canvas.style.height = height + "px";
  if (canvas.width !== width || canvas.height !== Math.round(height * ratio)) {
    canvas.width = width; canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, height);
  return [context, canvas.clientWidth];
}
const mapHeight = () => (scene.heads > 4 ? 66 : 96);
