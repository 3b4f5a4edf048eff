// A case in memory: scans on their own grids, the mask, and how a plane of the mask's grid is read from each of them.
//
// The page's axes run from the patient's right to left (x), front to back (y) and head to feet (z); x is fastest.

import { get, numbers } from '/page/api.js';

export const PLANES = {
  axial: { axis: 2, u: 0, v: 1, letters: ['R', 'L', 'A', 'P'] }, // left, right, above, below
  coronal: { axis: 1, u: 0, v: 2, letters: ['R', 'L', 'S', 'I'] },
  sagittal: { axis: 0, u: 1, v: 2, letters: ['A', 'P', 'S', 'I'] },
};

export async function loadVolume(id) {
  const view = await get(`/api/cases/${id}/view`);
  const path = (name) => `/api/cases/${id}/layers/${name}`;
  const wide = Object.keys(view.labels).some((value) => Number(value) > 255);
  const kind = wide ? Uint16Array : Uint8Array;
  const [mask, projection, reference, ...scans] = await Promise.all([
    numbers(path('mask'), kind),
    view.projection ? numbers(path('projection'), Uint8Array) : null,
    view.reference ? numbers(path('reference'), kind) : null,
    ...view.scans.map((scan) => numbers(path(scan.name), Uint16Array)),
  ]);
  const layers = view.scans.map((scan, index) => ({ ...scan, data: scans[index], tables: tablesFor(scan, view.grid) }));
  const bounds = boundsOf(mask, view.grid.shape);
  return { id, view, grid: view.grid, mask, bounds, projection, reference, layers, kind, version: 0 };
}

export async function reloadMask(volume) {
  const view = await get(`/api/cases/${volume.id}/view`);
  volume.mask = await numbers(`/api/cases/${volume.id}/layers/mask`, volume.kind);
  if (view.reference) volume.reference = await numbers(`/api/cases/${volume.id}/layers/reference`, volume.kind);
  volume.view = view;
  volume.bounds = boundsOf(volume.mask, volume.grid.shape);
  volume.version++;
}

// For each axis: which two voxels of a scan lie around a voxel of the mask's grid, and how near the second one is.
function tablesFor(scan, grid) {
  const same = [0, 1, 2].every((a) => scan.shape[a] === grid.shape[a] && Math.abs(scan.offset[a]) < 1e-3 * grid.spacing[a]
    && Math.abs(scan.spacing[a] - grid.spacing[a]) < 1e-5);
  if (same) return null;
  return [0, 1, 2].map((a) => {
    const low = new Int32Array(grid.shape[a]), share = new Float32Array(grid.shape[a]);
    for (let i = 0; i < grid.shape[a]; i++) {
      const at = (i * grid.spacing[a] - scan.offset[a]) / scan.spacing[a];
      if (at < -0.5 || at > scan.shape[a] - 0.5) { low[i] = -1; continue; } // outside the scan
      const inside = Math.min(Math.max(at, 0), scan.shape[a] - 1);
      low[i] = Math.min(Math.floor(inside), Math.max(scan.shape[a] - 2, 0));
      share[i] = inside - low[i];
    }
    const first = low.findIndex((n) => n >= 0), last = low.findLastIndex((n) => n >= 0); // what lies within, without gaps
    return { low, share, first: first < 0 ? 0 : first, last };
  });
}

export const strides = (shape) => [1, shape[0], shape[0] * shape[1]];

// A scan on one plane of the mask's grid, as the table has each of its numbers; 0 outside the scan.
export function readPlane(layer, grid, plane, index, table, out) {
  const { axis, u, v } = plane, width = grid.shape[u], height = grid.shape[v], step = strides(layer.shape), data = layer.data;
  if (layer.tables) { interpolatePlane(layer, plane, index, width, height, table, out); return; }
  for (let j = 0, at = 0; j < height; j++) {
    for (let i = 0, from = index * step[axis] + j * step[v]; i < width; i++, from += step[u]) out[at++] = table[data[from]];
  }
}

// Linear along the three axes, one after the other: between two slices, then two rows, then two voxels.
function interpolatePlane(layer, { axis, u, v }, index, width, height, table, out) {
  const { shape, data, tables } = layer, step = strides(shape), [tu, tv, ta] = [tables[u], tables[v], tables[axis]];
  const near = ta.low[index], wide = shape[u], tall = shape[v];
  out.fill(0);
  if (near < 0) return;
  if (!layer.slice || layer.slice.length < wide * tall) layer.slice = new Float32Array(wide * tall);
  const { slice } = layer, row = new Float32Array(wide + 1), depth = shape[axis] > 1 ? step[axis] : 0, share = ta.share[index];
  for (let j = 0, at = 0; j < tall; j++) {
    for (let i = 0, p = near * step[axis] + j * step[v]; i < wide; i++, p += step[u]) slice[at++] = data[p] + (data[p + depth] - data[p]) * share;
  }
  for (let j = 0; j < height; j++) {
    if (tv.low[j] < 0) continue;
    const top = tv.low[j] * wide, below = tall > 1 ? top + wide : top, part = tv.share[j];
    for (let i = 0; i < wide; i++) row[i] = slice[top + i] + (slice[below + i] - slice[top + i]) * part;
    row[wide] = row[wide - 1];
    for (let i = tu.first, at = j * width + i; i <= tu.last; i++, at++) {
      const k = tu.low[i];
      out[at] = table[(row[k] + (row[k + 1] - row[k]) * tu.share[i]) | 0];
    }
  }
}

// Calls visit(i) for every labelled voxel; four bytes of background are passed over at once.
export function forEachLabelled(mask, visit) {
  const each = 4 / mask.BYTES_PER_ELEMENT, words = new Uint32Array(mask.buffer, 0, mask.byteLength >> 2);
  for (let w = 0; w < words.length; w++) {
    if (words[w] !== 0) for (let i = w * each; i < (w + 1) * each; i++) if (mask[i]) visit(i);
  }
  for (let i = words.length * each; i < mask.length; i++) if (mask[i]) visit(i);
}

// The box that holds every label: first and last voxel along each axis, nothing if the mask is empty.
export function boundsOf(mask, shape) {
  const low = [Infinity, Infinity, Infinity], high = [-1, -1, -1], plane = shape[0] * shape[1];
  forEachLabelled(mask, (i) => {
    const place = [i % shape[0], Math.floor(i / shape[0]) % shape[1], Math.floor(i / plane)];
    for (let a = 0; a < 3; a++) { if (place[a] < low[a]) low[a] = place[a]; if (place[a] > high[a]) high[a] = place[a]; }
  });
  return { low, high };
}

// The value of a scan at a voxel of the mask's grid, in its own units; null outside.
export function valueAt(layer, place) {
  const step = strides(layer.shape);
  if (!layer.tables) return layer.intercept + layer.slope * layer.data[place[0] + place[1] * step[1] + place[2] * step[2]];
  let sum = 0;
  for (let corner = 0; corner < 8; corner++) {
    let weight = 1, at = 0;
    for (let a = 0; a < 3; a++) {
      const { low, share } = layer.tables[a], i = place[a], high = (corner >> a) & 1;
      if (low[i] < 0) return null;
      weight *= high ? share[i] : 1 - share[i];
      at += Math.min(low[i] + high, layer.shape[a] - 1) * step[a];
    }
    sum += weight * layer.data[at];
  }
  return layer.intercept + layer.slope * sum;
}

// Voxels of the page and of the mask's file are the same voxels, counted along other axes.
export function toFile(grid, place) {
  const voxel = [0, 0, 0];
  for (let a = 0; a < 3; a++) voxel[grid.axes[a]] = grid.flips[a] ? grid.shape[a] - 1 - place[a] : place[a];
  return voxel;
}

export const fromFile = (grid, voxel) => [0, 1, 2].map((a) => (grid.flips[a] ? grid.shape[a] - 1 - voxel[grid.axes[a]] : voxel[grid.axes[a]]));
