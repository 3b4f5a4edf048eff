/* Group convolutions whose groups have 4 channels, and 8 where a vector has room for them. Wider groups are products
   (program.py). */

#include "kernels.h"

#define ROWS SUMS /* voxels in registers; the others hold what is multiplied */
#define WIDEST (LANES == 4 ? 4 : 8)

/* of[c]: each group's input channel c in all lanes of the group, 4 channels at a time */
INLINE void spread(const float *from, V in, int width, int first, V *of) {
    if (width == LANES) { /* one group in a vector */
        UNROLL for (int c = 0; c < 4; c++) of[c] = all(from[first + c]);
        return;
    }
#if LANES == 16 /* narrower vectors have no two groups of 8 */
    if (width == 8 && first == 0) in = (V)_mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xa0); /* quarters 0 0 2 2 */
    if (width == 8 && first == 4) in = (V)_mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xf5); /* 1 1 3 3 */
#endif
    of[0] = QUAD(in, 0), of[1] = QUAD(in, 1), of[2] = QUAD(in, 2), of[3] = QUAD(in, 3);
}

/* A plane of the kernel, with lines `step` apart, for `rows` voxels of a line: added to `out`, or stored there where
   `out` is fresh. A vector holds several groups; a shuffle gives input channel c to the outputs of its own group.
   w: (line of the kernel, kz, c, lane). */
INLINE void group_tile(int rows, int size, int width, const float *x, N step, N channels, const float *w, float *out,
                       N keep, int fresh) {
    V sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = fresh ? (V){} : load(out + r * channels, keep);
    for (int j = 0; j < size; j++, w += size * width * LANES) {
        const float *from = x + j * step;
        UNROLL for (int z = 0; z < rows + size - 1; z++) {
            V in = load(from + z * channels, keep), of[4];
            UNROLL for (int first = 0; first < width; first += 4) {
                spread(from + z * channels, in, width, first, of);
                UNROLL for (int c = 0; c < 4; c++) UNROLL for (int t = 0; t < size; t++)
                    if (z - t >= 0 && z - t < rows) sum[z - t] += of[c] * ((const V *)w)[t * width + first + c];
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++) store(out + r * channels, sum[r], keep);
}

INLINE void group_line(int size, int width, const float *x, N step, N channels, const float *w, float *out, N nz,
                       N keep, int fresh) {
    N z = 0;
#define TILES(rows) \
    for (; z + rows <= nz; z += rows) \
        group_tile(rows, size, width, x + z * channels, step, channels, w, out + z * channels, keep, fresh);
    if (keep >= LANES) {
        if (ROWS >= 24 && width == 4) { TILES(24) }
        if (ROWS >= 24 && width == 4) { TILES(16) }
        TILES(12) TILES(8) TILES(6) TILES(4) TILES(2)
    }
    TILES(1)
}

/* ---- tap by tap --------------------------------------------------------------------------------------------- */

INLINE void group_lines(int width, int size, const float *x, N sy, N channels, const float *w, float *out, N nz,
                        N keep) {
    if (size == 1) group_line(1, width, x, sy, channels, w, out, nz, keep, 0);
    if (size == 3) group_line(3, width, x, sy, channels, w, out, nz, keep, 0);
    if (size == 5) group_line(5, width, x, sy, channels, w, out, nz, keep, 0);
    if (size == 7) group_line(7, width, x, sy, channels, w, out, nz, keep, 0);
}

/* x: the first tap of the first voxel, in a feature with borders; out: (nx, ny, nz, channels);
   weight: (vector of groups, kx, ky, kz, c, lane). One plane of the kernel at a time: its weights stay in the
   first cache. */
void group(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
           N channels, int width, int size) {
    N line = nz * channels, plane = size * size * width * LANES;
    for (N c = 0; c < channels; c += LANES, weight += size * plane)
        for (N i = 0; i < nx; i++) {
            N keep = channels - c;
            float *to = out + i * ny * line + c;
            V start = bias ? load(bias + c, keep) : (V){};
            for (N v = 0; v < ny * nz; v++) store(to + v * channels, start, keep);
            for (N k = 0; k < size; k++)
                for (N j = 0; j < ny; j++) {
                    const float *from = x + (i + k) * sx + j * sy + c, *w = weight + k * plane;
                    if (width == 4 && keep >= LANES)
                        group_lines(4, size, from, sy, channels, w, to + j * line, nz, LANES);
                    else if (width == 4) group_lines(4, size, from, sy, channels, w, to + j * line, nz, keep);
                    else if (WIDEST == 8 && keep >= LANES)
                        group_lines(8, size, from, sy, channels, w, to + j * line, nz, LANES);
                    else if (WIDEST == 8) group_lines(8, size, from, sy, channels, w, to + j * line, nz, keep);
                }
        }
}

/* ---- minimal filtering along y (filtering.py): two lines at a time from size + 1 transformed ones ------------ */

/* B' d: the transformed vectors lie `step` floats apart */
INLINE void forward(int size, const V *d, float *to, N step) {
#define POINT(i) *(V *)(to + (i) * step)
    if (size == 3) {
        POINT(0) = d[0] - d[2];
        POINT(1) = d[1] + d[2];
        POINT(2) = d[2] - d[1];
        POINT(3) = d[3] - d[1];
    } else {
        V odd = 4.0f * d[1] - d[3], even = 4.0f * d[2] - d[4], twice = 2.0f * (d[3] - d[1]), rest = d[4] - d[2];
        POINT(0) = 4.0f * d[0] - 5.0f * d[2] + d[4];
        POINT(1) = odd + even;
        POINT(2) = even - odd;
        POINT(3) = rest + twice;
        POINT(4) = rest - twice;
        POINT(5) = 4.0f * d[1] - 5.0f * d[3] + d[5];
    }
}

/* A' m: two outputs */
INLINE void backward(int size, const float *from, N step, V *first, V *second) {
#define SUM(i) *(const V *)(from + (i) * step)
    V sum = SUM(1) + SUM(2), difference = SUM(1) - SUM(2);
    *first = SUM(0) + sum;
    *second = difference + SUM(size);
    if (size == 5) {
        *first += SUM(3) + SUM(4);
        *second += 2.0f * (SUM(3) - SUM(4));
    }
}

/* One vector of channels and two lines along y. room: (nx + size - 1, point, nz + size - 1, lane), then (point, nz,
   lane) */
INLINE void filtered_lines(int size, int width, const float *x, N sx, N sy, const float *weight, V start, float *room,
                           float *out, N nx, N ny, N nz, N channels, N keep) {
    N more = size - 1, points = size + 1, line = (nz + more) * LANES, step = points * line;
    float *sums = room + (nx + more) * step;
    for (N i = 0; i < nx + more; i++)
        for (N z = 0; z < nz + more; z++) {
            V in[6];
            UNROLL for (int j = 0; j < points; j++) in[j] = load(x + i * sx + j * sy + z * channels, keep);
            forward(size, in, room + i * step + z * LANES, line);
        }
    for (N i = 0; i < nx; i++) {
        for (N p = 0; p < points; p++)
            group_line(size, width, room + i * step + p * line, step, LANES, weight + p * size * size * width * LANES,
                       sums + p * nz * LANES, nz, LANES, 1);
        float *to = out + i * ny * nz * channels;
        for (N z = 0; z < nz; z++) {
            V first, second;
            backward(size, sums + z * LANES, nz * LANES, &first, &second);
            store(to + z * channels, first + start, keep);
            store(to + (nz + z) * channels, second + start, keep);
        }
    }
}

/* As `group`, for kernels of size 3 and 5 and an even ny. weight: (vector of groups, point, kx, kz, c, lane) */
void filtered_group(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
                    N channels, int width, int size, float *room) {
#define LINES(s, w) \
    if (size == s && width == w) \
        filtered_lines(s, w, from, sx, sy, weight, start, room, to, nx, ny, nz, channels, keep);
    for (N c = 0; c < channels; c += LANES, weight += (size + 1) * size * size * width * LANES)
        for (N j = 0; j < ny; j += 2) {
            const float *from = x + j * sy + c;
            float *to = out + j * nz * channels + c;
            N keep = channels - c < LANES ? channels - c : LANES;
            V start = bias ? load(bias + c, keep) : (V){};
            LINES(3, 4) LINES(5, 4)
#if WIDEST == 8
            LINES(3, 8) LINES(5, 8)
#endif
        }
}
