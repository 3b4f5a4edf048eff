/* Paired window attention: gather tokens of all scales, attend within windows, scatter them back. */

#include "kernels.h"

#define MOST 128 /* channels of a head */

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
void gather(const Pair *p, const float *x, N width, N first, N count, float *out) {
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

/* 2^x for x <= 0: 2^n 2^f with |f| <= 1/2, and 2^f by a polynomial within 2e-7 of it */
INLINE V power(V x) {
#if LANES == 16
    V n = (V)_mm512_roundscale_ps((__m512)x, 0), f = x - n;
#else
    x = larger(x, all(-126.0f));
    V shifted = x + 12582912.0f, n = shifted - 12582912.0f, f = x - n; /* 1.5 * 2^23 rounds in the last bits */
#endif
    V p = all(0.00132647145f);
    p = p * f + 0.00967151299f;
    p = p * f + 0.0555073395f;
    p = p * f + 0.240222424f;
    p = p * f + 0.693147004f;
    p = p * f + 1.0f;
#if LANES == 16
    return (V)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return (V)((VI)p + ((VI)shifted << 23));
#endif
}

/* One head, `vectors` of queries from i on: softmax(q k' + bias) v. Lanes are queries, so that nothing is summed across
   lanes; several vectors share what is loaded of keys and values. Logarithms have base 2, in the bias too.
   bias: (vector of queries, key, lane); scores: room for (key, vector, lane) */
INLINE void attend(int vectors, int dk, int dv, const float *q, const float *k, const float *v, N row, N i, N count,
                   const float *bias, float *scores, float *out, N out_row) {
    V query[2][MOST], sum[2], highest[2], result[2][MOST];
    UNROLL for (int u = 0; u < vectors; u++) {
        for (int c = 0; c < dk; c++) {
            float lane[LANES] = {};
            for (N l = 0; l < LANES && i + u * LANES + l < count; l++) lane[l] = q[(i + u * LANES + l) * row + c];
            query[u][c] = load(lane, LANES) * 1.44269504f;
        }
        sum[u] = (V){}, highest[u] = all(-INFINITY);
        UNROLL for (int c = 0; c < dv; c++) result[u][c] = (V){};
    }
    for (N j = 0; j < count; j++)
        UNROLL for (int u = 0; u < vectors; u++) {
            V s = ((const V *)bias)[u * count + j];
            UNROLL for (int c = 0; c < dk; c++) s += query[u][c] * k[j * row + c];
            ((V *)scores)[j * vectors + u] = s;
            highest[u] = larger(highest[u], s);
        }
    for (N j = 0; j < count; j++)
        UNROLL for (int u = 0; u < vectors; u++) {
            V e = power(((const V *)scores)[j * vectors + u] - highest[u]);
            sum[u] += e;
            UNROLL for (int c = 0; c < dv; c++) result[u][c] += e * v[j * row + c];
        }
    UNROLL for (int u = 0; u < vectors; u++)
        for (int c = 0; c < dv; c++) {
            V y = result[u][c] / sum[u];
            for (N l = 0; l < LANES && i + u * LANES + l < count; l++) out[(i + u * LANES + l) * out_row + c] = y[l];
        }
}

/* all queries of a window */
INLINE void attend_all(int dk, int dv, const float *q, const float *k, const float *v, N row, N count,
                       const float *bias, float *scores, float *out, N out_row) {
    N i = 0;
    for (; i + LANES < count; i += 2 * LANES)
        attend(2, dk, dv, q, k, v, row, i, count, bias + i * count, scores, out, out_row);
    if (i < count) attend(1, dk, dv, q, k, v, row, i, count, bias + i * count, scores, out, out_row);
}

/* tokens (windows, count, [q | k | v]), each part (head, channel) → out (windows, count, (head, channel)).
   All windows of a head follow each other, so that its bias stays in a cache. */
void attention(const float *tokens, N windows, N count, N heads, N dk, N dv, const float *bias, float *scores,
               float *out) {
    N row = heads * (2 * dk + dv), out_row = heads * dv, padded = (count + LANES - 1) / LANES * LANES;
    for (N h = 0; h < heads; h++)
        for (N w = 0; w < windows; w++) {
            const float *q = tokens + w * count * row + h * dk, *k = q + heads * dk;
            const float *v = tokens + w * count * row + 2 * heads * dk + h * dv;
            const float *b = bias + h * count * padded;
            float *to = out + w * count * out_row + h * dv;
            if (dk == 4 && dv == 4) attend_all(4, 4, q, k, v, row, count, b, scores, to, out_row);
            else if (dk == 8 && dv == 8) attend_all(8, 8, q, k, v, row, count, b, scores, to, out_row);
            else attend_all((int)dk, (int)dv, q, k, v, row, count, b, scores, to, out_row);
        }
}

/* a + share (b - a), element by element */
INLINE void blend(const float *a, const float *b, float share, float *out, N count) {
    for (N c = 0; c < count; c += LANES) {
        N keep = count - c < LANES ? count - c : LANES;
        store(out + c, load(a + c, keep) * (1 - share) + load(b + c, keep) * share, keep);
    }
}

/* Where a voxel of a window lies among its tokens along an axis, first on first and last on last: returns the token
   before it, and how far towards the next one it lies. */
INLINE N between(N voxel, double step, N tokens, float *share) {
    double place = voxel * step;
    N low = (N)place < tokens - 2 ? (N)place : tokens - 2;
    low = low < 0 ? 0 : low; /* a single token */
    *share = (float)(place - low);
    return low;
}

INLINE double step_of(N tokens, N voxels) { return voxels > 1 ? (double)(tokens - 1) / (voxels - 1) : 0; }

/* The way back: tokens (windows, M tokens, channels) → channels [first, first + channels) of out (M, voxels, width),
   interpolated along x, y and z in turn. room: a plane of tokens and a line of them. Channels are multiples of 4. */
void scatter(const Pair *p, const float *tokens, N channels, float *room, float *out, N width, N first) {
    N voxels = p->nx * p->ny * p->nz, tx = p->bx / p->small_x, ty = p->by / p->small_y, tz = p->bz / p->small_z;
    N line = tz * channels, plane = ty * line;
    double dx = step_of(tx, p->bx), dy = step_of(ty, p->by), dz = step_of(tz, p->bz);
    float *between_x = room, *between_y = room + plane, share;
    for (N wx = 0; wx < p->nx; wx += p->bx)
        for (N wy = 0; wy < p->ny; wy += p->by)
            for (N wz = 0; wz < p->nz; wz += p->bz)
                for (N m = 0; m < p->modalities; m++, tokens += tx * plane)
                    for (N i = 0; i < p->bx; i++) {
                        const float *from = tokens + between(i, dx, tx, &share) * plane;
                        blend(from, tx > 1 ? from + plane : from, share, between_x, plane);
                        for (N j = 0; j < p->by; j++) {
                            from = between_x + between(j, dy, ty, &share) * line;
                            blend(from, ty > 1 ? from + line : from, share, between_y, line);
                            float *to = out + first
                                        + (m * voxels + ((wx + i) * p->ny + wy + j) * p->nz + wz) * width;
                            for (N k = 0; k < p->bz; k++, to += width) {
                                from = between_y + between(k, dz, tz, &share) * channels;
                                const float *next = tz > 1 ? from + channels : from;
                                for (N c = 0; c < channels; c += 4)
                                    *(V4 *)(to + c) = *(const V4 *)(from + c) * (1 - share)
                                                      + *(const V4 *)(next + c) * share;
                            }
                        }
                    }
}
