/* Group convolutions whose groups are narrower than a vector: 4 channels, and 8 where vectors have 16 lanes. Wider
   groups are products (program.py). */

#include "vectors.h"

#define ROWS SUMS /* voxels in registers; the others hold what is multiplied */
#define WIDEST (LANES == 16 ? 8 : 4)

/* of[c]: each group's input channel c in all lanes of the group, 4 channels at a time */
INLINE void spread(V in, int width, int first, V *of) {
#if LANES == 16 /* narrower vectors have groups of 4 alone */
    if (width == 8 && first == 0) in = (V)_mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xa0); /* quarters 0 0 2 2 */
    if (width == 8 && first == 4) in = (V)_mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xf5); /* 1 1 3 3 */
#endif
    (void)width, (void)first;
    of[0] = QUAD(in, 0), of[1] = QUAD(in, 1), of[2] = QUAD(in, 2), of[3] = QUAD(in, 3);
}

/* One plane kx of the kernel, added to `rows` voxels of a line. A vector holds several groups; a shuffle gives input
   channel c to the outputs of its own group. w: (ky, kz, c, lane). */
INLINE void group_tile(int rows, int size, int width, const float *x, N sy, N channels, const float *w, float *out,
                       N keep) {
    V sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = load(out + r * channels, keep);
    for (int j = 0; j < size; j++, w += size * width * LANES) {
        const float *from = x + j * sy;
        UNROLL for (int z = 0; z < rows + size - 1; z++) {
            V in = load(from + z * channels, keep), of[4];
            UNROLL for (int first = 0; first < width; first += 4) {
                spread(in, width, first, of);
                UNROLL for (int c = 0; c < 4; c++) UNROLL for (int t = 0; t < size; t++)
                    if (z - t >= 0 && z - t < rows) sum[z - t] += of[c] * ((const V *)w)[t * width + first + c];
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++) store(out + r * channels, sum[r], keep);
}

INLINE void group_line(int size, int width, const float *x, N sy, N channels, const float *w, float *out, N nz, N keep) {
    N z = 0;
#define TILES(rows) \
    for (; z + rows <= nz; z += rows) \
        group_tile(rows, size, width, x + z * channels, sy, channels, w, out + z * channels, keep);
    if (keep >= LANES) {
        if (ROWS >= 24 && width == 4) { TILES(24) }
        TILES(12) TILES(6) TILES(3)
    }
    TILES(1)
}

INLINE void group_lines(int width, int size, const float *x, N sy, N channels, const float *w, float *out, N nz,
                        N keep) {
    if (size == 1) group_line(1, width, x, sy, channels, w, out, nz, keep);
    if (size == 3) group_line(3, width, x, sy, channels, w, out, nz, keep);
    if (size == 5) group_line(5, width, x, sy, channels, w, out, nz, keep);
    if (size == 7) group_line(7, width, x, sy, channels, w, out, nz, keep);
}

/* x: the first tap of the first voxel, in a feature with borders; out: (nx, ny, nz, channels);
   weight: (vector of groups, kx, ky, kz, c, lane). One plane of the kernel at a time: its weights stay in the
   first cache. */
EXPORT void group(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
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
