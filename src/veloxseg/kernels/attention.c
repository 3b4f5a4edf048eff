/* softmax(Q K' / sqrt(dk) + P) V with dropout of the weights, for every window and head, and its gradients.

   The matrix of weights is never stored: of each row its logarithm of the sum of exponentials is kept, and the way
   back computes the weights again. Queries go by fours. A window's keys and values lie in room as (channel, token), in
   whole vectors; what is beyond the tokens has a bias so low that its weight vanishes. */

#include "training.h"

#define FOUR 4

typedef struct {
    N tokens, padded, heads, dk, dv, row; /* row: the number of the tensor's first row of weights */
    const float *qkv;      /* (window, token, [Q K V], head, channel) */
    const float *bias;     /* (head, token, padded) */
    float *out;            /* (window, token, head, channel) */
    float *sums;           /* (window, head, token) */
    const float *gradient; /* of out */
    float *qkv_gradient, *bias_gradient;
    float *room; /* padded x (2 dk + 2 dv + 2 FOUR) */
    Dropout dropout;
} Attention;

INLINE N row_of(const Attention *a) { return a->heads * (2 * a->dk + a->dv); }

/* (token, channel) to (channel, token) */
static void turn(const float *from, N step, N tokens, N padded, N channels, float *to) {
    for (N c = 0; c < channels; c++, to += padded) {
        for (N j = 0; j < tokens; j++) to[j] = from[j * step + c];
        for (N j = tokens; j < padded; j++) to[j] = 0;
    }
}

/* keys and values of a window and head to room */
static void turn_both(const Attention *a, const float *window, N h, float *keys, float *values) {
    turn(window + (a->heads + h) * a->dk, row_of(a), a->tokens, a->padded, a->dk, keys);
    turn(window + 2 * a->heads * a->dk + h * a->dv, row_of(a), a->tokens, a->padded, a->dv, values);
}

/* sum[r] of `rows` vectors of tokens from j: over channels c of of[r step + c] times[c, j] */
INLINE void inner(int rows, const float *of, N step, const float *times, N padded, N channels, N j, V *sum) {
    for (N c = 0; c < channels; c++) {
        V factor = *(const V *)(times + c * padded + j);
        UNROLL for (int r = 0; r < rows; r++) sum[r] += all(of[r * step + c]) * factor;
    }
}

/* out[r, c] = factor[r] sum over tokens of weights[r, j] times[c, j] */
INLINE void outer_four(int rows, int channels, const float *weights, const float *times, N padded, const float *factor,
                       float *out, N step) {
    V sum[FOUR][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < channels; c++) sum[r][c] = (V){};
    for (N j = 0; j < padded; j += LANES) {
        V weight[FOUR];
        UNROLL for (int r = 0; r < rows; r++) weight[r] = *(const V *)(weights + r * padded + j);
        UNROLL for (int c = 0; c < channels; c++) {
            V value = *(const V *)(times + c * padded + j);
            UNROLL for (int r = 0; r < rows; r++) sum[r][c] += weight[r] * value;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < channels; c++)
        out[r * step + c] = factor[r] * sum_of(sum[r][c]);
}
INLINE void outer(int rows, const float *weights, const float *times, N padded, N channels, const float *factor,
                  float *out, N step) {
    N c = 0;
    for (; c + 4 <= channels; c += 4)
        outer_four(rows, 4, weights, times + c * padded, padded, factor, out + c, step);
    for (; c < channels; c++) outer_four(rows, 1, weights, times + c * padded, padded, factor, out + c, step);
}

/* to[c, j] += sum over r of weights[r, j] of[r step + c] */
INLINE void collect(int rows, const float *weights, const float *of, N step, N padded, N channels, float *to) {
    for (N j = 0; j < padded; j += LANES) {
        V weight[FOUR];
        UNROLL for (int r = 0; r < rows; r++) weight[r] = *(const V *)(weights + r * padded + j);
        for (N c = 0; c < channels; c++) {
            V sum = *(V *)(to + c * padded + j);
            UNROLL for (int r = 0; r < rows; r++) sum += weight[r] * all(of[r * step + c]);
            *(V *)(to + c * padded + j) = sum;
        }
    }
}

INLINE void scaled_queries(int rows, const Attention *a, const float *query, float *q) {
    float scale = 1 / sqrtf((float)a->dk);
    for (int r = 0; r < rows; r++) for (N c = 0; c < a->dk; c++) q[r * a->dk + c] = scale * query[r * row_of(a) + c];
}

#define MOST_CHANNELS 64

INLINE void forward_rows(int rows, const Attention *a, const float *query, N h, N i, const float *keys,
                         const float *values, float *weights, float *out, float *sums, N row) {
    N padded = a->padded;
    const float *bias = a->bias + (h * a->tokens + i) * padded;
    float q[FOUR * MOST_CHANNELS], one_by[FOUR], top_of[FOUR];
    V top[FOUR], total[FOUR];
    scaled_queries(rows, a, query, q);
    UNROLL for (int r = 0; r < rows; r++) top[r] = all(-1e30f), total[r] = (V){};
    for (N j = 0; j < padded; j += LANES) {
        V score[FOUR];
        UNROLL for (int r = 0; r < rows; r++) score[r] = *(const V *)(bias + r * padded + j);
        inner(rows, q, a->dk, keys, padded, a->dk, j, score);
        UNROLL for (int r = 0; r < rows; r++) {
            top[r] = larger(top[r], score[r]);
            *(V *)(weights + r * padded + j) = score[r];
        }
    }
    uint32_t key[FOUR];
    UNROLL for (int r = 0; r < rows; r++) {
        key[r] = row_key(a->dropout.seed, row + i + r);
        top_of[r] = top[r][0];
        for (int l = 1; l < LANES; l++) if (top[r][l] > top_of[r]) top_of[r] = top[r][l];
    }
    for (N j = 0; j < padded; j += LANES)
        UNROLL for (int r = 0; r < rows; r++) {
            V weight = exponential(*(V *)(weights + r * padded + j) - top_of[r]);
            total[r] += weight;
            if (a->dropout.factor != 0) weight *= keep_factor(&a->dropout, key[r], j);
            *(V *)(weights + r * padded + j) = weight;
        }
    UNROLL for (int r = 0; r < rows; r++) {
        float sum = sum_of(total[r]);
        one_by[r] = 1 / sum;
        sums[r] = top_of[r] + logf(sum);
    }
    outer(rows, weights, values, padded, a->dv, one_by, out, a->heads * a->dv);
}

EXPORT void attention_forward(const Attention *a, N first, N stop) {
    N width = row_of(a), tokens = a->tokens, out_row = a->heads * a->dv;
    float *keys = a->room, *values = keys + a->dk * a->padded, *weights = values + a->dv * a->padded;
    for (N n = first; n < stop; n++)
        for (N h = 0; h < a->heads; h++) {
            const float *window = a->qkv + n * tokens * width, *queries = window + h * a->dk;
            float *out = a->out + n * tokens * out_row + h * a->dv, *sums = a->sums + (n * a->heads + h) * tokens;
            N row = a->row + (n * a->heads + h) * tokens, i = 0;
            turn_both(a, window, h, keys, values);
            for (; i + FOUR <= tokens; i += FOUR)
                forward_rows(FOUR, a, queries + i * width, h, i, keys, values, weights, out + i * out_row, sums + i, row);
            for (; i < tokens; i++)
                forward_rows(1, a, queries + i * width, h, i, keys, values, weights, out + i * out_row, sums + i, row);
        }
}

/* With weights p, factors k of the dropout, g the gradient of the output and e = sum over c of g out:
   the gradient of a score is p (k (g V') - e), and that of the values is the sum over queries of (p k) g. */
INLINE void backward_rows(int rows, const Attention *a, const float *query, const float *out, const float *gradient,
                          N h, N i, const float *sums, N row, float *room, float *query_gradient) {
    N padded = a->padded, out_row = a->heads * a->dv;
    float *keys = room, *values = keys + a->dk * padded, *of_keys = values + a->dv * padded;
    float *of_values = of_keys + a->dk * padded, *kept = of_values + a->dv * padded, *of_score = kept + FOUR * padded;
    const float *bias = a->bias + (h * a->tokens + i) * padded;
    float *of_bias = a->bias_gradient + (h * a->tokens + i) * padded;
    float q[FOUR * MOST_CHANNELS], scale[FOUR], expected[FOUR];
    uint32_t key[FOUR];
    scaled_queries(rows, a, query, q);
    UNROLL for (int r = 0; r < rows; r++) {
        key[r] = row_key(a->dropout.seed, row + i + r), scale[r] = 1 / sqrtf((float)a->dk), expected[r] = 0;
        for (N c = 0; c < a->dv; c++) expected[r] += out[r * out_row + c] * gradient[r * out_row + c];
    }
    for (N j = 0; j < padded; j += LANES) {
        V score[FOUR], of_weight[FOUR];
        UNROLL for (int r = 0; r < rows; r++) score[r] = *(const V *)(bias + r * padded + j), of_weight[r] = (V){};
        inner(rows, q, a->dk, keys, padded, a->dk, j, score);
        inner(rows, gradient, out_row, values, padded, a->dv, j, of_weight);
        UNROLL for (int r = 0; r < rows; r++) {
            V weight = exponential(smaller(score[r] - sums[r], (V){})), keep = all(1);
            if (a->dropout.factor != 0) keep = keep_factor(&a->dropout, key[r], j);
            V d = weight * (keep * of_weight[r] - expected[r]);
            *(V *)(kept + r * padded + j) = weight * keep;
            *(V *)(of_score + r * padded + j) = d;
            *(V *)(of_bias + r * padded + j) += d;
        }
    }
    collect(rows, of_score, q, a->dk, padded, a->dk, of_keys);
    collect(rows, kept, gradient, out_row, padded, a->dv, of_values);
    outer(rows, of_score, keys, padded, a->dk, scale, query_gradient, row_of(a));
}

/* adds to bias_gradient */
EXPORT void attention_backward(const Attention *a, N first, N stop) {
    N width = row_of(a), tokens = a->tokens, out_row = a->heads * a->dv, padded = a->padded;
    float *keys = a->room, *values = keys + a->dk * padded, *of_keys = values + a->dv * padded;
    float *of_values = of_keys + a->dk * padded;
    for (N n = first; n < stop; n++)
        for (N h = 0; h < a->heads; h++) {
            const float *window = a->qkv + n * tokens * width, *queries = window + h * a->dk;
            const float *out = a->out + n * tokens * out_row + h * a->dv;
            const float *gradient = a->gradient + n * tokens * out_row + h * a->dv;
            const float *sums = a->sums + (n * a->heads + h) * tokens;
            float *to = a->qkv_gradient + n * tokens * width;
            N row = a->row + (n * a->heads + h) * tokens, i = 0;
            turn_both(a, window, h, keys, values);
            memset(of_keys, 0, (a->dk + a->dv) * padded * sizeof(float));
            for (; i + FOUR <= tokens; i += FOUR)
                backward_rows(FOUR, a, queries + i * width, out + i * out_row, gradient + i * out_row, h, i, sums + i,
                              row, a->room, to + i * width + h * a->dk);
            for (; i < tokens; i++)
                backward_rows(1, a, queries + i * width, out + i * out_row, gradient + i * out_row, h, i, sums + i, row,
                              a->room, to + i * width + h * a->dk);
            for (N j = 0; j < tokens; j++) {
                for (N c = 0; c < a->dk; c++) to[j * width + (a->heads + h) * a->dk + c] = of_keys[c * padded + j];
                for (N c = 0; c < a->dv; c++)
                    to[j * width + 2 * a->heads * a->dk + h * a->dv + c] = of_values[c * padded + j];
            }
        }
}
