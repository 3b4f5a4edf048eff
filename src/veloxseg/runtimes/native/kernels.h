/* Every kernel that a program calls; the files that define them explain their arguments. */

#ifndef VELOXSEG_KERNELS_H
#define VELOXSEG_KERNELS_H

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

typedef struct {
    N modalities, nx, ny, nz; /* the feature */
    N bx, by, bz;             /* big window, in voxels */
    N small_x, small_y, small_z;
} Pair;

void product(const Product *p);
void head(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz, N channels,
          N classes, float *transformed, float *products);
void group(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
           N channels, int width, int size);
void filtered_group(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
                    N channels, int width, int size, float *room);
void statistics(const float *x, N sx, N sy, N nx, N ny, N nz, N channels, float *mean, float *scale);
void normalise(const float *x, N sx, N sy, const float *mean, const float *scale, int activate, const float *other,
               float *out, N ox, N oy, N nx, N ny, N nz, N channels);
void layer_norm(const float *x, float *out, N rows, N channels);
void cells(float *feature, N sx, N sy, float *cell, N nx, N ny, N nz, N channels, int spread);
void place(const float *image, N ic, N ix, N iy, float *out, N oc, N ox, N oy, N channels, N nx, N ny, N nz);
void gather(const Pair *p, const float *x, N width, N first, N count, float *out);
void attention(const float *tokens, N windows, N count, N heads, N dk, N dv, const float *bias, float *scores,
               float *out);
void scatter(const Pair *p, const float *tokens, N channels, float *room, float *out, N width, N first);

#endif
