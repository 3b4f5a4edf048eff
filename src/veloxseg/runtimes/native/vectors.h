/* Vectors of 8 floats by GCC's and Clang's vector types, and the two functions that the network needs of them.

   For all files here: everything is channels-last, a feature is (x, y, z, c) with c fastest. A "line" is the voxels
   along z, which lie next to each other; lines have steps of their own, so that a feature can sit inside a border of
   zeros and no kernel ever asks whether a voxel lies outside. Steps are in floats. Channels come in multiples of 8
   unless said otherwise. program.py lays out the buffers and calls these functions in order. */

#ifndef VELOXSEG_VECTORS_H
#define VELOXSEG_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

typedef int64_t N;
typedef float V __attribute__((vector_size(32), aligned(4), may_alias)); /* at any address */
typedef float V4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int VI __attribute__((vector_size(32), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define EXPORT __attribute__((visibility("default")))

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

#endif
