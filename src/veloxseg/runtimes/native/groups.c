/* Group convolutions with 4 channels per group, which fill half a vector; wider groups are products (program.py). */

#include "vectors.h"

#define ROWS 12 /* voxels in registers; 4 more hold what is multiplied */

/* One plane kx of the kernel, added to `rows` voxels of a line. 8 lanes are two groups; a shuffle within each half
   gives input channel c to the 4 outputs of its own group. w: (ky, kz, c, 8 outputs). */
INLINE void group4_tile(int rows, int size, const float *x, N sy, N channels, const float *w, float *out) {
    V sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = *(const V *)(out + r * channels);
    for (int j = 0; j < size; j++, w += size * 32) {
        const float *from = x + j * sy;
        UNROLL for (int z = 0; z < rows + size - 1; z++) {
            V in = *(const V *)(from + z * channels);
            V of[4] = {__builtin_shufflevector(in, in, 0, 0, 0, 0, 4, 4, 4, 4),
                       __builtin_shufflevector(in, in, 1, 1, 1, 1, 5, 5, 5, 5),
                       __builtin_shufflevector(in, in, 2, 2, 2, 2, 6, 6, 6, 6),
                       __builtin_shufflevector(in, in, 3, 3, 3, 3, 7, 7, 7, 7)};
            UNROLL for (int c = 0; c < 4; c++) UNROLL for (int t = 0; t < size; t++)
                if (z - t >= 0 && z - t < rows) sum[z - t] += of[c] * ((const V *)w)[4 * t + c];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) *(V *)(out + r * channels) = sum[r];
}

INLINE void group4_line(int size, const float *x, N sy, N channels, const float *w, float *out, N nz) {
    N z = 0;
    for (; z + ROWS <= nz; z += ROWS)
        group4_tile(ROWS, size, x + z * channels, sy, channels, w, out + z * channels);
    for (; z < nz; z++) group4_tile(1, size, x + z * channels, sy, channels, w, out + z * channels);
}

/* x: the first tap of the first voxel, in a feature with borders; out: (nx, ny, nz, channels);
   weight: (pair of groups, kx, ky, kz, c, 8 outputs). One plane of the kernel at a time: its weights stay in the
   first cache. */
EXPORT void group4(const float *x, N sx, N sy, const float *weight, const float *bias, float *out, N nx, N ny, N nz,
                   N channels, int size) {
    N line = nz * channels, plane = size * size * 32;
    for (N c = 0; c < channels; c += 8, weight += size * plane)
        for (N i = 0; i < nx; i++) {
            float *to = out + i * ny * line + c;
            for (N v = 0; v < ny * nz; v++) *(V *)(to + v * channels) = bias ? *(const V *)(bias + c) : (V){};
            for (N k = 0; k < size; k++)
                for (N j = 0; j < ny; j++) {
                    const float *from = x + (i + k) * sx + j * sy + c, *w = weight + k * plane;
                    if (size == 1) group4_line(1, from, sy, channels, w, to + j * line, nz);
                    if (size == 3) group4_line(3, from, sy, channels, w, to + j * line, nz);
                    if (size == 5) group4_line(5, from, sy, channels, w, to + j * line, nz);
                    if (size == 7) group4_line(7, from, sy, channels, w, to + j * line, nz);
                }
        }
}
