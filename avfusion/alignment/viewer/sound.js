// The sound of a scene: one file, moved by writing it anew with silence before or after it.

const audio = new Audio(), soundState = { name: "", shift: null, samples: new Map(), error: "" };
audio.preload = "auto";
async function setSound() {
  const name = soundName(), key = state.scene + name, shift = state.shift, wanted = key + shift;
  if (soundState.name === wanted) return;
  soundState.name = wanted;
  try {
    if (!soundState.samples.has(key)) {
      const decoder = new OfflineAudioContext(1, 1, 16000);
      const decoded = await decoder.decodeAudioData(bytes(scene.sounds[name].flac).buffer);
      soundState.samples.set(key, decoded.getChannelData(0));
    }
  } catch (error) { soundState.error = "this browser cannot play the sound"; $("play").disabled = true; $("play").title = soundState.error; return; }
  if (soundState.name !== wanted) return;
  const file = wav(soundState.samples.get(key), shift * 16), url = URL.createObjectURL(new Blob([file], { type: "audio/wav" }));
  const old = audio.src;
  audio.src = url; audio.currentTime = state.frame / scene.fps;
  soundState.shift = shift; soundState.first = firstLoud(file);
  if (old) URL.revokeObjectURL(old);
  if (state.playing) audio.play();
}
function wav(samples, later) {
  const data = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, word) => [...word].forEach((c, i) => data.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF"); data.setUint32(4, 36 + 2 * samples.length, true); text(8, "WAVEfmt ");
  data.setUint32(16, 16, true); data.setUint16(20, 1, true); data.setUint16(22, 1, true); data.setUint32(24, 16000, true);
  data.setUint32(28, 32000, true); data.setUint16(32, 2, true); data.setUint16(34, 16, true);
  text(36, "data"); data.setUint32(40, 2 * samples.length, true);
  for (let i = 0; i < samples.length; i++) {
    const from = i - later, value = from >= 0 && from < samples.length ? samples[from] : 0;
    data.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(value * 32768))), true);
  }
  return data;
}
function firstLoud(file) { // second at which the file that is played first passes half of full scale; for tests
  for (let at = 44; at < file.byteLength; at += 2) if (Math.abs(file.getInt16(at, true)) > 16384) return (at - 44) / 32000;
  return null;
}
async function play() {
  if (state.playing) { state.playing = false; audio.pause(); }
  else {
    if (state.frame >= scene.frames - 1) seek(0);
    state.playing = true;
    audio.currentTime = state.frame / scene.fps;
    try { await audio.play(); requestAnimationFrame(tick); } catch (error) { state.playing = false; }
  }
  $("play").textContent = state.playing ? "Pause" : "Play";
}
function tick() {
  if (!state.playing) return;
  if (audio.ended) { state.playing = false; $("play").textContent = "Play"; go(scene.frames - 1); return; }
  if (!audio.seeking && !dragging) go(Math.round(audio.currentTime * scene.fps));
  requestAnimationFrame(tick);
}
