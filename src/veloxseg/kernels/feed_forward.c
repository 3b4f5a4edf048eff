/* Feed-forward layers, out = y + Dropout(W2 Dropout(gelu(W1 norm(y) + b1)) + b2), and their gradients.

   The norm is an instance norm (JLC block) or a layer norm without affine part (transformer block). A block of voxels
   goes through all of it at once. Of the hidden layer only the values before gelu are kept. */

#include "training.h"

void norm_gradient(const float *x, N voxels, N channels, const float *mean, const float *scale, const float *gradient,
                   const float *more, float *out);

typedef struct {
    N voxels, channels, hidden, row; /* row: of the tensor's first voxel, for the random numbers */
    const float *y, *gradient;       /* gradient: of out */
    const float *weight1, *bias1;    /* forward (channels, hidden), backward (hidden, channels) */
    const float *weight2, *bias2;    /* forward (hidden, channels), backward (channels, hidden) */
    float *mean, *scale, *before;    /* before: (voxels, hidden), ahead of gelu */
    float *out;                      /* or the gradient of y */
    float *weight1_gradient, *bias1_gradient; /* (hidden, channels) */
    float *weight2_gradient, *bias2_gradient; /* (channels, hidden) */
    float *room;                     /* BLOCK x (2 channels + 3 hidden + 1) */
    N layer, residual;               /* a layer norm; y is added */
    Dropout dropout, hidden_dropout;
} FeedForward;

#define LAYER_EPS 1e-6f

/* A row to mean 0 and variance 1; the factor by which it was multiplied. */
INLINE float layer_normal(const float *x, N channels, float *to) {
    V sum = {}, squares = {};
    for (N c = 0; c < channels; c += LANES) sum += *(const V *)(x + c);
    float mean = sum_of(sum) / channels;
    for (N c = 0; c < channels; c += LANES) {
        V d = *(const V *)(x + c) - mean;
        squares += d * d;
    }
    float scale = 1 / sqrtf(sum_of(squares) / channels + LAYER_EPS);
    for (N c = 0; c < channels; c += LANES) *(V *)(to + c) = (*(const V *)(x + c) - mean) * scale;
    return scale;
}

/* its gradient, in place: scale (g - E[g] - n E[n g]) */
INLINE void layer_gradient(const float *normal, float scale, N channels, float *gradient) {
    V sum = {}, along = {};
    for (N c = 0; c < channels; c += LANES) {
        V g = *(V *)(gradient + c);
        sum += g, along += g * *(const V *)(normal + c);
    }
    float middle = sum_of(sum) / channels, slope = sum_of(along) / channels;
    for (N c = 0; c < channels; c += LANES)
        *(V *)(gradient + c) = scale * (*(V *)(gradient + c) - middle - *(const V *)(normal + c) * slope);
}

/* scales: of each row, from its layer norm */
static void normal_rows(const FeedForward *f, N first, N rows, float *to, float *scales) {
    N channels = f->channels;
    if (f->layer) {
        for (N r = 0; r < rows; r++) scales[r] = layer_normal(f->y + (first + r) * channels, channels, to + r * channels);
        return;
    }
    for (N r = 0; r < rows; r++)
        for (N c = 0; c < channels; c += LANES)
            *(V *)(to + r * channels + c) =
                (*(const V *)(f->y + (first + r) * channels + c) - *(const V *)(f->mean + c)) * *(const V *)(f->scale + c);
}

EXPORT void feed_forward(const FeedForward *f) {
    N channels = f->channels, hidden = f->hidden;
    float *scales = f->room, *normal = scales + BLOCK, *active = normal + BLOCK * channels;
    if (!f->layer) moments(f->y, f->voxels, channels, channels, f->mean, f->scale);
    for (N first = 0; first < f->voxels; first += BLOCK) {
        N rows = f->voxels - first < BLOCK ? f->voxels - first : BLOCK;
        float *before = f->before + first * hidden, *out = f->out + first * channels;
        normal_rows(f, first, rows, normal, scales);
        multiply(rows, channels, hidden, normal, channels, 1, f->weight1, hidden, before, hidden, 0);
        for (N r = 0; r < rows; r++) {
            uint32_t key = row_key(f->hidden_dropout.seed, f->row + first + r);
            for (N h = 0; h < hidden; h += LANES) {
                V value = *(V *)(before + r * hidden + h) + *(const V *)(f->bias1 + h), active_value = gelu(value);
                *(V *)(before + r * hidden + h) = value;
                if (f->hidden_dropout.factor != 0) active_value *= keep_factor(&f->hidden_dropout, key, h);
                *(V *)(active + r * hidden + h) = active_value;
            }
        }
        multiply(rows, hidden, channels, active, hidden, 1, f->weight2, channels, out, channels, 0);
        for (N r = 0; r < rows; r++) {
            uint32_t key = row_key(f->dropout.seed, f->row + first + r);
            for (N c = 0; c < channels; c += LANES) {
                V value = *(V *)(out + r * channels + c) + *(const V *)(f->bias2 + c);
                if (f->dropout.factor != 0) value *= keep_factor(&f->dropout, key, c);
                if (f->residual) value += *(const V *)(f->y + (first + r) * channels + c);
                *(V *)(out + r * channels + c) = value;
            }
        }
    }
}

static void add_rows(const float *from, N rows, N columns, float *to) {
    for (N c = 0; c < columns; c += LANES) {
        V sum = {};
        for (N r = 0; r < rows; r++) sum += *(const V *)(from + r * columns + c);
        *(V *)(to + c) += sum;
    }
}

EXPORT void feed_forward_backward(const FeedForward *f) {
    N channels = f->channels, hidden = f->hidden;
    float *scales = f->room, *of_out = scales + BLOCK, *normal = of_out + BLOCK * channels, *active = normal + BLOCK * channels;
    float *slope = active + BLOCK * hidden, *of_hidden = slope + BLOCK * hidden;
    memset(f->weight1_gradient, 0, channels * hidden * sizeof(float));
    memset(f->weight2_gradient, 0, channels * hidden * sizeof(float));
    memset(f->bias1_gradient, 0, hidden * sizeof(float));
    memset(f->bias2_gradient, 0, channels * sizeof(float));
    for (N first = 0; first < f->voxels; first += BLOCK) {
        N rows = f->voxels - first < BLOCK ? f->voxels - first : BLOCK;
        for (N r = 0; r < rows; r++) {
            uint32_t key = row_key(f->dropout.seed, f->row + first + r);
            for (N c = 0; c < channels; c += LANES) {
                V g = *(const V *)(f->gradient + (first + r) * channels + c);
                if (f->dropout.factor != 0) g *= keep_factor(&f->dropout, key, c);
                *(V *)(of_out + r * channels + c) = g;
            }
        }
        for (N r = 0; r < rows; r++) {
            uint32_t key = row_key(f->hidden_dropout.seed, f->row + first + r);
            for (N h = 0, i = r * hidden; h < hidden; h += LANES, i += LANES) {
                V before = *(const V *)(f->before + first * hidden + i), share = share_below(before), keep = all(1);
                if (f->hidden_dropout.factor != 0) keep = keep_factor(&f->hidden_dropout, key, h);
                *(V *)(active + i) = before * share * keep;
                *(V *)(slope + i) = gelu_slope(before, share) * keep;
            }
        }
        normal_rows(f, first, rows, normal, scales);
        add_rows(of_out, rows, channels, f->bias2_gradient);
        multiply(channels, rows, hidden, of_out, 1, channels, active, hidden, f->weight2_gradient, hidden, 1);
        multiply(rows, channels, hidden, of_out, channels, 1, f->weight2, hidden, of_hidden, hidden, 0);
        for (N i = 0; i < rows * hidden; i += LANES) *(V *)(of_hidden + i) *= *(const V *)(slope + i);
        add_rows(of_hidden, rows, hidden, f->bias1_gradient);
        multiply(hidden, rows, channels, of_hidden, 1, hidden, normal, channels, f->weight1_gradient, channels, 1);
        float *of_y = f->out + first * channels;
        multiply(rows, hidden, channels, of_hidden, hidden, 1, f->weight1, channels, of_y, channels, 0);
        if (!f->layer) continue;
        for (N r = 0; r < rows; r++) layer_gradient(normal + r * channels, scales[r], channels, of_y + r * channels);
        const float *of_all = f->gradient + first * channels;
        for (N i = 0; f->residual && i < rows * channels; i += LANES) *(V *)(of_y + i) += *(const V *)(of_all + i);
    }
    if (!f->layer) norm_gradient(f->y, f->voxels, channels, f->mean, f->scale, f->out, f->gradient, f->out);
}
