// Edits as the page shows them at once; the server applies the same list to the model's mask and measures again.

import { strides } from '/page/volume.js';

// The 18-connected lesion of one label around a voxel becomes background.
export function erase(mask, shape, place) {
  const step = strides(shape), start = place[0] + place[1] * step[1] + place[2] * step[2], value = mask[start];
  if (!value) return 0;
  const stack = [start];
  let count = 0;
  mask[start] = 0;
  while (stack.length) {
    const at = stack.pop(), z = Math.floor(at / step[2]), y = Math.floor((at - z * step[2]) / step[1]), x = at - z * step[2] - y * step[1];
    count++;
    for (let dz = -1; dz <= 1; dz++) for (let dy = -1; dy <= 1; dy++) for (let dx = -1; dx <= 1; dx++) {
      if (Math.abs(dx) + Math.abs(dy) + Math.abs(dz) === 3) continue; // corners do not connect
      const i = x + dx, j = y + dy, k = z + dz;
      if (i < 0 || j < 0 || k < 0 || i >= shape[0] || j >= shape[1] || k >= shape[2]) continue;
      const next = i + j * step[1] + k * step[2];
      if (mask[next] === value) { mask[next] = 0; stack.push(next); }
    }
  }
  return count;
}

// A sphere in millimetres gets a label.
export function paint(mask, grid, place, radius, label) {
  const { shape, spacing } = grid, step = strides(shape), reach = spacing.map((s) => Math.floor(radius / s));
  for (let dz = -reach[2]; dz <= reach[2]; dz++) for (let dy = -reach[1]; dy <= reach[1]; dy++) for (let dx = -reach[0]; dx <= reach[0]; dx++) {
    if ((dx * spacing[0]) ** 2 + (dy * spacing[1]) ** 2 + (dz * spacing[2]) ** 2 > radius * radius) continue;
    const x = place[0] + dx, y = place[1] + dy, z = place[2] + dz;
    if (x < 0 || y < 0 || z < 0 || x >= shape[0] || y >= shape[1] || z >= shape[2]) continue;
    mask[x + y * step[1] + z * step[2]] = label;
  }
}
