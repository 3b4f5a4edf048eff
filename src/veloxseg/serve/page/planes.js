// Three linked planes on Canvas 2D: scan in grey, PET in the colours of heat over it, outlines, crosshair, sides.

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

export class PlaneView {
  constructor(name, canvas) {
    this.name = name; this.plane = PLANES[name]; this.canvas = canvas;
    this.context = canvas.getContext('2d', { alpha: false });
    this.small = document.createElement('canvas');
    this.zoom = 1; this.pan = [0, 0];
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

  fit() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.max(1, Math.round(box.width * ratio)), Math.max(1, Math.round(box.height * ratio))];
    if (this.canvas.width !== width || this.canvas.height !== height) { this.canvas.width = width; this.canvas.height = height; }
  }

  draw(volume, look) {
    const { grid } = volume, { axis, u, v } = this.plane, index = look.cross[axis], context = this.context;
    this.fit();
    const width = grid.shape[u], height = grid.shape[v];
    if (this.small.width !== width || this.small.height !== height || !this.image) {
      this.small.width = width; this.small.height = height;
      this.image = this.small.getContext('2d').createImageData(width, height);
      this.under = new Float32Array(width * height); this.over = new Float32Array(width * height);
    }
    this.compose(volume, look, index);
    this.small.getContext('2d').putImageData(this.image, 0, 0);
    const at = this.place(grid);
    context.fillStyle = '#000';
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = 'high';
    context.drawImage(this.small, at.x, at.y, width * at.su, height * at.sv);
    if (look.maskOn) this.outline(volume, look, index, at);
    this.crosshair(look, at);
    this.letters(grid, index);
  }

  compose(volume, look, index) {
    const { grid } = volume, pixels = this.image.data, { base, pet } = look, n = this.under.length;
    readPlane(base, grid, this.plane, index, this.under);
    if (pet && pet !== base) readPlane(pet, grid, this.plane, index, this.over);
    const grey = look.tables[base.name], heat = pet && pet !== base ? look.tables[pet.name] : null, inverted = base.kind === 'pet';
    for (let i = 0, p = 0; i < n; i++, p += 4) {
      let g = this.under[i] < 0 ? 0 : grey[this.under[i]];
      if (inverted) g = 255 - g;
      let r = g, gr = g, b = g;
      if (heat && this.over[i] >= 0) {
        const h = heat[this.over[i] | 0], share = look.opacity * Math.min(1, h / 110);
        r += (HEAT[3 * h] - r) * share; gr += (HEAT[3 * h + 1] - gr) * share; b += (HEAT[3 * h + 2] - b) * share;
      }
      pixels[p] = r; pixels[p + 1] = gr; pixels[p + 2] = b; pixels[p + 3] = 255;
    }
    if (look.maskOn && (look.fill || look.compare)) this.fillMask(volume, look, index);
  }

  fillMask(volume, look, index) {
    const { grid, mask, reference } = volume, { axis, u, v } = this.plane, step = strides(grid.shape), pixels = this.image.data;
    for (let j = 0, p = 0; j < grid.shape[v]; j++) for (let i = 0; i < grid.shape[u]; i++, p += 4) {
      const at = index * step[axis] + j * step[v] + i * step[u], label = mask[at];
      let colour = label ? look.colours[label] : null;
      if (look.compare && reference) {
        const truth = reference[at];
        colour = !label && !truth ? null : label === truth ? VERDICTS.both : label ? VERDICTS.extra : VERDICTS.missed;
      }
      if (colour) for (let k = 0; k < 3; k++) pixels[p + k] += (colour[k] - pixels[p + k]) * 0.45;
    }
  }

  // Lines between voxels of different labels, sharp at any zoom.
  outline(volume, look, index, at) {
    const { grid, mask, reference } = volume;
    this.trace(mask, grid, index, at, look.colours);
    if (look.compare && reference) this.trace(reference, grid, index, at, null);
  }

  trace(mask, grid, index, at, colours) {
    const { axis, u, v } = this.plane, step = strides(grid.shape), [width, height] = [grid.shape[u], grid.shape[v]], lines = new Map();
    const line = (label) => { if (!lines.has(label)) lines.set(label, new Path2D()); return lines.get(label); };
    const read = (i, j) => (i < 0 || j < 0 || i >= width || j >= height ? 0 : mask[index * step[axis] + j * step[v] + i * step[u]]);
    for (let j = 0; j < height; j++) for (let i = 0; i < width; i++) {
      const label = read(i, j);
      if (!label) continue;
      const path = line(label), x = at.x + i * at.su, y = at.y + j * at.sv;
      if (read(i - 1, j) !== label) { path.moveTo(x, y); path.lineTo(x, y + at.sv); }
      if (read(i + 1, j) !== label) { path.moveTo(x + at.su, y); path.lineTo(x + at.su, y + at.sv); }
      if (read(i, j - 1) !== label) { path.moveTo(x, y); path.lineTo(x + at.su, y); }
      if (read(i, j + 1) !== label) { path.moveTo(x, y + at.sv); path.lineTo(x + at.su, y + at.sv); }
    }
    const width_ = Math.max(1.5, (window.devicePixelRatio || 1) * 1.5);
    this.context.setLineDash(colours ? [] : [5, 4]);
    for (const [label, path] of lines) {
      this.context.lineWidth = 2.6 * width_; // a dark rim, so that the line is seen on hot and on cold
      this.context.strokeStyle = 'rgba(0, 0, 0, .55)';
      this.context.stroke(path);
      this.context.lineWidth = width_;
      this.context.strokeStyle = colours ? `rgb(${colours[label] || [255, 255, 255]})` : '#fff';
      this.context.stroke(path);
    }
    this.context.setLineDash([]);
  }

  crosshair(look, at) {
    const { u, v } = this.plane, x = at.x + (look.cross[u] + 0.5) * at.su, y = at.y + (look.cross[v] + 0.5) * at.sv, gap = 14, c = this.context;
    c.strokeStyle = 'rgba(92, 200, 255, .75)'; c.lineWidth = 1;
    c.beginPath();
    c.moveTo(0, y); c.lineTo(x - gap, y); c.moveTo(x + gap, y); c.lineTo(this.canvas.width, y);
    c.moveTo(x, 0); c.lineTo(x, y - gap); c.moveTo(x, y + gap); c.lineTo(x, this.canvas.height);
    c.stroke();
  }

  letters(grid, index) {
    const ratio = window.devicePixelRatio || 1, { width, height } = this.canvas, [left, right, above, below] = this.plane.letters, c = this.context;
    c.font = `600 ${13 * ratio}px system-ui, sans-serif`; c.fillStyle = '#ffd479'; c.textBaseline = 'middle'; c.textAlign = 'center';
    c.shadowColor = '#000'; c.shadowBlur = 3;
    c.fillText(left, 11 * ratio, height / 2); c.fillText(right, width - 11 * ratio, height / 2);
    c.fillText(above, width / 2, 12 * ratio); c.fillText(below, width / 2, height - 12 * ratio);
    c.textAlign = 'left'; c.fillStyle = '#c5d0db'; c.font = `${12 * ratio}px system-ui, sans-serif`;
    c.fillText(`${this.name}  ${index + 1} / ${grid.shape[this.plane.axis]}`, 9 * ratio, 14 * ratio);
    c.shadowBlur = 0;
  }
}
