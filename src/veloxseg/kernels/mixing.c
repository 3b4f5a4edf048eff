/* IN(sum over k of x_k W_k): a linear map of channels that lie in several tensors, then instance norm; its gradients. */

#include "training.h"

#define MOST 8     /* tensors */
#define ROWS 192   /* voxels at a time: they stay in the second cache */

void norm_gradient(const float *x, N voxels, N channels, const float *mean, const float *scale, const float *gradient,
                   const float *more, float *out);

typedef struct {
    N voxels, outputs, inputs;
    N channels[MOST];
    const float *x[MOST];
    const float *weight; /* forward (channels of all, outputs), backward (outputs, channels) for each tensor in turn */
    float *raw, *mean, *scale;
    float *out; /* forward: the normal values; backward: room for the gradient of raw */
    const float *gradient;
    float *x_gradient[MOST], *weight_gradient; /* weight_gradient: (channels of all, outputs) */
} Mixing;

EXPORT void mix_forward(const Mixing *m) {
    N outputs = m->outputs;
    for (N first = 0; first < m->voxels; first += ROWS) {
        N rows = m->voxels - first < ROWS ? m->voxels - first : ROWS;
        const float *weight = m->weight;
        for (N k = 0; k < m->inputs; k++) {
            N channels = m->channels[k];
            multiply(rows, channels, outputs, m->x[k] + first * channels, channels, 1, weight, outputs,
                     m->raw + first * outputs, outputs, k > 0);
            weight += channels * outputs;
        }
    }
    moments(m->raw, m->voxels, outputs, outputs, m->mean, m->scale);
    for (N i = 0; i < m->voxels * outputs; i += outputs)
        for (N c = 0; c < outputs; c += LANES)
            *(V *)(m->out + i + c) = (*(const V *)(m->raw + i + c) - *(const V *)(m->mean + c)) * *(const V *)(m->scale + c);
}

EXPORT void mix_backward(const Mixing *m) {
    N outputs = m->outputs, all_channels = 0;
    for (N k = 0; k < m->inputs; k++) all_channels += m->channels[k];
    norm_gradient(m->raw, m->voxels, outputs, m->mean, m->scale, m->gradient, NULL, m->out);
    memset(m->weight_gradient, 0, all_channels * outputs * sizeof(float));
    for (N first = 0; first < m->voxels; first += ROWS) {
        N rows = m->voxels - first < ROWS ? m->voxels - first : ROWS, before = 0;
        const float *d = m->out + first * outputs;
        for (N k = 0; k < m->inputs; k++) {
            N channels = m->channels[k];
            multiply(channels, rows, outputs, m->x[k] + first * channels, 1, channels, d, outputs,
                     m->weight_gradient + before, outputs, 1);
            multiply(rows, outputs, channels, d, outputs, 1, m->weight + before, channels,
                     m->x_gradient[k] + first * channels, channels, 0);
            before += channels * outputs;
        }
    }
}
