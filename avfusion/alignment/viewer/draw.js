// Rows of the page, and everything that is drawn in them. Widths are those of the layout, heights are fixed.

// ---- rows
function element(kind, name, parent, text) {
  const made = document.createElement(kind);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
function makeRow(kind, label) {
  const row = element("div", "row " + kind, $("rows")), about = element("div", "about " + kind, row);
  const axis = element("div", "axis", row), canvas = element("canvas", "time", row), side = element("div", "side", row);
  canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", label);
  return { row, about, axis, canvas, side };
}
function ticks(axis, places) {
  axis.replaceChildren();
  for (const [y, text] of places) element("span", "", axis, text).style.top = y - 5 + "px";
}
function makeRows() {
  $("rows").replaceChildren();
  rows = { faces: [], heads: [] };
  scene.faces.forEach((one, index) => {
    const row = makeRow("face", "Face " + one.name + ": pictures, label, score");
    element("b", "", row.about, scene.faces.length > 1 ? "Face " + (index + 1) : "Face");
    element("div", "small", row.about, one.name + (one.role ? " · " + one.role : ""));
    row.about.title = one.name + (one.role ? " · " + one.role : "");
    row.about.addEventListener("click", () => choose({ face: index }));
    rows.faces.push(row);
  });
  rows.axis = makeRow("seconds", "Time in seconds");
  ticks(rows.axis.axis, [[10, "s"]]);
  rows.mel = makeRow("mel", "Log-mel of the sound");
  element("div", "foot", rows.mel.side, "weights at the playhead");
  element("b", "", rows.mel.about, "Sound");
  rows.mel.text = element("div", "small", rows.mel.about);
  ticks(rows.mel.axis, [[7, "8 kHz"], [MEL - 4, "0"]]);
  for (let head = 0; head < scene.heads; head++) {
    const row = makeRow("head", `Head ${head + 1}: lag map and null mass`), top = element("div", "top", row.about);
    element("b", "", top, "Head " + (head + 1));
    row.toggle = element("button", "", top, "without it");
    row.toggle.addEventListener("click", () => toggle(head));
    row.words = element("div", "words", row.about);
    row.gauge = element("div", "gauge", row.about); row.mark = element("i", "", row.gauge);
    row.ends = element("div", "ends", row.about);
    element("span", "", row.ends, "stays"); row.now = element("span", "", row.ends); element("span", "", row.ends, "follows");
    row.curve = element("canvas", "", row.side);
    row.curve.setAttribute("role", "img"); row.curve.setAttribute("aria-label", `Head ${head + 1}: weights at the playhead`);
    row.null = element("span", "null", row.side);
    const height = mapHeight(), y = (lag) => height * (half() + 0.5 - lag) / scene.lags, most = Math.round(half() * 1000 / scene.key_hz);
    ticks(row.axis, [[Math.max(y(half()), 6), "+" + most], [y(0), "0 ms"], [Math.min(y(-half()), height - 6), "−" + most], [height + 9, "null"]]);
    rows.heads.push(row);
  }
  document.querySelectorAll(".time").forEach((canvas) => canvas.addEventListener("pointerdown", startDrag));
}
function drawControls() {
  const one = face(), list = (id, items, pressed, act) => {
    const focused = document.activeElement && document.activeElement.parentElement === $(id) ? document.activeElement.textContent : null;
    $(id).replaceChildren();
    for (const [key, text] of items) {
      const button = element("button", "", $(id), text);
      button.setAttribute("aria-pressed", String(key === pressed));
      button.dataset.key = key;
      button.addEventListener("click", () => act(key));
      if (text === focused) button.focus();
    }
  };
  list("faces", scene.faces.length > 1 ? scene.faces.map((_, i) => [i, "Face " + (i + 1)]) : [], state.face, (key) => choose({ face: key }));
  $("label-key").style.display = scene.faces.some((any) => any.labelled) ? "" : "none";
  list("variants", variants().map((name) => [name, page.variants[name]]), state.variant, (key) => choose({ variant: key }));
  const all = shifts(), slider = $("shift");
  slider.min = 0; slider.max = Math.max(all.length - 1, 1); slider.value = all.indexOf(state.shift);
  slider.disabled = all.length < 2;
  $("shift-text").textContent = all.length < 2 ? "not computed" : state.shift ? ms(state.shift) + (state.shift > 0 ? " (later)" : " (earlier)") : scene.unmoved;
  slider.setAttribute("aria-valuetext", $("shift-text").textContent);
  rows.mel.text.textContent = (soundName() === "other" ? "of another clip" : "log-mel") + (state.shift ? ", moved " + ms(state.shift) : "");
  rows.heads.forEach((row, head) => {
    const words = scene.words[state.layer] && scene.words[state.layer][head];
    row.words.textContent = state.variant === "trained" ? words || "" : state.variant === "untrained" ? "fresh weights" : "trained, another clip’s sound";
    row.words.title = row.words.textContent;
    const slope = one.slopes[state.variant] && one.slopes[state.variant][state.layer][head];
    const lags = one.lags_ms[state.variant], was = lags["0"][state.layer][head], now = lags[state.shift] && lags[state.shift][state.layer][head];
    const known = slope !== null && slope !== undefined;
    row.gauge.style.visibility = row.ends.style.visibility = known || was !== null ? "visible" : "hidden";
    row.mark.style.display = known ? "" : "none";
    if (known) row.mark.style.left = `calc(${Math.min(Math.max(slope, 0), 1)} * (100% - 5px))`;
    row.now.textContent = was === null || now === null || now === undefined ? "hears little" : state.shift ? `${ms(was).slice(0, -3)} → ${ms(now)}` : "lag " + ms(was);
    row.gauge.title = known ? `in this clip its lag moves ${slope.toFixed(2)} ms for each ms that the sound is moved` : "";
    row.toggle.setAttribute("aria-pressed", String(state.off.has(head)));
    row.toggle.disabled = !ablated;
    row.toggle.setAttribute("aria-label", `Score without head ${head + 1}`);
    row.toggle.title = ablated ? `draws the score without head ${head + 1} (key ${head + 1})` : "known where the sound is not moved, for the trained model";
  });
}

// ---- drawing
function drawAll() {
  const [from, to] = span();
  drawSeconds(from, to);
  scene.faces.forEach((one, index) => drawFace(rows.faces[index], one, index, from, to));
  let [context, width] = fit(rows.mel.canvas, MEL);
  context.fillStyle = "rgb(230,230,230)"; context.fillRect(0, 0, width, MEL);
  context.imageSmoothingEnabled = false;
  const perSecond = width / (to - from), moved = state.shift / 1000;
  context.drawImage(mel, (-0.5 / scene.key_hz + moved - from) * perSecond, 0, mel.width / scene.key_hz * perSecond, MEL);
  rows.heads.forEach((row, head) => drawHead(row, head, from, to));
  drawPlayhead();
}
function drawSeconds(from, to) {
  const [context, width] = fit(rows.axis.canvas, SECONDS), room = Math.max(width / 55, 1);
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300].find((each) => (to - from) / each <= room) || 600;
  context.font = "11px system-ui, sans-serif"; context.fillStyle = "#5b6875"; context.textAlign = "center";
  for (let n = Math.ceil(from / step); n * step <= to; n++) {
    const x = (n * step - from) / (to - from) * width, text = (n * step).toFixed(step < 1 ? 1 : 0), edge = context.measureText(text).width / 2;
    context.fillRect(x - 0.5, 0, 1, 4);
    context.fillText(text, Math.min(Math.max(x, edge), width - edge), 14);
  }
}
function drawFace(row, one, index, from, to) {
  const chosen = index === state.face, small = folded(index), tall = chosen ? TALL : small ? FOLDED : LINE;
  const bar = small ? 0 : THUMB + 2, top = bar + BAND + (small ? 1 : 7);
  const [context, width] = fit(row.canvas, top + tall);
  const x = (frame) => (frame / scene.fps - from) / (to - from) * width;
  const shift = (frame) => frame + one.first;
  row.about.classList.toggle("chosen", chosen); row.about.classList.toggle("folded", small);
  row.row.style.boxShadow = chosen && scene.faces.length > 1 ? "-4px 0 0 " + SPEAKING : "";
  if (one.crop && !small) {
    const wide = THUMB * one.crop[1] / one.crop[0], count = Math.max(Math.floor((width + 2) / (wide + 2)), 1);
    for (let place = 0; place < count; place++) {
      const left = (place + 0.5) * width / count - wide / 2;
      const frame = Math.round((from + (left + wide / 2) / width * (to - from)) * scene.fps) - one.first;
      if (seen(frame, one)) drawCrop(context, one, frame, left, 0, wide, THUMB);
    }
  }
  const { speaking, scores } = others[index];
  for (let frame = 0, start = 0; frame <= one.frames; frame++)
    if (frame === one.frames || speaking[frame] !== speaking[start]) {
      context.fillStyle = speaking[start] ? SPEAKING : SILENT;
      if (one.labelled) context.fillRect(x(shift(start) - 0.5), bar, x(shift(frame) - 0.5) - x(shift(start) - 0.5), BAND);
      start = frame;
    }
  const y = (value) => top + 2 + (1 - value) * (tall - 4);
  context.strokeStyle = "#d5dbe1"; context.lineWidth = 1;
  for (const value of small ? [0, 1] : [0, 0.5, 1]) { context.beginPath(); context.moveTo(0, y(value)); context.lineTo(width, y(value)); context.stroke(); }
  const label = one.labelled ? [[THUMB + 5, "label"]] : [];
  ticks(row.axis, small ? [] : chosen ? [...label, [y(1) + 2, "1"], [y(0.5), "0.5"], [y(0) - 2, "0"]] : [...label, [y(1) + 2, "1"], [y(0) - 2, "0"]]);
  const line = (value, color, dash, thick) => {
    context.beginPath(); context.strokeStyle = color; context.setLineDash(dash); context.lineWidth = thick;
    for (let frame = 0; frame < one.frames; frame++) context.lineTo(x(shift(frame)), y(value(frame)));
    context.stroke(); context.setLineDash([]);
  };
  if (scores) line((frame) => scores[frame] / 65535, "#16212d", [], chosen ? 1.8 : 1.2);
  if (chosen && ablated) for (const head of state.off)
    line((frame) => without(head, frame), OF_HEAD[head % OF_HEAD.length], DASHES[head % DASHES.length], 2);
  row.side.replaceChildren();
  element("div", "small", row.side, small && one.labelled ? "label, score" : "score").style.cssText = `position:absolute;top:${small ? 2 : top}px`;
  if (chosen && ablated) [...state.off].sort().slice(0, 4).forEach((head, place) => {
    const key = element("div", "", row.side, "without head " + (head + 1));
    key.style.cssText = `position:absolute;top:${top + 15 + 15 * place}px;color:${OF_HEAD[head % OF_HEAD.length]};font-weight:600`;
  });
}
const without = (head, frame) => ablated[headOffset(head) * face().frames + frame] / 65535;
function drawHead(row, head, from, to) {
  const height = mapHeight(), one = face(), [context, width] = fit(row.canvas, height + NULL_ROW + 2);
  const perSecond = width / (to - from), left = ((one.first - 0.5) / scene.fps - from) * perSecond;
  const wide = one.frames / scene.fps * perSecond;
  context.fillStyle = "rgb(230,230,230)"; context.fillRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(view.canvases[head], left, 0, wide, height);
  const y = (lagMs) => height * (half() + 0.5 - lagMs * scene.key_hz / 1000) / scene.lags;
  const rule = (at, color, dash) => {
    context.beginPath(); context.strokeStyle = color; context.setLineDash(dash); context.lineWidth = 1.2;
    context.moveTo(0, at); context.lineTo(width, at); context.stroke(); context.setLineDash([]);
  };
  context.globalAlpha = 0.55; rule(y(0), "#fff", [3, 5]); context.globalAlpha = 1;
  const was = one.lags_ms[state.variant]["0"][state.layer][head];
  if (state.shift && was !== null) {
    const tag = (at, text, color) => {
      rule(at, color, [10, 4]);
      context.font = "11px system-ui, sans-serif";
      const size = context.measureText(text).width + 6;
      context.fillStyle = "rgba(11,27,43,.8)"; context.fillRect(width - size, at - 7, size, 14);
      context.fillStyle = color; context.fillText(text, width - size + 3, at + 4);
    };
    tag(y(was), "if it stays", "#ffffff");
    tag(Math.min(Math.max(y(was + state.shift), 1), height - 1), "if it follows", FOLLOWS);
  }
  context.fillStyle = "#eef1f3"; context.fillRect(left, height + 2, wide, NULL_ROW);
  context.fillStyle = NULL; context.beginPath(); context.moveTo(left, height + 2 + NULL_ROW);
  for (let frame = 0; frame < one.frames; frame++) {
    const at = height + 2 + NULL_ROW * (1 - nullMass(head, frame));
    context.lineTo(left + frame * wide / one.frames, at); context.lineTo(left + (frame + 1) * wide / one.frames, at);
  }
  context.lineTo(left + wide, height + 2 + NULL_ROW); context.fill();
}
const nullMass = (head, frame) => view.nulls[headOffset(head) * face().frames + frame] / 255;
function weight(head, frame, lag) {
  const share = view.maps[(headOffset(head) * scene.lags + lag) * face().frames + frame] / view.levels;
  return share * share * scene.largest;
}
function weightsAt(head) {
  return seen(here()) ? Array.from({ length: scene.lags }, (_, lag) => weight(head, here(), lag)) : [];
}
function meanLag(weights) {
  let mass = 0, sum = 0;
  weights.forEach((value, lag) => { mass += value; sum += value * (lag - half()); });
  return mass > 0 ? sum / mass * 1000 / scene.key_hz : null;
}
function drawCurve(row, head) {
  const height = mapHeight(), [context, width] = fit(row.curve, height), weights = weightsAt(head);
  context.fillStyle = "#f4f6f8"; context.fillRect(0, 0, width, height);
  const y = (lag) => height * (scene.lags - 0.5 - lag) / scene.lags;
  context.strokeStyle = "#aab4be"; context.setLineDash([3, 3]); context.beginPath(); context.moveTo(0, y(half())); context.lineTo(width, y(half())); context.stroke(); context.setLineDash([]);
  row.null.textContent = weights.length ? `null ${Math.round(100 * nullMass(head, here()))} %` : "";
  if (!weights.length) return;
  const x = (value) => 1 + Math.min(Math.sqrt(value / scene.bright), 1.15) / 1.15 * (width - 3);
  context.beginPath(); context.moveTo(1, y(0));
  weights.forEach((value, lag) => context.lineTo(x(value), y(lag)));
  context.lineTo(1, y(scene.lags - 1)); context.closePath();
  context.fillStyle = "rgba(0,114,178,.22)"; context.fill();
  context.strokeStyle = SPEAKING; context.lineWidth = 1.5; context.stroke();
}
function drawPlayhead() {
  const began = performance.now(), one = face(), frame = here(), [from, to] = span(), canvas = rows.mel.canvas;
  const x = canvas.offsetLeft + (state.frame / scene.fps - from) / (to - from) * canvas.clientWidth;
  $("playhead").style.transform = `translateX(${x}px)`;
  rows.heads.forEach(drawCurve);
  const there = seen(frame), { speaking, scores } = others[state.face];
  const context = $("picture").getContext("2d"), size = $("picture").width;
  context.clearRect(0, 0, size, size);
  if (there && one.crop) {
    const factor = size / Math.max(...one.crop), h = one.crop[0] * factor, w = one.crop[1] * factor;
    const [left, top] = [(size - w) / 2, (size - h) / 2];
    drawCrop(context, one, frame, left, top, w, h);
    const [x1, y1, x2, y2] = one.region;
    if (x2 - x1 < 1 || y2 - y1 < 1) {
      context.strokeStyle = FOLLOWS; context.lineWidth = 2; context.strokeRect(left + x1 * w, top + y1 * h, (x2 - x1) * w, (y2 - y1) * h - 1);
      context.font = "20px system-ui, sans-serif";
      const wide = context.measureText("seen by the model").width + 8;
      context.fillStyle = "rgba(11,27,43,.75)"; context.fillRect(left + x1 * w, top + y1 * h - 25, wide, 24);
      context.fillStyle = FOLLOWS; context.fillText("seen by the model", left + x1 * w + 4, top + y1 * h - 6);
    }
  }
  const is = there && one.labelled && speaking[frame];
  $("label").className = "label" + (is ? " speaking" : "");
  $("label").textContent = !there ? "not in the picture" : !one.labelled ? "no label" : is ? "label: speaking" : "label: not speaking";
  $("score").replaceChildren("score ", Object.assign(document.createElement("b"), { textContent: there && scores ? (scores[frame] / 65535).toFixed(2) : "–" }));
  $("without").replaceChildren();
  if (there && ablated) for (const head of [...state.off].sort())
    element("div", "", $("without"), `without head ${head + 1}: ${without(head, frame).toFixed(2)}`).style.color = OF_HEAD[head % OF_HEAD.length];
  const text = `${(state.frame / scene.fps).toFixed(2)} / ${seconds().toFixed(2)} s · frame ${state.frame}`;
  $("clock").textContent = text;
  $("tracks").setAttribute("aria-valuenow", state.frame); $("tracks").setAttribute("aria-valuetext", text);
  state.drawMs = performance.now() - began;
}
