// The PET from all sides: projections that the server made, with the lesions of the present mask over them.

import { fit, overlay } from '/page/planes.js';
import { forEachLabelled } from '/page/volume.js';

const MOST_POINTS = 40000; // of the mask; more are not seen

export class ProjectionView {
  constructor(canvas) {
    this.canvas = canvas; this.context = canvas.getContext('2d', { alpha: false });
    this.over = overlay(canvas); this.marks = this.over.getContext('2d');
    this.small = document.createElement('canvas'); this.number = 0; this.playing = false; this.resized = true;
    new ResizeObserver(() => { this.resized = true; }).observe(canvas);
  }

  // The voxels of the mask, thinned if they are very many: the lesions as a cloud of points.
  gather(volume) {
    const { shape, spacing } = volume.grid, points = [];
    let total = 0, seen = 0;
    forEachLabelled(volume.mask, () => { total++; });
    const every = Math.max(1, Math.floor(total / MOST_POINTS));
    forEachLabelled(volume.mask, (i) => {
      if (seen++ % every) return;
      const z = Math.floor(i / (shape[0] * shape[1])), y = Math.floor(i / shape[0]) % shape[1], x = i % shape[0];
      points.push(x * spacing[0], y * spacing[1], z * spacing[2], volume.mask[i]);
    });
    this.points = points;
    this.pointsOf = volume.version;
  }

  forget() { this.content = this.placed = this.marked = this.pointsOf = null; }

  // Paints what has changed since the last time, as the planes do.
  draw(volume, look) {
    const facts = volume.view.projection;
    if (!facts) return;
    if (this.resized) { this.resized = false; if (fit(this.canvas, this.over)) this.placed = this.marked = null; }
    const number = Math.floor(this.number) % facts.directions, content = `${number} ${look.version} ${volume.version}`;
    const placed = `${content} ${this.canvas.width} ${this.canvas.height}`, marked = `${placed} ${look.cross[2]}`;
    if (content !== this.content) this.compose(volume, look, facts, number);
    if (placed !== this.placed) this.paint(facts);
    if (marked !== this.marked) this.mark(volume, look, facts, number);
    Object.assign(this, { content, placed, marked });
  }

  compose(volume, look, facts, number) {
    const [width, height] = facts.shape, [low, high] = look.windows[look.pet.name];
    if (this.pointsOf !== volume.version) this.gather(volume);
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.small.width = width; this.small.height = height;
      this.image = this.small.getContext('2d').createImageData(width, height);
    }
    const table = new Uint32Array(256), pixels = new Uint32Array(this.image.data.buffer), from = number * width * height;
    for (let i = 0; i < 256; i++) {
      const grey = Math.round(255 - Math.min(Math.max((255 * ((i * facts.highest) / 255 - low)) / (high - low), 0), 255)); // hot is dark
      table[i] = (255 << 24) | (grey << 16) | (grey << 8) | grey;
    }
    for (let i = 0; i < pixels.length; i++) pixels[i] = table[volume.projection[from + i]];
    if (look.maskOn) this.lesions(facts, look, number, this.image.data, width, height);
    this.small.getContext('2d').putImageData(this.image, 0, 0);
  }

  lesions(facts, look, number, pixels, width, height) {
    const angle = (2 * Math.PI * number) / facts.directions, cos = Math.cos(angle), sin = Math.sin(angle), points = this.points;
    const painted = new Uint16Array(width * height);
    for (let i = 0; i < points.length; i += 4) {
      const across = Math.round(((points[i] - facts.centre[0]) * cos + (points[i + 1] - facts.centre[1]) * sin) / facts.spacing[0] + (width - 1) / 2);
      const down = Math.round((points[i + 2] - facts.top) / facts.spacing[1]);
      if (across >= 0 && down >= 0 && across < width && down < height) painted[down * width + across] = points[i + 3];
    }
    for (let i = 0; i < painted.length; i++) {
      const colour = painted[i] ? look.colours[painted[i]] : null;
      if (colour) for (let k = 0; k < 3; k++) pixels[4 * i + k] += (colour[k] - pixels[4 * i + k]) * 0.55;
    }
  }

  paint(facts) {
    const c = this.context, [width, height] = facts.shape, wide = width * facts.spacing[0], tall = height * facts.spacing[1];
    const scale = Math.min(this.canvas.width / wide, this.canvas.height / tall) * 0.96;
    this.at = { x: (this.canvas.width - wide * scale) / 2, y: (this.canvas.height - tall * scale) / 2, scale };
    c.fillStyle = '#fff'; c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.imageSmoothingEnabled = true; c.imageSmoothingQuality = 'low';
    c.drawImage(this.small, this.at.x, this.at.y, wide * scale, tall * scale);
  }

  mark(volume, look, facts, number) {
    const c = this.marks, turn = (360 * number) / facts.directions, ratio = window.devicePixelRatio || 1, { width, height } = this.canvas;
    const y = Math.round(this.at.y + (look.cross[2] * volume.grid.spacing[2] - facts.top + facts.spacing[1] / 2) * this.at.scale) + 0.5;
    c.clearRect(0, 0, width, height);
    c.strokeStyle = 'rgba(9, 105, 184, .55)'; c.lineWidth = 1; c.beginPath(); c.moveTo(0, y); c.lineTo(width, y); c.stroke();
    c.font = `600 ${13 * ratio}px system-ui, sans-serif`; c.fillStyle = '#7a5200'; c.textBaseline = 'middle'; c.textAlign = 'center';
    const sides = ['R', 'A', 'L', 'P'], quarter = Math.round(turn / 90) % 4; // what is seen at the left after a turn
    if (Math.abs(turn / 90 - Math.round(turn / 90)) < 0.01) {
      c.fillText(sides[quarter], 11 * ratio, height / 2); c.fillText(sides[(quarter + 2) % 4], width - 11 * ratio, height / 2);
    }
    c.textAlign = 'left'; c.font = `${12 * ratio}px system-ui, sans-serif`; c.fillStyle = '#334155';
    c.fillText(`PET projection  ${turn.toFixed(0)}°`, 9 * ratio, 14 * ratio);
  }
}
