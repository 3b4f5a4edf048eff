// The viewer of one case: what is looked at, and what mouse, touch and keys do to it.

import { put } from '/page/api.js';
import { element } from '/page/cases.js';
import { erase, paint } from '/page/edits.js';
import { PlaneView, blendTable, greyTable } from '/page/planes.js';
import { ProjectionView } from '/page/projection.js';
import { drawSide, drawTable } from '/page/side.js';
import { fromFile, loadVolume, reloadMask, strides, toFile, valueAt } from '/page/volume.js';

const $ = (id) => document.getElementById(id);
const PRESETS = { 'Soft tissue': [-160, 240], Lung: [-1000, 200], Bone: [-300, 1200], Liver: [-20, 180], Brain: [0, 80] };
export const KEYS = [['C S W G B E', 'look, slices, window, pan, brush, rubber'], ['X', 'erase the lesion'], ['U', 'undo'], ['N P', 'next, previous lesion'], ['↑ ↓', 'next slice of the plane that has the focus'],
  ['M F K', 'mask on or off, outline or fill, compare'], [', .', 'less, more PET'], ['[ ]', 'narrower, wider window of the PET'], ['0', 'reset the view'], ['Space', 'turn the projection'], ['wheel', 'slices; with Ctrl zoom'], ['right drag', 'window; with Shift the PET’s'], ['two fingers', 'zoom and move']];

export class Viewer {
  constructor(sendTo) {
    this.planes = ['axial', 'coronal', 'sagittal'].map((name) => new PlaneView(name, $(name)));
    this.projection = new ProjectionView($('mip'));
    this.sendTo = sendTo; this.volume = null; this.tool = 'cross'; this.sending = Promise.resolve();
    this.connect();
    new ResizeObserver(() => this.draw()).observe($('planes'));
  }

  async open(one) {
    const id = one.id;
    this.opening = id; this.latest = one;
    const volume = await loadVolume(id);
    if (this.opening !== id) return; // another case was chosen meanwhile
    const { grid, view } = volume, pet = volume.layers.find((l) => l.kind === 'pet') || null;
    const base = volume.layers.find((l) => l.kind !== 'pet') || pet;
    this.volume = volume; this.edits = view.edits; this.chosen = null; this.shown = false;
    this.version = one.version; this.known = 0; this.unsent = 0; // the server's counter, as shown and as of our last edit; edits under way
    const windows = Object.fromEntries(volume.layers.map((l) => [l.name, [...l.window]]));
    this.look = {
      cross: grid.shape.map((n) => n >> 1), base, pet, windows, tables: {}, opacity: Number($('opacity').value), maskOn: true, fill: $('fill').checked, compare: false, version: 0,
      colours: Object.fromEntries(Object.entries(view.labels).map(([value, label]) => [value, label.colour])),
    };
    volume.layers.forEach((layer) => this.retable(layer));
    this.reblend();
    for (const plane of this.planes) { plane.zoom = 1; plane.pan = [0, 0]; plane.forget(); }
    this.projection.forget(); this.projection.number = 0;
    $('base').replaceChildren(...volume.layers.map((l) => element('option', { value: l.name, textContent: l.name.toUpperCase(), selected: l === base })));
    $('label').replaceChildren(...Object.entries(view.labels).map(([value, label]) => element('option', { value, textContent: label.name })));
    $('label').hidden = Object.keys(view.labels).length < 2;
    this.presets();
    $('hottest-box').hidden = !pet;
    if (pet) { $('hottest').max = Math.max(4, Math.ceil(2 * pet.window[1])); this.showHottest(); }
    $('mip-box').hidden = !view.projection;
    $('planes').classList.toggle('three', !view.projection);
    drawSide(this, one);
    const first = this.lesions()[0];
    if (first) this.look.cross = fromFile(grid, first.voxel);
    this.refresh(this.latest); // something may have happened while it was loaded
    this.draw();
  }

  close() { this.opening = null; this.volume = null; }

  presets() {
    const names = this.look.base.kind === 'ct' ? PRESETS : {};
    $('preset').replaceChildren(element('option', { value: '', textContent: 'Window …' }), ...Object.keys(names).map((name) => element('option', { value: name, textContent: name })));
    $('preset').hidden = !Object.keys(names).length;
  }

  retable(layer) { this.look.tables[layer.name] = greyTable(layer, this.look.windows[layer.name]); }

  reblend() { this.look.blend = blendTable(this.look.opacity, this.look.base.kind === 'pet'); }

  redraw() { this.look.version++; this.draw(); } // the look has changed

  lesions() {
    return Object.entries(this.volume.view.statistics.labels).flatMap(([name, label]) => label.lesions.map((lesion, i) => ({ ...lesion, name, number: i + 1 })));
  }

  // A case that changed on the server: a new revision brings a new mask and new numbers. What the server said before it had
  // our last edit would take that edit away again, so it does not count.
  async refresh(one) {
    if (one.id === this.opening) this.latest = one;
    if (one.id !== this.volume?.id || this.unsent || one.version < this.known) return;
    if (!one.working && one.version !== this.version) {
      await reloadMask(this.volume);
      if (this.unsent || one.id !== this.volume?.id) return; // edited meanwhile: the answer to that comes
      this.edits = this.volume.view.edits;
      this.version = one.version;
    }
    drawSide(this, one);
    this.draw();
  }

  jump(index) {
    const lesion = this.lesions()[index];
    if (!lesion) return;
    this.chosen = index;
    this.look.cross = fromFile(this.volume.grid, lesion.voxel);
    drawTable(this);
    this.draw();
  }

  // Whatever happens within a frame is painted once, in the next one.
  draw() {
    if (!this.volume || this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => { this.scheduled = null; if (this.volume) this.paint(); });
  }

  paint() {
    for (const plane of this.planes) plane.draw(this.volume, this.look);
    if (!this.brush) this.projection.draw(this.volume, this.look); // it looks through the whole mask: after the stroke is soon enough
    this.readout();
    if (!this.shown) { this.shown = true; performance.mark('shown'); } // for the benchmark
  }

  readout() {
    const { grid, layers, mask, view } = this.volume, { cross } = this.look, step = strides(grid.shape);
    const values = layers.map((l) => { const v = valueAt(l, cross); return `${l.name.toUpperCase()} ${v === null ? '–' : v.toFixed(l.kind === 'ct' ? 0 : 2)} ${l.units}`; });
    const label = view.labels[mask[cross[0] + cross[1] * step[1] + cross[2] * step[2]]], { base, pet, windows } = this.look;
    const width = windows[base.name], wide = `window ${(width[1] - width[0]).toFixed(0)} / level ${((width[1] + width[0]) / 2).toFixed(0)}`;
    $('readout').textContent = [`voxel ${toFile(grid, cross).join(', ')}`, ...values, label ? label.name : 'background', wide, pet ? `PET ${windows[pet.name].map((v) => v.toFixed(1)).join(' to ')}` : ''].filter(Boolean).join('   ·   ');
  }

  // -- edits -----------------------------------------------------------------------------------------------------

  commit(edits) {
    const { volume } = this;
    this.edits = edits;
    this.unsent += 1;
    $('undo').disabled = $('revert').disabled = !edits.length;
    $('saving').textContent = 'measuring …';
    const answered = async (known, message) => {
      if (this.volume !== volume) return; // another case was opened
      this.unsent -= 1;
      if (message) this.version = null; else this.known = known; // a refused edit is taken back
      await this.refresh(this.latest);
      if (message) $('saving').textContent = message;
    };
    this.sending = this.sending.then(() => put(`/api/cases/${volume.id}/edits`, { edits })).then((told) => answered(told.version), (error) => answered(0, error.message));
    this.draw();
  }

  eraseLesion() {
    const { grid, mask } = this.volume, step = strides(grid.shape), at = (p) => mask[p[0] + p[1] * step[1] + p[2] * step[2]];
    const chosen = this.chosen === null ? null : this.lesions()[this.chosen];
    let place = this.look.cross;
    if (!at(place) && chosen) place = fromFile(grid, chosen.voxel);
    if (!at(place)) return;
    const voxel = toFile(grid, place);
    erase(mask, grid.shape, place);
    this.volume.version++;
    this.chosen = null;
    this.commit([...this.edits, { op: 'erase', voxel }]);
  }

  // A second finger came down: the first one meant to zoom, and what it has painted is taken back.
  async dropStroke() {
    if (!this.brush) return;
    this.brush = null;
    await reloadMask(this.volume);
    this.draw();
  }

  undo() { if (this.edits.length) this.commit(this.edits.slice(0, -1)); }
  revert() { if (this.edits.length) this.commit([]); }

  stroke(plane, point) {
    const { grid, mask } = this.volume, { axis, u, v } = plane.plane, place = [...this.look.cross];
    [place[u], place[v]] = plane.voxelAt(grid, ...point);
    if (place[u] < 0 || place[v] < 0 || place[u] >= grid.shape[u] || place[v] >= grid.shape[v]) return;
    place[axis] = this.look.cross[axis];
    const label = this.tool === 'rubber' ? 0 : Number($('label').value), radius = Number($('radius').value);
    if (!this.brush) this.brush = { op: 'brush', label, radius_mm: radius, voxels: [] };
    const voxel = toFile(grid, place), last = this.brush.voxels.at(-1);
    if (last && last.every((n, i) => n === voxel[i])) return;
    this.brush.voxels.push(voxel);
    paint(mask, grid, place, radius, label);
    const reach = grid.spacing.map((s) => Math.floor(radius / s)), { bounds } = this.volume;
    for (let a = 0; a < 3; a++) { bounds.low[a] = Math.max(0, Math.min(bounds.low[a], place[a] - reach[a])); bounds.high[a] = Math.max(bounds.high[a], place[a] + reach[a]); }
    this.volume.version++;
    this.draw();
  }

  // -- mouse, touch and keys -------------------------------------------------------------------------------------

  connect() {
    for (const plane of this.planes) this.connectPlane(plane);
    this.connectProjection();
    $('tools').onclick = (event) => event.target.dataset.tool && this.use(event.target.dataset.tool);
    this.use('cross');
    $('radius').oninput = () => { $('radius-text').textContent = `${$('radius').value} mm`; };
    $('erase').onclick = () => this.eraseLesion();
    $('undo').onclick = () => this.undo();
    $('revert').onclick = () => this.revert();
    $('reset').onclick = () => this.reset();
    $('opacity').oninput = () => { this.look.opacity = Number($('opacity').value); this.reblend(); this.redraw(); };
    $('hottest').oninput = () => this.setWindow(this.look.pet, [0, Number($('hottest').value)]);
    $('turn').onclick = () => this.turn(!this.projection.playing);
    $('mask-on').onchange = () => { this.look.maskOn = $('mask-on').checked; this.redraw(); };
    $('fill').onchange = () => { this.look.fill = $('fill').checked; this.redraw(); };
    $('compare-on').onchange = () => { this.look.compare = $('compare-on').checked; this.redraw(); };
    $('base').onchange = () => { this.look.base = this.volume.layers.find((l) => l.name === $('base').value); this.presets(); this.reblend(); this.redraw(); };
    $('preset').onchange = () => { if (PRESETS[$('preset').value]) this.setWindow(this.look.base, [...PRESETS[$('preset').value]]); };
    $('reference').onchange = async () => {
      const [file] = $('reference').files;
      if (file) await put(`/api/cases/${this.volume.id}/reference/${encodeURIComponent(file.name)}`, file.slice()).catch((error) => { $('saving').textContent = error.message; });
    };
    window.addEventListener('keydown', (event) => this.key(event));
  }

  use(tool) {
    this.tool = tool;
    $('painting').hidden = tool !== 'brush' && tool !== 'rubber';
    for (const button of $('tools').children) { button.classList.toggle('chosen', button.dataset.tool === tool); button.setAttribute('aria-pressed', button.dataset.tool === tool); }
  }

  setWindow(layer, window_) {
    this.look.windows[layer.name] = window_;
    if (layer === this.look.pet) this.showHottest();
    this.retable(layer);
    this.redraw();
  }

  showHottest() { const [, high] = this.look.windows[this.look.pet.name]; $('hottest').value = high; $('hottest-text').textContent = high.toFixed(1); }

  turn(playing) { this.projection.playing = playing; $('turn').textContent = playing ? '❚❚' : '▶'; }

  connectPlane(plane) {
    const { canvas } = plane, fingers = new Map();
    const point = (event) => { const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width; return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio]; };
    canvas.oncontextmenu = (event) => event.preventDefault();
    canvas.onpointerdown = (event) => {
      if (!this.volume) return;
      canvas.setPointerCapture(event.pointerId);
      canvas.focus({ preventScroll: true });
      fingers.set(event.pointerId, point(event));
      plane.doing = fingers.size === 2 ? 'pinch' : event.button === 2 ? 'window' : event.button === 1 ? 'pan' : this.tool;
      plane.rolled = 0;
      if (plane.doing === 'pinch') this.dropStroke();
      else this.drag(plane, event, point(event), [0, 0]);
    };
    canvas.onpointermove = (event) => {
      if (!fingers.has(event.pointerId) || !this.volume) return;
      const now = point(event), before = fingers.get(event.pointerId);
      if (plane.doing === 'pinch' && fingers.size === 2) this.pinch(plane, fingers, event.pointerId, now);
      else this.drag(plane, event, now, [now[0] - before[0], now[1] - before[1]]);
      fingers.set(event.pointerId, now);
    };
    canvas.onpointerup = canvas.onpointercancel = (event) => {
      fingers.delete(event.pointerId);
      if (this.brush) { const done = this.brush; this.brush = null; this.commit([...this.edits, done]); }
    };
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      if (!this.volume) return;
      if (event.ctrlKey) this.zoomAt(plane, point(event), event.deltaY < 0 ? 1.15 : 1 / 1.15);
      else this.scroll(plane, Math.sign(event.deltaY));
    }, { passive: false });
  }

  drag(plane, event, now, moved) {
    const { grid } = this.volume, { u, v } = plane.plane, look = this.look;
    if (plane.doing === 'brush' || plane.doing === 'rubber') this.stroke(plane, now);
    else if (plane.doing === 'pan') { plane.pan = [plane.pan[0] + moved[0] / plane.canvas.width, plane.pan[1] + moved[1] / plane.canvas.height]; this.draw(); }
    else if (plane.doing === 'scroll') this.roll(plane, moved[1]);
    else if (plane.doing === 'window') this.dragWindow(event.shiftKey && look.pet ? look.pet : look.base, moved);
    else {
      const at = plane.voxelAt(grid, ...now);
      look.cross[u] = Math.min(Math.max(at[0], 0), grid.shape[u] - 1);
      look.cross[v] = Math.min(Math.max(at[1], 0), grid.shape[v] - 1);
      this.draw();
    }
  }

  dragWindow(layer, moved) { // to the right: wider; upwards: darker
    const [low, high] = this.look.windows[layer.name], speed = (layer.window[1] - layer.window[0]) / 300;
    const width = Math.max(high - low + moved[0] * speed, (layer.window[1] - layer.window[0]) / 100), level = (low + high) / 2 + moved[1] * speed;
    this.setWindow(layer, layer.kind === 'pet' ? [0, Math.max(0.1, high + moved[0] * speed)] : [level - width / 2, level + width / 2]);
  }

  pinch(plane, fingers, moving, now) {
    const [other] = [...fingers].filter(([id]) => id !== moving).map(([, p]) => p), before = fingers.get(moving), far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    this.zoomAt(plane, [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2], far(now, other) / Math.max(far(before, other), 1));
    plane.pan = [plane.pan[0] + (now[0] - before[0]) / 2 / plane.canvas.width, plane.pan[1] + (now[1] - before[1]) / 2 / plane.canvas.height];
  }

  zoomAt(plane, [x, y], factor) { // what lies under the pointer stays there
    const { width, height } = plane.canvas, before = plane.zoom;
    plane.zoom = Math.min(Math.max(plane.zoom * factor, 0.5), 20);
    const real = plane.zoom / before, centre = [width / 2 + plane.pan[0] * width, height / 2 + plane.pan[1] * height];
    plane.pan = [plane.pan[0] + ((centre[0] - x) * (real - 1)) / width, plane.pan[1] + ((centre[1] - y) * (real - 1)) / height];
    this.draw();
  }

  // The whole height of the plane is all slices, but a slice is never less than two pixels.
  roll(plane, moved) {
    const pixels = Math.max(2, plane.canvas.height / this.volume.grid.shape[plane.plane.axis]), before = Math.trunc(plane.rolled / pixels);
    plane.rolled += moved;
    const by = Math.trunc(plane.rolled / pixels) - before;
    if (by) this.scroll(plane, by);
  }

  scroll(plane, by) {
    const { axis } = plane.plane, size = this.volume.grid.shape[axis];
    this.look.cross[axis] = Math.min(Math.max(this.look.cross[axis] + by, 0), size - 1);
    this.draw();
  }

  reset() {
    for (const plane of this.planes) { plane.zoom = 1; plane.pan = [0, 0]; }
    for (const layer of this.volume.layers) this.setWindow(layer, [...layer.window]);
  }

  connectProjection() {
    const { canvas } = this.projection;
    let held = null;
    canvas.onpointerdown = (event) => { held = event.clientX; this.turn(false); canvas.setPointerCapture(event.pointerId); };
    canvas.onpointermove = (event) => {
      if (held === null || !this.volume) return;
      const { directions } = this.volume.view.projection;
      this.projection.number = (this.projection.number + (event.clientX - held) / 12 + 10 * directions) % directions;
      held = event.clientX;
      this.draw();
    };
    canvas.onpointerup = () => { held = null; };
    setInterval(() => { if (this.projection.playing && this.volume && !document.hidden) { this.projection.number += 1; this.draw(); } }, 110);
  }

  key(event) {
    if (!this.volume || document.querySelector('dialog[open]')) return;
    if (event.target.matches('select, input:not([type="checkbox"])')) return; // their own keys
    const key = event.key.toLowerCase(), tools = { c: 'cross', s: 'scroll', w: 'window', g: 'pan', b: 'brush', e: 'rubber' };
    const plane = this.planes.find((p) => p.canvas === document.activeElement) || this.planes[0];
    const flip = (id) => { $(id).checked = !$(id).checked; $(id).onchange(); };
    const slide = (id, by) => { $(id).value = Number($(id).value) + by; $(id).oninput(); };
    const count = this.lesions().length, go = (by) => count && this.jump(this.chosen === null ? 0 : (this.chosen + by + count) % count);
    if ((event.ctrlKey || event.metaKey) && key === 'z') this.undo();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (tools[key]) this.use(tools[key]);
    else if (key === 'x') this.eraseLesion();
    else if (key === 'u') this.undo();
    else if (key === 'n') go(1);
    else if (key === 'p') go(-1);
    else if (key === 'm') flip('mask-on');
    else if (key === 'f') flip('fill');
    else if (key === 'k' && !$('compare-box').hidden) flip('compare-on');
    else if (key === ',') slide('opacity', -0.1);
    else if (key === '.') slide('opacity', 0.1);
    else if (key === '[' && this.look.pet) slide('hottest', -1);
    else if (key === ']' && this.look.pet) slide('hottest', 1);
    else if (key === '0') this.reset();
    else if (key === 'arrowup' || key === 'pageup') this.scroll(plane, key === 'pageup' ? -10 : -1);
    else if (key === 'arrowdown' || key === 'pagedown') this.scroll(plane, key === 'pagedown' ? 10 : 1);
    else if (key === ' ' && !event.target.matches('button, input')) this.turn(!this.projection.playing);
    else return;
    event.preventDefault();
  }
}

