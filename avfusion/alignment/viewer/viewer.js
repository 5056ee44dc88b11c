// Keys, mouse and controls; opens the first scene. window.viewerState() tells what is drawn at the playhead.

// ---- acting
function go(frame) {
  const next = Math.min(Math.max(frame, 0), scene.frames - 1);
  if (next === state.frame) return;
  state.frame = next;
  if (!state.ready) return; // what is being loaded is drawn with this frame
  if (keepInView()) drawAll(); else drawPlayhead();
}
function seek(frame) { go(frame); audio.currentTime = state.frame / scene.fps; }
function choose(change) {
  if (change.scene !== undefined && change.scene !== state.scene) { openScene(change.scene); return; }
  Object.assign(state, change);
  if (!face().views[state.variant]) state.variant = "trained";
  if (!shifts().includes(state.shift)) state.shift = 0;
  load();
}
function toggle(head) {
  if (!state.ready || !ablated || head >= scene.heads) return;
  if (!state.off.delete(head)) state.off.add(head);
  drawControls(); drawAll();
}
function step(list, now, by) { return list[Math.min(Math.max(list.indexOf(now) + by, 0), list.length - 1)]; }
function startDrag(event) {
  if (event.button) return;
  const canvas = event.currentTarget, move = (at) => {
    const box = canvas.getBoundingClientRect(), [from, to] = span();
    seek(Math.round((from + (at.clientX - box.left) / box.width * (to - from)) * scene.fps));
  };
  dragging = true;
  canvas.setPointerCapture(event.pointerId);
  const stop = () => { dragging = false; canvas.removeEventListener("pointermove", move); };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", stop, { once: true });
  canvas.addEventListener("pointercancel", stop, { once: true });
  move(event);
  $("tracks").focus({ preventScroll: true });
  event.preventDefault();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const kind = event.target.tagName, field = kind === "SELECT" || kind === "INPUT", key = event.key;
  const act = {
    ArrowLeft: () => seek(state.frame - (event.shiftKey ? 10 : 1)), ArrowRight: () => seek(state.frame + (event.shiftKey ? 10 : 1)),
    Home: () => seek(0), End: () => seek(scene.frames - 1),
  }[key];
  if (act) { if (field) return; act(); }
  else if (key === " ") { if (kind === "BUTTON" || kind === "SELECT") return; play(); }
  else if (kind === "SELECT") return; // letters and digits choose there
  else if (key >= "1" && key <= "9") toggle(Number(key) - 1);
  else if (key === "[" || key === "]") choose({ shift: step(shifts(), state.shift, key === "]" ? 1 : -1) });
  else if (key === "v") choose({ variant: variants()[(variants().indexOf(state.variant) + 1) % variants().length] });
  else if (key === "f") choose({ face: (state.face + 1) % scene.faces.length });
  else return;
  event.preventDefault();
});
function openScene(index) {
  state.playing = false; audio.pause(); $("play").textContent = "Play";
  Object.assign(state, { scene: index, face: 0, shift: 0, frame: 0, layer: page.scenes[index].layers - 1, first: -0.5 / page.scenes[index].fps });
  state.off.clear();
  scene = page.scenes[index]; $("scene").title = scene.title;
  if (!face().views[state.variant]) state.variant = "trained";
  $("tracks").setAttribute("aria-valuemax", scene.frames - 1);
  $("layer").replaceChildren();
  for (let layer = 0; layer < scene.layers; layer++) $("layer").add(new Option(String(layer + 1), layer, false, layer === state.layer));
  $("layer-group").style.display = scene.layers > 1 ? "" : "none";
  $("bright").textContent = scene.bright.toFixed(3) + " and more (√ scale)";
  $("notes").replaceChildren();
  for (const warning of scene.warnings) element("p", "note warning", $("notes"), "! " + warning);
  if (page.left_out.length) element("p", "note", $("notes"), "Left out to keep this page small: " + page.left_out.join("; ") + ".");
  makeRows(); load();
}
$("subtitle").textContent = page.title;
document.title = (page.title ? page.title + ": " : "") + document.title.toLowerCase();
page.scenes.forEach((one, index) => $("scene").add(new Option(one.title, index)));
$("scene-group").style.display = page.scenes.length > 1 ? "" : "none";
$("scene").addEventListener("change", () => choose({ scene: Number($("scene").value) }));
$("layer").addEventListener("change", () => choose({ layer: Number($("layer").value) }));
$("zoom").addEventListener("change", () => { state.zoom = Number($("zoom").value); state.first = -Infinity; keepInView(); if (state.ready) drawAll(); });
$("shift").addEventListener("input", () => choose({ shift: shifts()[Number($("shift").value)] }));
$("play").addEventListener("click", play);
$("back").addEventListener("click", () => seek(state.frame - 1));
$("next").addEventListener("click", () => seek(state.frame + 1));
window.addEventListener("resize", () => { if (state.ready) drawAll(); });
const bar = $("scale").getContext("2d");
for (let i = 0; i < 256; i++) { const c = 3 * Math.round(Math.sqrt(i / 255) * 255); bar.fillStyle = `rgb(${colors[c]},${colors[c + 1]},${colors[c + 2]})`; bar.fillRect(i, 0, 1, 10); }

// ---- what is drawn, for tests and consoles
window.viewerState = () => !state.ready ? { ready: false } : ({
  ...state, off: [...state.off].sort(), span: scene && span(), time_s: state.frame / scene.fps, title: scene.title, faceName: face().name,
  scores: others.map((one, index) => (one.scores && seen(state.frame - scene.faces[index].first, scene.faces[index]) ? one.scores[state.frame - scene.faces[index].first] / 65535 : null)),
  speaking: seen(here()) && Boolean(others[state.face].speaking[here()]),
  heads: rows.heads.map((_, head) => { const weights = weightsAt(head); return { weights, lag_ms: meanLag(weights), null_mass: seen(here()) ? nullMass(head, here()) : null, without: ablated && seen(here()) ? without(head, here()) : null }; }),
  sound: { time_s: audio.currentTime, duration_s: audio.duration, shift_ms: soundState.shift, first_loud_s: soundState.first, error: soundState.error },
});
window.viewerTest = {
  seek,
  place: (head, frame, lagMs) => { // of a point of a head's map, in pixels of the page
    const box = rows.heads[head].canvas.getBoundingClientRect(), [from, to] = span();
    return { x: box.left + (frame / scene.fps - from) / (to - from) * box.width, y: box.top + mapHeight() * (half() + 0.5 - lagMs * scene.key_hz / 1000) / scene.lags };
  },
  pixel: (head, frame, lagMs) => {
    const canvas = rows.heads[head].canvas, box = canvas.getBoundingClientRect(), at = window.viewerTest.place(head, frame, lagMs), ratio = canvas.width / box.width;
    return [...canvas.getContext("2d").getImageData(Math.floor((at.x - box.left) * ratio), Math.floor((at.y - box.top) * ratio), 1, 1).data].slice(0, 3);
  },
};
openScene(0);
