/* The arithmetic of VeloxSeg for one CPU core, in C with vectors of 8 floats (GCC's and Clang's vector types).

   Everything is channels-last: a feature is (x, y, z, c) with c fastest. A "line" is the voxels along z, which lie
   next to each other; lines have strides of their own, so that a feature can sit inside a border of zeros and no
   kernel ever asks whether a voxel lies outside. Sizes are multiples of 8 channels unless said otherwise.

   program.py lays out the buffers and calls these functions in order. */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

typedef float V __attribute__((vector_size(32), aligned(4), may_alias)); /* 8 floats, at any address */
typedef float V4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int VI __attribute__((vector_size(32), aligned(4), may_alias));
typedef long N;

#define ROWS4 12
#define MOST 128 /* channels of a head */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT int supported(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

/* ---- functions of a number ---------------------------------------------------------------------------------- */

INLINE V all(float f) { return (V){f, f, f, f, f, f, f, f}; }
#if defined(__AVX__)
INLINE V larger(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE V smaller(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE V4 larger4(V4 a, V4 b) { return (V4)_mm_max_ps((__m128)a, (__m128)b); }
#else
INLINE V pick(VI where, V yes, V no) { return (V)((where & (VI)yes) | (~where & (VI)no)); }
INLINE V larger(V a, V b) { return pick((VI)(a > b), a, b); }
INLINE V smaller(V a, V b) { return pick((VI)(a < b), a, b); }
INLINE V4 larger4(V4 a, V4 b) {
    for (int l = 0; l < 4; l++) a[l] = a[l] > b[l] ? a[l] : b[l];
    return a;
}
#endif

/* e^x for x <= 0: 2^n e^r with |r| <= ln(2)/2, e^r by its series */
INLINE V exponential(V x) {
    x = larger(x, all(-87.0f));
    V shifted = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer in the last bits */
    V n = shifted - 12582912.0f;
    V r = x - n * 0.693359375f + n * 2.12194440e-4f;
    V e = all(1.0f / 720);
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return (V)((VI)e + (((VI)shifted) << 23));
}

/* x (1/2 + erf(x / sqrt 2) / 2), with erf as a fraction of two polynomials of x^2, within 3e-9 for |x| <= 5.2 */
INLINE V gelu(V x) {
    V t = smaller(larger(x, all(-5.2f)), all(5.2f)), u = t * t;
    V p = all(2.472957660870634e-08f), q = all(1.2588158142534667e-06f);
    p = p * u + 6.407778982975287e-06f;
    q = q * u + 7.049710984574631e-05f;
    p = p * u + 1.5686698316130787e-04f;
    q = q * u + 1.8172325799241662e-03f;
    p = p * u + 4.608673509210348e-03f;
    q = q * u + 2.7927042916417122e-02f;
    p = p * u + 3.254522755742073e-02f;
    q = q * u + 2.4824513494968414e-01f;
    p = p * u + 3.989422619342804e-01f;
    q = q * u + 1.0f;
    return x * (t * p / q + 0.5f);
}

/* ---- products: linear maps and dense convolutions ----------------------------------------------------------- */

/* out[v, m] = act(bias[m] + sum over s, k of x[start(v) + offset[s] + k] w[s, k, m]) + factor * residual[v, m]

   A voxel's inputs are `segments` runs of `run` floats: one for a linear map, one per (x, y) of the kernel for a
   convolution. Weights come in panels of 16 outputs, each (segment, run, 16); a last panel may have 8. */
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

/* all voxels of one line */
static void product_line(const Product *p, const float *x, const float *residual, float *out) {
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

/* ---- group convolutions with 4 channels per group ----------------------------------------------------------- */

/* One plane kx of the kernel, added to `rows` voxels of a line. 8 lanes are two groups; a shuffle within each half
   gives input channel c to the 4 outputs of its own group. w: (ky, kz, c, 8 outputs). */
INLINE void group4_tile(int rows, int size, const float *x, N sy, N channels, const float *w, float *out) {
    V sum[12];
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
    for (; z + ROWS4 <= nz; z += ROWS4)
        group4_tile(ROWS4, size, x + z * channels, sy, channels, w, out + z * channels);
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
                }
        }
}

/* ---- norms -------------------------------------------------------------------------------------------------- */

/* Mean and 1 / sqrt(variance + 1e-5) of each channel. Lines and planes are summed in floats, these in doubles: on a nearly
   constant feature a single float sum loses half its digits. `bias` of the convolution before has no effect. */
EXPORT void statistics(const float *x, N sx, N sy, N nx, N ny, N nz, N channels, float *mean, float *scale) {
    double total[8], count = (double)nx * ny * nz;
    for (N c = 0; c < channels; c += 8) {
        V centre = {};
        for (int pass = 0; pass < 2; pass++) {
            memset(total, 0, sizeof total);
            for (N i = 0; i < nx; i++) {
                V plane = {};
                for (N j = 0; j < ny; j++) {
                    const float *line = x + i * sx + j * sy + c;
                    V sum = {};
                    for (N z = 0; z < nz; z++) {
                        V d = *(const V *)(line + z * channels) - centre;
                        if (pass) d *= d;
                        sum += d;
                    }
                    plane += sum;
                }
                for (int l = 0; l < 8; l++) total[l] += plane[l];
            }
            for (int l = 0; l < 8; l++) {
                if (pass) scale[c + l] = (float)(1 / sqrt(total[l] / count + 1e-5));
                else centre[l] = mean[c + l] = (float)(total[l] / count);
            }
        }
    }
}

/* out = other + act((x - mean) scale); `other` may be NULL or out itself, and has out's strides */
EXPORT void normalise(const float *x, N sx, N sy, const float *mean, const float *scale, int activate,
                      const float *other, float *out, N ox, N oy, N nx, N ny, N nz, N channels) {
    for (N i = 0; i < nx; i++)
        for (N j = 0; j < ny; j++) {
            const float *from = x + i * sx + j * sy, *more = other ? other + i * ox + j * oy : NULL;
            float *to = out + i * ox + j * oy;
            for (N c = 0; c < channels; c += 8) {
                V m = *(const V *)(mean + c), s = *(const V *)(scale + c);
                for (N z = 0; z < nz; z++) {
                    N at = z * channels + c;
                    V y = (*(const V *)(from + at) - m) * s;
                    if (activate) y = gelu(y);
                    if (more) y += *(const V *)(more + at);
                    *(V *)(to + at) = y;
                }
            }
        }
}

INLINE float sum_of(V v) {
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return v[0] + v[1];
}

/* each row to mean 0 and variance 1; the affine part is in the weights that follow */
EXPORT void layer_norm(const float *x, float *out, N rows, N channels) {
    for (N r = 0; r < rows; r++, x += channels, out += channels) {
        V sum = {}, squares = {};
        for (N c = 0; c < channels; c += 8) sum += *(const V *)(x + c);
        float mean = sum_of(sum) / channels;
        for (N c = 0; c < channels; c += 8) {
            V d = *(const V *)(x + c) - mean;
            squares += d * d;
        }
        float scale = 1 / sqrtf(sum_of(squares) / channels + 1e-6f);
        for (N c = 0; c < channels; c += 8) *(V *)(out + c) = (*(const V *)(x + c) - mean) * scale;
    }
}

/* ---- moving voxels ------------------------------------------------------------------------------------------ */

/* Between a feature (2 nx, 2 ny, 2 nz, c) with line strides, and cells (nx, ny, nz, (i j l c)). */
EXPORT void cells(float *feature, N sx, N sy, float *cell, N nx, N ny, N nz, N channels, int spread) {
    N run = 2 * channels;
    for (N x = 0; x < nx; x++)
        for (N y = 0; y < ny; y++)
            for (N z = 0; z < nz; z++)
                for (N ij = 0; ij < 4; ij++, cell += run) {
                    float *voxels = feature + (2 * x + ij / 2) * sx + (2 * y + ij % 2) * sy + z * run;
                    memcpy(spread ? voxels : cell, spread ? cell : voxels, run * sizeof(float));
                }
}

/* A window (c, nx, ny, nz) into a volume with a border of zeros. */
EXPORT void place(const float *image, float *out, N sc, N sx, N sy, N channels, N nx, N ny, N nz) {
    for (N c = 0; c < channels; c++)
        for (N x = 0; x < nx; x++)
            for (N y = 0; y < ny; y++, image += nz)
                memcpy(out + c * sc + x * sx + y * sy, image, nz * sizeof(float));
}

/* ---- paired window attention -------------------------------------------------------------------------------- */

typedef struct {
    N modalities, nx, ny, nz; /* the feature */
    N bx, by, bz;             /* big window, in voxels */
    N small_x, small_y, small_z;
} Pair;

/* the maximum of a small window, 4 channels; heads have multiples of that */
INLINE V4 highest(const Pair *p, const float *x, N width) {
    V4 most = *(const V4 *)x;
    for (N a = 0; a < p->small_x; a++)
        for (N b = 0; b < p->small_y; b++)
            for (N c = 0; c < p->small_z; c++)
                most = larger4(most, *(const V4 *)(x + ((a * p->ny + b) * p->nz + c) * width));
    return most;
}

/* x (M, voxels, width), channels [first, first + count): the maximum of each small window becomes a token.
   out: (windows, M tokens, count) */
EXPORT void gather(const Pair *p, const float *x, N width, N first, N count, float *out) {
    N voxels = p->nx * p->ny * p->nz;
    for (N wx = 0; wx < p->nx; wx += p->bx)
        for (N wy = 0; wy < p->ny; wy += p->by)
            for (N wz = 0; wz < p->nz; wz += p->bz)
                for (N m = 0; m < p->modalities; m++)
                    for (N i = wx; i < wx + p->bx; i += p->small_x)
                        for (N j = wy; j < wy + p->by; j += p->small_y)
                            for (N k = wz; k < wz + p->bz; k += p->small_z, out += count) {
                                const float *origin =
                                    x + (m * voxels + (i * p->ny + j) * p->nz + k) * width + first;
                                for (N c = 0; c < count; c += 4) *(V4 *)(out + c) = highest(p, origin + c, width);
                            }
}

/* One window and head: softmax(q k' + bias) v. Lanes are 8 queries, so that nothing is summed across lanes.
   tokens: (count, row) with q, k, v at their places; bias: (key, queries padded to 8) */
INLINE void attend(int dk, int dv, const float *q, const float *k, const float *v, N row, N count, N padded,
                   const float *bias, float *scores, float *out, N out_row) {
    for (N i = 0; i < count; i += 8) {
        N lanes = count - i < 8 ? count - i : 8;
        V query[MOST], sum = {}, highest = all(-INFINITY), result[MOST];
        for (int c = 0; c < dk; c++)
            for (N l = 0; l < 8; l++) query[c][l] = l < lanes ? q[(i + l) * row + c] : 0;
        for (N j = 0; j < count; j++) {
            V s = *(const V *)(bias + j * padded + i);
            UNROLL for (int c = 0; c < dk; c++) s += query[c] * k[j * row + c];
            ((V *)scores)[j] = s;
            highest = larger(highest, s);
        }
        UNROLL for (int c = 0; c < dv; c++) result[c] = (V){};
        for (N j = 0; j < count; j++) {
            V e = exponential(((V *)scores)[j] - highest);
            sum += e;
            UNROLL for (int c = 0; c < dv; c++) result[c] += e * v[j * row + c];
        }
        V inverse = 1.0f / sum;
        for (int c = 0; c < dv; c++) {
            V y = result[c] * inverse;
            for (N l = 0; l < lanes; l++) out[(i + l) * out_row + c] = y[l];
        }
    }
}

/* tokens (windows, count, [q | k | v]), each part (head, channel) → out (windows, count, (head, channel)) */
EXPORT void attention(const float *tokens, N windows, N count, N heads, N dk, N dv, const float *bias, N padded,
                      float *scores, float *out) {
    N row = heads * (2 * dk + dv), out_row = heads * dv;
    for (N w = 0; w < windows; w++)
        for (N h = 0; h < heads; h++) {
            const float *q = tokens + w * count * row + h * dk, *k = q + heads * dk;
            const float *v = tokens + w * count * row + 2 * heads * dk + h * dv;
            const float *b = bias + h * count * padded;
            float *to = out + w * count * out_row + h * dv;
            if (dk == 4 && dv == 4) attend(4, 4, q, k, v, row, count, padded, b, scores, to, out_row);
            else if (dk == 8 && dv == 8) attend(8, 8, q, k, v, row, count, padded, b, scores, to, out_row);
            else attend((int)dk, (int)dv, q, k, v, row, count, padded, b, scores, to, out_row);
        }
}

/* The way back: tokens (windows, M tokens, channels) → channels [first, first + channels) of out (M, voxels, width).
   upsampling: (voxels of a window, tokens), or NULL where each voxel is a token. `panel`: room for a packed window. */
EXPORT void scatter(const Pair *p, const float *tokens, N count, N channels, const float *upsampling, float *panel,
                    float *out, N width, N first) {
    N voxels = p->nx * p->ny * p->nz, zero = 0;
    for (N wx = 0; wx < p->nx; wx += p->bx)
        for (N wy = 0; wy < p->ny; wy += p->by)
            for (N wz = 0; wz < p->nz; wz += p->bz)
                for (N m = 0; m < p->modalities; m++, tokens += count * channels) {
                    const float *from = tokens;
                    if (upsampling) {
                        float *to = panel;
                        for (N c = 0; c < channels; c += 16) {
                            N left = channels - c, lanes = left > 8 ? 16 : 8;
                            for (N t = 0; t < count; t++, to += lanes)
                                for (N l = 0; l < lanes; l++) to[l] = l < left ? tokens[t * channels + c + l] : 0;
                        }
                    }
                    for (N i = 0; i < p->bx; i++)
                        for (N j = 0; j < p->by; j++) {
                            float *to = out + first
                                        + (m * voxels + ((wx + i) * p->ny + wy + j) * p->nz + wz) * width;
                            if (upsampling) {
                                Product line = {.x = upsampling + (i * p->by + j) * p->bz * count,
                                                .weight = panel, .offsets = &zero, .segments = 1, .run = count,
                                                .outputs = channels, .nz = p->bz, .sz = count, .oz = width};
                                product_line(&line, line.x, NULL, to);
                            } else {
                                for (N k = 0; k < p->bz; k++, from += channels)
                                    memcpy(to + k * width, from, channels * sizeof(float));
                            }
                        }
                }
}
