/* Moving voxels, and what this library is. */

#include "kernels.h"

EXPORT const char *sources(void) { return SOURCES; } /* their hash, see library.py */

EXPORT const char *instruction_set(void) { return SET; }
EXPORT N lanes(void) { return LANES; }
EXPORT N panel(void) { return PANEL; }

/* Whether processor and system have what the library was compiled for; until this is known nothing else is called.
   The function itself is compiled without these instructions. */
#if defined(__x86_64__)
__attribute__((target("no-avx"))) EXPORT int supported(void) {
    __builtin_cpu_init();
#if LANES == 16
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
           && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
}
#else
EXPORT int supported(void) { return 1; } /* every aarch64 has NEON */
#endif

/* Between a feature (2 nx, 2 ny, 2 nz, c) with line strides, and cells (nx, ny, nz, (i j l c)). */
void cells(float *feature, N sx, N sy, float *cell, N nx, N ny, N nz, N channels, int spread) {
    N run = 2 * channels;
    for (N x = 0; x < nx; x++)
        for (N y = 0; y < ny; y++)
            for (N z = 0; z < nz; z++)
                for (N ij = 0; ij < 4; ij++, cell += run) {
                    float *voxels = feature + (2 * x + ij / 2) * sx + (2 * y + ij % 2) * sy + z * run;
                    memcpy(spread ? voxels : cell, spread ? cell : voxels, run * sizeof(float));
                }
}

/* A window (c, nx, ny, nz) of an image into a volume with a border of zeros; both have steps of their own. */
void place(const float *image, N ic, N ix, N iy, float *out, N oc, N ox, N oy, N channels, N nx, N ny, N nz) {
    for (N c = 0; c < channels; c++)
        for (N x = 0; x < nx; x++)
            for (N y = 0; y < ny; y++)
                memcpy(out + c * oc + x * ox + y * oy, image + c * ic + x * ix + y * iy, nz * sizeof(float));
}

/* held += scores * lines * plane, each with steps of its own: a weight is a line's times that of its place in x and y.
   Returns whether all scores are finite: what is not differs from itself. */
EXPORT int add_weighted(float *held, N hx, N hy, const float *scores, N sx, N sy, const float *lines, N lx, N ly,
                        const float *plane, N px, N py, N nx, N ny, N nz) {
    V odd = {};
    for (N x = 0; x < nx; x++)
        for (N y = 0; y < ny; y++) {
            float *to = held + x * hx + y * hy, factor = plane[x * px + y * py];
            const float *from = scores + x * sx + y * sy, *line = lines + x * lx + y * ly;
            for (N z = 0; z < nz; z += LANES) {
                N keep = nz - z < LANES ? nz - z : LANES;
                V score = load(from + z, keep);
                odd += score - score;
                store(to + z, load(to + z, keep) + score * (load(line + z, keep) * factor), keep);
            }
        }
    return sum_of(odd) == 0;
}
