/* Linear maps and dense convolutions: a tile of voxels times a panel of outputs, kept in registers. */

#include "kernels.h"

#define MOST_ROWS(vectors) (SUMS / (vectors))

/* rows x vectors of outputs, kept in registers; `keep` of the last vector's outputs are stored */
INLINE void tile(int rows, int vectors, const Product *p, const float *x, const float *w, const float *bias,
                 const float *residual, float *out, N keep) {
    V sum[SUMS][VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
        V start = bias ? ((const V *)bias)[v] : (V){};
        UNROLL for (int r = 0; r < rows; r++) sum[r][v] = start;
    }
    N segments = p->segments, run = p->run, step = p->sz;
    for (N s = 0; s < segments; s++) {
        const float *from[SUMS / 3]; /* one for 3 rows: an address may have one more register, times 1, 2, 4 or 8 */
        UNROLL for (int q = 0; 3 * q < rows; q++) from[q] = x + p->offsets[s] + 3 * q * step;
        for (N k = 0; k < run; k++, w += LANES * vectors) {
            V weight[VECTORS];
            UNROLL for (int v = 0; v < vectors; v++) weight[v] = ((const V *)w)[v];
            UNROLL for (int r = 0; r < rows; r++) {
                V value = all(from[r / 3][r % 3 * step]);
                UNROLL for (int v = 0; v < vectors; v++) sum[r][v] += value * weight[v];
            }
            UNROLL for (int q = 0; 3 * q < rows; q++) from[q]++;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) {
        N at = r * p->oz + LANES * v, whole = v < vectors - 1 ? LANES : keep;
        V y = p->activate ? gelu(sum[r][v]) : sum[r][v];
        if (residual) y += p->factor * load(residual + at, whole);
        store(out + at, y, whole);
    }
}

/* as many rows as there are, up to those that fit the registers */
#define TILE(rows, vectors) \
    case rows: if (rows <= MOST_ROWS(vectors)) tile(rows, vectors, p, x, w, bias, residual, out, keep); break;
#define SIX(first, vectors) \
    TILE(first, vectors) TILE(first + 1, vectors) TILE(first + 2, vectors) \
    TILE(first + 3, vectors) TILE(first + 4, vectors) TILE(first + 5, vectors)
#define TILES(name, vectors) \
    static void name(N rows, const Product *p, const float *x, const float *w, const float *bias, \
                     const float *residual, float *out, N keep) { \
        switch (rows) { SIX(1, vectors) SIX(7, vectors) SIX(13, vectors) SIX(19, vectors) } \
    }
TILES(tiles_1, 1)
TILES(tiles_2, 2)
#if VECTORS == 4
TILES(tiles_3, 3)
TILES(tiles_4, 4)
#else
#define tiles_3 NULL
#define tiles_4 NULL
#endif

static void product_line(const Product *p, const float *x, const float *residual, float *out) {
    void (*const tiles[])(N, const Product *, const float *, const float *, const float *, const float *, float *, N)
        = {NULL, tiles_1, tiles_2, tiles_3, tiles_4};
    const float *w = p->weight;
    for (N m = 0; m < p->outputs; m += PANEL) {
        N left = p->outputs - m < PANEL ? p->outputs - m : PANEL;
        N vectors = (left + LANES - 1) / LANES, keep = left - (vectors - 1) * LANES, most = MOST_ROWS(vectors);
        const float *bias = p->bias ? p->bias + m : NULL;
        for (N z = 0; z < p->nz; z += most) {
            N rows = p->nz - z < most ? p->nz - z : most;
            tiles[vectors](rows, p, x + z * p->sz, w, bias, residual ? residual + z * p->oz + m : NULL,
                           out + z * p->oz + m, keep);
        }
        w += p->segments * p->run * vectors * LANES;
    }
}

void product(const Product *p) {
    for (N x = 0; x < p->nx; x++)
        for (N y = 0; y < p->ny; y++) {
            N place = x * p->ox + y * p->oy;
            product_line(p, p->x + x * p->sx + y * p->sy, p->residual ? p->residual + place : NULL,
                         p->out + place);
        }
}
