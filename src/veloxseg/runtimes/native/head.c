/* The head: a dense convolution of size 3 whose 64 outputs per class are 4 x 4 x 4 voxels.

   Minimal filtering along y and z: 2 x 2 outputs take 4 x 4 products of transformed inputs and weights in place of 36,
   out = A' [(G w G') . (B' d B)] A  (Winograd's F(2, 3) on each axis; program.py has G). Sums, and halves in G, are all
   that the transforms need, so that the result is as exact as that of the plain sum. */

#include "kernels.h"

#define POINTS 16 /* 4 x 4 */
#define CUBE 64
#define BLOCK 4 /* planes along x for which the weights of a point stay in the first cache */

/* B' d of 4 numbers */
INLINE void forward(const V *d, N step, V *to, N to_step) {
    to[0] = d[0] - d[2 * step];
    to[to_step] = d[step] + d[2 * step];
    to[2 * to_step] = d[2 * step] - d[step];
    to[3 * to_step] = d[step] - d[3 * step];
}

/* 4 lines of voxels along y → (point, nz / 2, channels) */
static void transform(const float *x, N sy, N nz, N channels, float *out) {
    N tiles = nz / 2;
    for (N z = 0; z < tiles; z++, x += 2 * channels, out += channels)
        for (N c = 0; c < channels; c += LANES) {
            N keep = channels - c < LANES ? channels - c : LANES;
            V in[POINTS], half[POINTS], done[POINTS];
            UNROLL for (int i = 0; i < POINTS; i++) in[i] = load(x + i / 4 * sy + i % 4 * channels + c, keep);
            UNROLL for (int i = 0; i < 4; i++) forward(in + i, 4, half + i, 4);
            UNROLL for (int i = 0; i < 4; i++) forward(half + 4 * i, 1, done + 4 * i, 1);
            UNROLL for (int i = 0; i < POINTS; i++) store(out + i * tiles * channels + c, done[i], keep);
        }
}

/* (point, nz / 2, 64) → 2 x 4 lines along y in 4 planes along x; out is the first of them */
static void restore(const float *products, const float *bias, N nz, float *out, N plane, N row) {
    N tiles = nz / 2;
    for (N z = 0; z < tiles; z++, products += CUBE, out += 8)
        for (N m = 0; m < CUBE; m += LANES) {
            V start = *(const V *)(bias + m), half[2][4], cell[2][2];
            UNROLL for (int i = 0; i < 4; i++) {
                V in[4];
                UNROLL for (int j = 0; j < 4; j++) in[j] = *(const V *)(products + (4 * j + i) * tiles * CUBE + m);
                half[0][i] = in[0] + in[1] + in[2];
                half[1][i] = in[1] - in[2] - in[3];
            }
            UNROLL for (int y = 0; y < 2; y++) {
                cell[y][0] = half[y][0] + half[y][1] + half[y][2] + start;
                cell[y][1] = half[y][1] - half[y][2] - half[y][3] + start;
                UNROLL for (int quad = 0; quad < LANES; quad += 4) {
                    N i = (m + quad) / 16, j = (m + quad) / 4 % 4;
                    float *to = out + i * plane + (4 * y + j) * row;
                    memcpy(to, (const float *)&cell[y][0] + quad, 4 * sizeof(float));
                    memcpy(to + 4, (const float *)&cell[y][1] + quad, 4 * sizeof(float));
                }
            }
        }
}

/* x: the first tap of the first voxel, in a feature with borders; ny and nz are even.
   weight: (class, point, panel, kx, c, lane), bias: (class, 64), out: (class, 4 nx, 4 ny, 4 nz);
   transformed: room for (nx + 2, point, nz / 2, channels), products: for (BLOCK, point, nz / 2, 64) */
void head(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz, N channels,
          N classes, float *transformed, float *products) {
    N row = 4 * nz, plane = 4 * ny * row, line = nz / 2 * channels, step = POINTS * line, cells = nz / 2 * CUBE;
    N offsets[3] = {0, step, 2 * step};
    for (N y = 0; y < ny; y += 2) {
        for (N i = 0; i < nx + 2; i++) transform(x + i * sx + y * sy, sy, nz, channels, transformed + i * step);
        for (N label = 0; label < classes; label++)
            for (N i = 0; i < nx; i += BLOCK) {
                N planes = nx - i < BLOCK ? nx - i : BLOCK;
                for (N t = 0; t < POINTS; t++) {
                    Product p = {.x = transformed + i * step + t * line, .out = products + t * cells,
                                 .weight = weight + (label * POINTS + t) * 3 * channels * CUBE, .offsets = offsets,
                                 .segments = 3, .run = channels, .outputs = CUBE, .nx = planes, .ny = 1,
                                 .nz = nz / 2, .sx = step, .sz = channels, .ox = POINTS * cells, .oz = CUBE};
                    product(&p);
                }
                for (N k = 0; k < planes; k++)
                    restore(products + k * POINTS * cells, bias + label * CUBE, nz,
                            out + (label * nx + i + k) * 4 * plane + 4 * y * row, plane, row);
            }
    }
}
