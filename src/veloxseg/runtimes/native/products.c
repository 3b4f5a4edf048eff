/* Linear maps and dense convolutions: a tile of voxels times a panel of outputs, kept in registers. */

#include "products.h"

/* rows x vectors of 8 outputs, kept in registers; `keep` of the last vector's outputs are stored */
INLINE void tile(int rows, int vectors, const Product *p, const float *x, const float *w, const float *bias,
                 const float *residual, float *out, N keep) {
    V sum[12][2];
    UNROLL for (int v = 0; v < vectors; v++) {
        V start = bias ? ((const V *)bias)[v] : (V){};
        UNROLL for (int r = 0; r < rows; r++) sum[r][v] = start;
    }
    N segments = p->segments, run = p->run, step = p->sz;
    for (N s = 0; s < segments; s++) {
        const float *from[4]; /* one for 3 rows: an address may have one more register, times 1, 2, 4 or 8 */
        UNROLL for (int q = 0; 3 * q < rows; q++) from[q] = x + p->offsets[s] + 3 * q * step;
        for (N k = 0; k < run; k++, w += 8 * vectors) {
            V first = ((const V *)w)[0], second = vectors > 1 ? ((const V *)w)[1] : first;
            UNROLL for (int r = 0; r < rows; r++) {
                V value = all(from[r / 3][r % 3 * step]);
                sum[r][0] += value * first;
                if (vectors > 1) sum[r][1] += value * second;
            }
            UNROLL for (int q = 0; 3 * q < rows; q++) from[q]++;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) {
        V y = p->activate ? gelu(sum[r][v]) : sum[r][v];
        float *to = out + r * p->oz + 8 * v;
        if (v == vectors - 1 && keep < 8) {
            memcpy(to, &y, keep * sizeof(float));
        } else {
            if (residual) y += p->factor * *(const V *)(residual + r * p->oz + 8 * v);
            *(V *)to = y;
        }
    }
}

#define TILE(rows, vectors) case rows: tile(rows, vectors, p, x, w, bias, residual, out, keep); break;
static void wide(N rows, const Product *p, const float *x, const float *w, const float *bias, const float *residual,
                 float *out, N keep) {
    switch (rows) { TILE(1, 2) TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2) }
}
static void narrow(N rows, const Product *p, const float *x, const float *w, const float *bias,
                   const float *residual, float *out, N keep) {
    switch (rows) {
        TILE(1, 1) TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1)
        TILE(7, 1) TILE(8, 1) TILE(9, 1) TILE(10, 1) TILE(11, 1) TILE(12, 1)
    }
}

void product_line(const Product *p, const float *x, const float *residual, float *out) {
    const float *w = p->weight;
    for (N m = 0; m < p->outputs; m += 16) {
        N left = p->outputs - m, two = left > 8, most = two ? 6 : 12;
        N keep = two ? (left >= 16 ? 8 : left - 8) : left;
        const float *bias = p->bias ? p->bias + m : NULL;
        for (N z = 0; z < p->nz; z += most) {
            N rows = p->nz - z < most ? p->nz - z : most;
            (two ? wide : narrow)(rows, p, x + z * p->sz, w, bias, residual ? residual + z * p->oz + m : NULL,
                                  out + z * p->oz + m, keep);
        }
        w += p->segments * p->run * (two ? 16 : 8);
    }
}

EXPORT void product(const Product *p) {
    for (N x = 0; x < p->nx; x++)
        for (N y = 0; y < p->ny; y++) {
            N place = x * p->ox + y * p->oy;
            product_line(p, p->x + x * p->sx + y * p->sy, p->residual ? p->residual + place : NULL,
                         p->out + place);
        }
}

/* the head: product, then 4 x 4 x 4 outputs of a class become voxels; out is (class, 4 nx, 4 ny, 4 nz) */
EXPORT void head(const Product *p, float *line) {
    N row = 4 * p->nz, plane = 4 * p->ny * row, volume = 4 * p->nx * plane;
    for (N x = 0; x < p->nx; x++)
        for (N y = 0; y < p->ny; y++) {
            product_line(p, p->x + x * p->sx + y * p->sy, NULL, line);
            for (N m = 0; m < p->outputs; m += 4) {
                N label = m / 64, i = m / 16 % 4, j = m / 4 % 4;
                float *to = p->out + label * volume + (4 * x + i) * plane + (4 * y + j) * row;
                for (N z = 0; z < p->nz; z++) memcpy(to + 4 * z, line + z * p->oz + m, 4 * sizeof(float));
            }
        }
}
