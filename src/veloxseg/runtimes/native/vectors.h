/* One instruction set per library: how wide its vectors are, how many registers it has, and the few operations that
   GCC's and Clang's vector types lack. All other files are the same for every set.

   For all files here: everything is channels-last, a feature is (x, y, z, c) with c fastest. A "line" is the voxels
   along z, which lie next to each other; lines have steps of their own, so that a feature can sit inside a border of
   zeros and no kernel ever asks whether a voxel lies outside. Steps are in floats. The last vector of a voxel's
   channels may be a part: a kernel touches no float beyond them. program.py lays out the buffers and says in
   which order these functions are called. */

#ifndef VELOXSEG_VECTORS_H
#define VELOXSEG_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* LANES: floats of a vector. SUMS: vectors that a product keeps in registers; what is left holds weights, inputs and
   addresses. VECTORS: those of them that lie side by side, so that an input is loaded once for all of them. */
#if defined(__AVX512F__)
#include <immintrin.h>
#define SET "avx512"
#define LANES 16
#define SUMS 24
#define VECTORS 2
#elif defined(__AVX2__)
#include <immintrin.h>
#define SET "avx2"
#define LANES 8
#define SUMS 12
#define VECTORS 2
#elif defined(__aarch64__)
#include <arm_neon.h>
#define SET "neon"
#define LANES 4
#define SUMS 24
#define VECTORS 4
#else
#error "the kernels are written for AVX-512, AVX2 and NEON"
#endif
#define PANEL (LANES * VECTORS) /* outputs that are computed together */

typedef int64_t N;
typedef float V __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* at any address */
typedef float V4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int VI __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define EXPORT __attribute__((visibility("default")))

INLINE V all(float f) { return f - (V){}; } /* f - 0 is f, -0 too */

/* QUAD(v, i): each 4 lanes get the i-th of them. sum_of: all lanes. */
#if LANES == 16
INLINE V larger(V a, V b) { return (V)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE V smaller(V a, V b) { return (V)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE float sum_of(V v) { return _mm512_reduce_add_ps((__m512)v); }
#define QUAD(v, i) (V)_mm512_permute_ps((__m512)(v), 0x55 * (i))
#elif LANES == 8
INLINE V larger(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE V smaller(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE float sum_of(V v) {
    V4 half = (V4)_mm256_castps256_ps128((__m256)v) + (V4)_mm256_extractf128_ps((__m256)v, 1);
    return (half[0] + half[2]) + (half[1] + half[3]);
}
#define QUAD(v, i) (V)_mm256_permute_ps((__m256)(v), 0x55 * (i))
#else
INLINE V larger(V a, V b) { return (V)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE V smaller(V a, V b) { return (V)vminq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE float sum_of(V v) { return vaddvq_f32((float32x4_t)v); }
#define QUAD(v, i) (V)vdupq_laneq_f32((float32x4_t)(v), i)
#endif
#if defined(__aarch64__)
INLINE V4 larger4(V4 a, V4 b) { return (V4)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
#else
INLINE V4 larger4(V4 a, V4 b) { return (V4)_mm_max_ps((__m128)a, (__m128)b); }
#endif

/* The first `keep` floats; the other lanes are 0. Where `keep` is known to be LANES these are plain moves. */
INLINE V load(const float *from, N keep) {
    if (keep >= LANES) return *(const V *)from;
#if LANES == 16
    return (V)_mm512_maskz_loadu_ps((__mmask16)((1u << keep) - 1), from);
#else
    V v = {};
    memcpy(&v, from, keep * sizeof(float));
    return v;
#endif
}
INLINE void store(float *to, V v, N keep) {
    if (keep >= LANES) *(V *)to = v;
#if LANES == 16
    else _mm512_mask_storeu_ps(to, (__mmask16)((1u << keep) - 1), (__m512)v);
#else
    else memcpy(to, &v, keep * sizeof(float));
#endif
}
INLINE V only(V v, N keep) {
    if (keep >= LANES) return v;
#if LANES == 16
    return (V)_mm512_maskz_mov_ps((__mmask16)((1u << keep) - 1), (__m512)v);
#else
    for (N l = keep; l < LANES; l++) v[l] = 0;
    return v;
#endif
}

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

#endif
