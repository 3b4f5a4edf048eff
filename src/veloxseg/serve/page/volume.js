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
  return { id, view, grid: view.grid, mask, projection, reference, layers, kind };
}

export async function reloadMask(volume) {
  const view = await get(`/api/cases/${volume.id}/view`);
  volume.mask = await numbers(`/api/cases/${volume.id}/layers/mask`, volume.kind);
  if (view.reference) volume.reference = await numbers(`/api/cases/${volume.id}/layers/reference`, volume.kind);
  volume.view = view;
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
    return { low, share };
  });
}

export const strides = (shape) => [1, shape[0], shape[0] * shape[1]];

// The stored numbers of a scan on one plane of the mask's grid; -1 outside the scan.
export function readPlane(layer, grid, plane, index, out) {
  const { axis, u, v } = plane, width = grid.shape[u], height = grid.shape[v], step = strides(layer.shape), data = layer.data;
  if (!layer.tables) {
    let at = 0;
    for (let j = 0; j < height; j++) {
      let from = index * step[axis] + j * step[v];
      for (let i = 0; i < width; i++, from += step[u]) out[at++] = data[from];
    }
    return;
  }
  const [tu, tv, ta] = [layer.tables[u], layer.tables[v], layer.tables[axis]];
  const near = ta.low[index], depth = layer.shape[axis] > 1 ? step[axis] : 0, wa = ta.share[index];
  const right = layer.shape[u] > 1 ? step[u] : 0, down = layer.shape[v] > 1 ? step[v] : 0;
  let at = 0;
  for (let j = 0; j < height; j++) {
    const row = tv.low[j], wv = tv.share[j];
    for (let i = 0; i < width; i++, at++) {
      if (near < 0 || row < 0 || tu.low[i] < 0) { out[at] = -1; continue; }
      const p = near * step[axis] + row * step[v] + tu.low[i] * step[u], wu = tu.share[i];
      const top = (data[p] * (1 - wu) + data[p + right] * wu) * (1 - wv) + (data[p + down] * (1 - wu) + data[p + down + right] * wu) * wv;
      if (wa === 0) { out[at] = top; continue; }
      const q = p + depth;
      const low = (data[q] * (1 - wu) + data[q + right] * wu) * (1 - wv) + (data[q + down] * (1 - wu) + data[q + down + right] * wu) * wv;
      out[at] = top * (1 - wa) + low * wa;
    }
  }
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
