/* The loss of two classes, from the difference d of their logits; losses.py has the formulas. Labels t are bytes.

   Voxels are summed by runs in floats, and the runs in doubles. */

#include "training.h"

#define RUN 4096

typedef uint8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE V label_vector(const uint8_t *t, N count) {
    Bytes bytes = {};
    if (count >= LANES) bytes = *(const Bytes *)t;
    else memcpy(&bytes, t, count);
    return __builtin_convertvector(bytes, V);
}

INLINE V sigmoid(V small, V d) { /* small: e^-|d| */
    V high = 1 / (1 + small);
    VI positive = d >= 0;
    return (V)((positive & (VI)high) | (~positive & (VI)(small * high)));
}

INLINE V magnitude(V d) { return larger(d, -d); }

/* log(1 + u) for 0 <= u <= 1: twice the inverse hyperbolic tangent of u / (2 + u), by its series */
INLINE V log_one_plus(V u) {
    V s = u / (2 + u), w = s * s, sum = all(1.0f / 15);
    sum = sum * w + 1.0f / 13;
    sum = sum * w + 1.0f / 11;
    sum = sum * w + 1.0f / 9;
    sum = sum * w + 1.0f / 7;
    sum = sum * w + 1.0f / 5;
    sum = sum * w + 1.0f / 3;
    return 2 * s * (sum * w + 1);
}

/* sums: of log(1 + e^d) - d t, of p, of t, of p t */
EXPORT void two_class_sums(const float *d, const uint8_t *t, N voxels, double *sums) {
    memset(sums, 0, 4 * sizeof(double));
    for (N start = 0; start < voxels; start += RUN) {
        N stop = start + RUN < voxels ? start + RUN : voxels;
        V sum[4] = {};
        for (N i = start; i < stop; i += LANES) {
            N count = stop - i;
            V x = load(d + i, count), label = label_vector(t + i, count);
            V small = exponential(-magnitude(x)), p = sigmoid(small, x);
            V entropy = larger(x, (V){}) + log_one_plus(small) - x * label;
            sum[0] += only(entropy, count), sum[1] += only(p, count), sum[2] += label, sum[3] += p * label;
        }
        for (int s = 0; s < 4; s++) sums[s] += sum_of(sum[s]);
    }
}

/* out = entropy (p - t) + (both - 2 t once) (p - p^2) */
EXPORT void two_class_gradient(const float *d, const uint8_t *t, N voxels, float entropy, float both, float once,
                               float *out) {
    for (N i = 0; i < voxels; i += LANES) {
        N count = voxels - i;
        V x = load(d + i, count), label = label_vector(t + i, count);
        V p = sigmoid(exponential(-magnitude(x)), x);
        store(out + i, entropy * (p - label) + (both - 2 * once * label) * (p - p * p), count);
    }
}

/* ---- cells ------------------------------------------------------------------------------------------------------ */

/* Between voxels (channel, r x, r y, r z) and cells (x, y, z, (channel i j l)), r the side of a cell. */
EXPORT void cells(float *voxels, float *cells, N channels, N nx, N ny, N nz, N r, int to_voxels) {
    N row = r * nz, plane = r * ny * row, volume = r * nx * plane, cell = channels * r * r * r;
    for (N x = 0; x < nx; x++)
        for (N y = 0; y < ny; y++, cells += nz * cell)
            for (N run = 0; run < channels * r * r; run++) {
                float *line = voxels + run / (r * r) * volume + (r * x + run / r % r) * plane + (r * y + run % r) * row;
                float *at = cells + run * r;
                for (N z = 0; z < nz; z++, line += r, at += cell) {
                    if (r == 4 && to_voxels) *(V4 *)line = *(V4 *)at;
                    else if (r == 4) *(V4 *)at = *(V4 *)line;
                    else memcpy(to_voxels ? line : at, to_voxels ? at : line, r * sizeof(float));
                }
            }
}
