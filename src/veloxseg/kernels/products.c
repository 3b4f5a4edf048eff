/* Small matrix products: a tile of rows and vectors is kept in registers. */

#include "training.h"

INLINE void tile(int rows, int vectors, N depth, const float *a, N step, N stride, const float *b, N b_row, float *out,
                 N out_row, int add) {
    V sum[SUMS][VECTORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        sum[r][v] = add ? *(const V *)(out + r * out_row + LANES * v) : (V){};
    for (N k = 0; k < depth; k++, a += stride, b += b_row) {
        V factor[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) factor[v] = *(const V *)(b + LANES * v);
        UNROLL for (int r = 0; r < rows; r++) {
            V value = all(a[r * step]);
            UNROLL for (int v = 0; v < vectors; v++) sum[r][v] += value * factor[v];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        *(V *)(out + r * out_row + LANES * v) = sum[r][v];
}

#define ROWS(count, vectors) \
    for (; i + count <= rows; i += count) \
        tile(count, vectors, depth, a + i * step, step, stride, b + n, b_row, out + i * out_row + n, out_row, add);

void multiply(N rows, N depth, N columns, const float *a, N step, N stride, const float *b, N b_row, float *out,
              N out_row, int add) {
    N n = 0;
    for (; n + 2 * LANES <= columns; n += 2 * LANES) {
        N i = 0;
        if (SUMS >= 24) { ROWS(12, 2) }
        if (SUMS >= 16) { ROWS(8, 2) }
        ROWS(6, 2) ROWS(4, 2) ROWS(1, 2)
    }
    for (; n < columns; n += LANES) {
        N i = 0;
        if (SUMS >= 24) { ROWS(24, 1) }
        if (SUMS >= 16) { ROWS(16, 1) }
        ROWS(12, 1) ROWS(8, 1) ROWS(4, 1) ROWS(1, 1)
    }
}
