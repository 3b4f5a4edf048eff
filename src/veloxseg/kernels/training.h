/* What the kernels of training share. Vectors are those of prediction (vectors.h there): one library per instruction set.

   A feature is (x, y, z, c) with c fastest, one sample at a time. Sums over voxels are taken in an order that depends
   on sizes alone, so that results do not depend on the number of threads. */

#ifndef VELOXSEG_TRAINING_H
#define VELOXSEG_TRAINING_H

#include "../runtimes/native/vectors.h"

#define BLOCK 24 /* voxels that a feed-forward layer takes at a time: all that it makes of them stays in the first cache */

/* The share of a normal distribution below x: 1/2 + erf(x / sqrt 2) / 2, as `gelu` has it. */
INLINE V share_below(V x) {
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
    return t * p / q + 0.5f;
}

/* d gelu / dx, where the share below x is known */
INLINE V gelu_slope(V x, V share) { return share + x * 0.3989422804f * exponential(x * x * -0.5f); }

/* A number per row of a tensor, from the seed of a dropout: SplitMix64's step and its mixing of bits. */
INLINE uint32_t row_key(uint64_t seed, N row) {
    uint64_t k = seed + (uint64_t)row * 0x9e3779b97f4a7c15u;
    k = (k ^ (k >> 30)) * 0xbf58476d1ce4e5b9u;
    k = (k ^ (k >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(k >> 32);
}

typedef uint32_t VU __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef struct { /* an element is kept where its random bits are `least` or more, as signed numbers */
    uint64_t seed;
    int32_t least;
    float factor; /* of what is kept; 0: there is no dropout */
} Dropout;

/* Factors 0 or `factor` of the LANES elements from `column` of the row that the key belongs to. */
INLINE V keep_factor(const Dropout *d, uint32_t key, N column) {
    VU h;
    for (int l = 0; l < LANES; l++) h[l] = (uint32_t)column + l;
    h = h * 0x9e3779b9u + key;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    h = h ^ (h >> 16);
    VI kept = (VI)h >= d->least;
    return (V)(kept & (VI)all(d->factor));
}

/* out[i, n] (+)= sum over k of a[i step + k stride] b[k, n] for `rows` x `columns` numbers, columns whole vectors.
   With (step, stride) = (1, width) the first factor is a transposed matrix. */
void multiply(N rows, N depth, N columns, const float *a, N step, N stride, const float *b, N b_row, float *out,
              N out_row, int add);

/* Mean and 1 / sqrt(variance + 1e-5) of each channel; whole vectors of channels. */
void moments(const float *x, N voxels, N channels, N step, float *mean, float *scale);

#endif
