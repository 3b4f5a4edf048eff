// Three linked planes on Canvas 2D: scan in grey, PET in the colours of heat over it, outlines, crosshair, sides.
//
// A plane has two canvases. The lower one holds the image and the outlines, and is painted when these change; the upper
// one holds crosshair and letters. So a crosshair that moves within a plane costs that plane nothing but two lines.

import { PLANES, readPlane, strides } from '/page/volume.js';

const HEAT = heatColours();
export const VERDICTS = { both: [87, 199, 133], extra: [255, 107, 87], missed: [76, 162, 255] }; // right, too much, missed

function heatColours() { // black, red, orange, yellow, white
  const table = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const t = (3 * i) / 255;
    [Math.min(t, 1), Math.min(Math.max(t - 1, 0), 1), Math.min(Math.max(t - 2, 0), 1)].forEach((c, k) => { table[3 * i + k] = 255 * c; });
  }
  return table;
}

// Stored number -> 0 to 255 between the two ends of a window.
export function greyTable(layer, window) {
  const table = new Uint8Array(65536), width = Math.max(window[1] - window[0], 1e-6);
  for (let i = 0; i < 65536; i++) table[i] = Math.min(Math.max((255 * (layer.intercept + layer.slope * i - window[0])) / width, 0), 255);
  return table;
}

// Heat and grey, eight bits each -> a pixel as the canvas stores it. A pixel is then one look-up, whatever the opacity.
export function blendTable(opacity, inverted) {
  const bytes = new Uint8ClampedArray(4 * 65536);
  for (let heat = 0, p = 0; heat < 256; heat++) {
    const share = opacity * Math.min(1, heat / 110);
    for (let level = 0; level < 256; level++, p += 4) {
      const grey = inverted ? 255 - level : level;
      for (let k = 0; k < 3; k++) bytes[p + k] = grey + (HEAT[3 * heat + k] - grey) * share;
      bytes[p + 3] = 255;
    }
  }
  return new Uint32Array(bytes.buffer);
}

// A canvas over another one, for what moves by itself.
export function overlay(canvas) {
  const made = document.createElement('canvas');
  made.className = 'marks';
  canvas.after(made);
  return made;
}

// Gives a canvas the size that it has on the screen; true if that is another than before.
export function fit(canvas, ...others) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width === width && canvas.height === height) return false;
  for (const one of [canvas, ...others]) { one.width = width; one.height = height; }
  return true;
}

// Edges between row b - 1 and row b of a cut with a rim, for all b; `length` voxels lie along a row, `rows` rows beside each other.
function addRuns(lines, cut, length, rows, along, beside, draw) {
  for (let b = 0; b <= rows; b++) {
    let label = 0, begun = 0, p = (b + 1) * beside + along;
    for (let a = 0; a <= length; a++, p += along) {
      const one = cut[p], other = cut[p - beside], edge = one === other ? 0 : one || other;
      if (edge === label) continue;
      if (label) {
        if (!lines.has(label)) lines.set(label, new Path2D());
        draw(lines.get(label), begun, a, b);
      }
      label = edge; begun = a;
    }
  }
}

export class PlaneView {
  constructor(name, canvas) {
    this.name = name; this.plane = PLANES[name]; this.canvas = canvas;
    this.context = canvas.getContext('2d', { alpha: false });
    this.over = overlay(canvas); this.marks = this.over.getContext('2d');
    this.small = document.createElement('canvas'); this.ink = this.small.getContext('2d');
    this.zoom = 1; this.pan = [0, 0]; this.resized = true;
    new ResizeObserver(() => { this.resized = true; }).observe(canvas);
  }

  // Where the plane lies on the canvas: pixels per voxel and the place of the first voxel's corner.
  place(grid) {
    const { u, v } = this.plane, { width, height } = this.canvas, sizes = [u, v].map((a) => grid.shape[a] * grid.spacing[a]);
    const scale = Math.min(width / sizes[0], height / sizes[1]) * 0.96 * this.zoom;
    return {
      x: width / 2 - (sizes[0] * scale) / 2 + this.pan[0] * width, y: height / 2 - (sizes[1] * scale) / 2 + this.pan[1] * height,
      su: grid.spacing[u] * scale, sv: grid.spacing[v] * scale, scale,
    };
  }

  voxelAt(grid, x, y) { // of a point on the canvas, in voxels of the plane; may lie outside
    const at = this.place(grid);
    return [Math.floor((x - at.x) / at.su), Math.floor((y - at.y) / at.sv)];
  }

  forget() { this.content = this.placed = this.marked = null; }

  // Paints what has changed since the last time. `look.version` and `volume.version` count changes of look and mask.
  draw(volume, look) {
    if (this.resized) { this.resized = false; if (fit(this.canvas, this.over)) this.placed = this.marked = null; }
    const { grid } = volume, index = look.cross[this.plane.axis], at = this.place(grid);
    const content = `${index} ${look.version} ${volume.version}`, placed = `${content} ${at.x} ${at.y} ${at.scale}`, marked = `${placed} ${look.cross}`;
    if (content !== this.content) { this.compose(volume, look, index); this.lines = look.maskOn ? this.outlines(volume, look, index) : []; }
    if (placed !== this.placed) this.paint(grid, at);
    if (marked !== this.marked) this.mark(grid, look, index, at);
    Object.assign(this, { content, placed, marked });
  }

  compose(volume, look, index) {
    const { grid } = volume, { u, v } = this.plane, width = grid.shape[u], height = grid.shape[v], { base, pet } = look;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.small.width = width; this.small.height = height;
      this.image = this.ink.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.grey = new Uint8Array(width * height); this.heat = new Uint8Array(width * height);
    }
    const { pixels, grey, heat } = this, { blend } = look, hot = pet && pet !== base;
    readPlane(base, grid, this.plane, index, look.tables[base.name], grey);
    if (hot) {
      readPlane(pet, grid, this.plane, index, look.tables[pet.name], heat);
      for (let i = 0; i < pixels.length; i++) pixels[i] = blend[(heat[i] << 8) | grey[i]];
    } else for (let i = 0; i < pixels.length; i++) pixels[i] = blend[grey[i]];
    if (look.maskOn && (look.fill || look.compare)) this.fillMask(volume, look, index);
    this.ink.putImageData(this.image, 0, 0);
  }

  // Where the plane can hold a label: first and last voxel along u and v, or null.
  box({ grid, bounds }, index) {
    const { axis, u, v } = this.plane, { low, high } = bounds;
    if (index < low[axis] || index > high[axis]) return null;
    return { left: low[u], right: Math.min(high[u], grid.shape[u] - 1), top: low[v], bottom: Math.min(high[v], grid.shape[v] - 1) };
  }

  fillMask(volume, look, index) {
    const { grid, mask, reference } = volume, { axis, u, v } = this.plane, step = strides(grid.shape), pixels = this.image.data;
    const compared = look.compare && reference, box = compared ? { left: 0, right: grid.shape[u] - 1, top: 0, bottom: grid.shape[v] - 1 } : this.box(volume, index);
    if (!box) return;
    for (let j = box.top; j <= box.bottom; j++) for (let i = box.left; i <= box.right; i++) {
      const at = index * step[axis] + j * step[v] + i * step[u], label = mask[at], truth = compared ? reference[at] : 0;
      if (!label && !truth) continue;
      const colour = !compared ? look.colours[label] : label === truth ? VERDICTS.both : label ? VERDICTS.extra : VERDICTS.missed;
      const p = 4 * (j * grid.shape[u] + i);
      if (colour) for (let k = 0; k < 3; k++) pixels[p + k] += (colour[k] - pixels[p + k]) * 0.45;
    }
  }

  // Lines between voxels of different labels, in voxels, with their colour; the reference's is white and broken.
  outlines(volume, look, index) {
    const { mask, reference } = volume, whole = { left: 0, right: volume.grid.shape[this.plane.u] - 1, top: 0, bottom: volume.grid.shape[this.plane.v] - 1 };
    const own = this.box(volume, index), found = own ? this.trace(mask, volume.grid, index, own) : new Map();
    const lines = [...found].map(([label, path]) => ({ path, colour: `rgb(${look.colours[label] || [255, 255, 255]})`, dash: [] }));
    if (look.compare && reference) for (const [, path] of this.trace(reference, volume.grid, index, whole)) lines.push({ path, colour: '#fff', dash: [5, 4] });
    return lines;
  }

  // Runs of edges are one line each: a browser without a GPU takes its time over every piece of a path.
  trace(mask, grid, index, box) {
    const { axis, u, v } = this.plane, step = strides(grid.shape), from = index * step[axis], lines = new Map();
    const across = box.right - box.left + 1, down = box.bottom - box.top + 1, cut = new Uint16Array((across + 2) * (down + 2)); // with a rim of background
    for (let j = 0; j < down; j++) {
      for (let i = 0, p = from + (box.top + j) * step[v] + box.left * step[u], at = (j + 1) * (across + 2) + 1; i < across; i++, p += step[u]) cut[at++] = mask[p];
    }
    addRuns(lines, cut, across, down, 1, across + 2, (path, a, b, row) => { path.moveTo(box.left + a, box.top + row); path.lineTo(box.left + b, box.top + row); });
    addRuns(lines, cut, down, across, across + 2, 1, (path, a, b, column) => { path.moveTo(box.left + column, box.top + a); path.lineTo(box.left + column, box.top + b); });
    return lines;
  }

  paint(grid, at) {
    const { context } = this, { u, v } = this.plane;
    context.fillStyle = '#000';
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = 'low'; // bilinear: the finer ones take several frames without a GPU
    context.drawImage(this.small, at.x, at.y, grid.shape[u] * at.su, grid.shape[v] * at.sv);
    const width = Math.max(1.5, (window.devicePixelRatio || 1) * 1.5);
    for (const { path, colour, dash } of this.lines) {
      const placed = new Path2D();
      placed.addPath(path, new DOMMatrix([at.su, 0, 0, at.sv, at.x, at.y]));
      context.setLineDash(dash);
      context.lineWidth = 2.6 * width; // a dark rim, so that the line is seen on hot and on cold
      context.strokeStyle = 'rgba(0, 0, 0, .55)';
      context.stroke(placed);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke(placed);
    }
    context.setLineDash([]);
  }

  // The longest of these lengths that takes less than a quarter of the width.
  ruler(scale, ratio, say) {
    const c = this.marks, { width, height } = this.canvas, mm = [200, 100, 50, 20, 10, 5, 2, 1].find((n) => n * scale < width / 4) || 1;
    const right = width - 10 * ratio, left = right - mm * scale, y = height - 9 * ratio;
    for (const [style, thick] of [['rgba(0, 0, 0, .8)', 4], ['#c5d0db', 1.5]]) {
      c.strokeStyle = style; c.lineWidth = thick * ratio;
      c.beginPath(); c.moveTo(left, y - 4 * ratio); c.lineTo(left, y); c.lineTo(right, y); c.lineTo(right, y - 4 * ratio); c.stroke();
    }
    c.strokeStyle = 'rgba(0, 0, 0, .8)'; c.lineWidth = 3 * ratio; c.textAlign = 'center';
    say(`${mm} mm`, (left + right) / 2, y - 9 * ratio);
  }

  mark(grid, look, index, at) {
    const { u, v } = this.plane, x = Math.round(at.x + (look.cross[u] + 0.5) * at.su) + 0.5, y = Math.round(at.y + (look.cross[v] + 0.5) * at.sv) + 0.5, gap = 14;
    const c = this.marks, { width, height } = this.canvas, ratio = window.devicePixelRatio || 1, [left, right, above, below] = this.plane.letters;
    c.clearRect(0, 0, width, height);
    c.strokeStyle = 'rgba(92, 200, 255, .75)'; c.lineWidth = 1;
    c.beginPath();
    c.moveTo(0, y); c.lineTo(x - gap, y); c.moveTo(x + gap, y); c.lineTo(width, y);
    c.moveTo(x, 0); c.lineTo(x, y - gap); c.moveTo(x, y + gap); c.lineTo(x, height);
    c.stroke();
    const say = (text, px, py) => { c.strokeText(text, px, py); c.fillText(text, px, py); };
    c.lineJoin = 'round'; c.strokeStyle = 'rgba(0, 0, 0, .8)'; c.lineWidth = 3 * ratio;
    c.font = `600 ${13 * ratio}px system-ui, sans-serif`; c.fillStyle = '#ffd479'; c.textBaseline = 'middle'; c.textAlign = 'center';
    say(left, 11 * ratio, height / 2); say(right, width - 11 * ratio, height / 2);
    say(above, width / 2, 12 * ratio); say(below, width / 2, height - 12 * ratio);
    c.textAlign = 'left'; c.fillStyle = '#c5d0db'; c.font = `${12 * ratio}px system-ui, sans-serif`;
    say(`${this.name}  ${index + 1} / ${grid.shape[this.plane.axis]}`, 9 * ratio, 14 * ratio);
    this.ruler(at.scale, ratio, say);
  }
}
