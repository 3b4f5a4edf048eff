// The PET from all sides: projections that the server made, with the lesions of the present mask over them.

export class ProjectionView {
  constructor(canvas) {
    this.canvas = canvas; this.context = canvas.getContext('2d', { alpha: false });
    this.small = document.createElement('canvas'); this.number = 0; this.playing = false; this.points = null;
  }

  // The voxels of the mask, thinned if they are very many: the lesions as a cloud of points.
  gather(volume) {
    const { shape, spacing } = volume.grid, points = [];
    let total = 0;
    for (let i = 0; i < volume.mask.length; i++) if (volume.mask[i]) total++;
    const every = Math.max(1, Math.floor(total / 40000));
    for (let i = 0, seen = 0; i < volume.mask.length; i++) {
      if (!volume.mask[i] || seen++ % every) continue;
      const z = Math.floor(i / (shape[0] * shape[1])), y = Math.floor(i / shape[0]) % shape[1], x = i % shape[0];
      points.push(x * spacing[0], y * spacing[1], z * spacing[2], volume.mask[i]);
    }
    this.points = points;
  }

  draw(volume, look) {
    const facts = volume.view.projection, c = this.context, ratio = window.devicePixelRatio || 1;
    if (!facts) return;
    const box = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(1, Math.round(box.width * ratio)); this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    if (!this.points) this.gather(volume);
    const [width, height] = facts.shape, number = Math.floor(this.number) % facts.directions;
    this.small.width = width; this.small.height = height;
    const drawing = this.small.getContext('2d'), image = drawing.createImageData(width, height), pixels = image.data;
    const window_ = look.windows[look.pet.name], from = number * width * height, scale = facts.highest / 255;
    for (let i = 0, p = 0; i < width * height; i++, p += 4) {
      const suv = volume.projection[from + i] * scale;
      const grey = 255 - Math.min(Math.max((255 * (suv - window_[0])) / (window_[1] - window_[0]), 0), 255); // hot is dark
      pixels[p] = pixels[p + 1] = pixels[p + 2] = grey; pixels[p + 3] = 255;
    }
    if (look.maskOn) this.lesions(facts, look, number, pixels, width, height);
    drawing.putImageData(image, 0, 0);
    c.fillStyle = '#fff'; c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const wide = width * facts.spacing[0], tall = height * facts.spacing[1];
    const fit = Math.min(this.canvas.width / wide, this.canvas.height / tall) * 0.96;
    this.at = { x: (this.canvas.width - wide * fit) / 2, y: (this.canvas.height - tall * fit) / 2, fit };
    c.imageSmoothingEnabled = true; c.imageSmoothingQuality = 'high';
    c.drawImage(this.small, this.at.x, this.at.y, wide * fit, tall * fit);
    this.marks(volume, look, facts, number, ratio);
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

  marks(volume, look, facts, number, ratio) {
    const c = this.context, turn = (360 * number) / facts.directions;
    const y = this.at.y + (look.cross[2] * volume.grid.spacing[2] - facts.top + facts.spacing[1] / 2) * this.at.fit;
    c.strokeStyle = 'rgba(9, 105, 184, .55)'; c.lineWidth = 1; c.beginPath(); c.moveTo(0, y); c.lineTo(this.canvas.width, y); c.stroke();
    c.font = `600 ${13 * ratio}px system-ui, sans-serif`; c.fillStyle = '#7a5200'; c.textBaseline = 'middle'; c.textAlign = 'center';
    const sides = ['R', 'A', 'L', 'P'], quarter = Math.round(turn / 90) % 4; // what is seen at the left after a turn
    if (Math.abs(turn / 90 - Math.round(turn / 90)) < 0.01) {
      c.fillText(sides[quarter], 11 * ratio, this.canvas.height / 2); c.fillText(sides[(quarter + 2) % 4], this.canvas.width - 11 * ratio, this.canvas.height / 2);
    }
    c.textAlign = 'left'; c.font = `${12 * ratio}px system-ui, sans-serif`; c.fillStyle = '#334155';
    c.fillText(`PET projection  ${turn.toFixed(0)}°`, 9 * ratio, 14 * ratio);
  }
}
