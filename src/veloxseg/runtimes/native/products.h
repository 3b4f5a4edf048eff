/* Linear maps and dense convolutions. */

#ifndef VELOXSEG_PRODUCTS_H
#define VELOXSEG_PRODUCTS_H

#include "vectors.h"

/* out[v, m] = act(bias[m] + sum over s, k of x[start(v) + offset[s] + k] w[s, k, m]) + factor * residual[v, m]

   A voxel's inputs are `segments` runs of `run` floats: one for a linear map, one per (x, y) of the kernel for a
   convolution. Weights come in panels of PANEL outputs, each (segment, run, PANEL); the last panel has as many whole
   vectors as its outputs need. */
typedef struct {
    const float *x, *weight, *bias, *residual;
    float *out;
    const N *offsets;
    N segments, run, outputs;
    N nx, ny, nz;       /* output voxels */
    N sx, sy, sz;       /* steps of the input, in floats, from one output voxel to the next */
    N ox, oy, oz;       /* steps of the output and of the residual */
    float factor;
    int activate;
} Product;

/* all voxels, and those of one line */
void product(const Product *p);
void product_line(const Product *p, const float *x, const float *residual, float *out);

#endif
