/* Instance norm: y = (x - E[x]) r with r = 1 / sqrt(Var[x] + 1e-5), and its gradient r (g - E[g] - y E[y g]). */

#include "training.h"

#define RUN 512 /* voxels that are summed in floats; these sums are added in doubles */

/* sum over voxels of x - centre, or of its square */
INLINE V mean_of(const float *x, N voxels, N step, V centre, int square, double *of) {
    double total[LANES] = {0};
    for (N start = 0; start < voxels; start += RUN) {
        N stop = start + RUN < voxels ? start + RUN : voxels;
        V sum[4] = {};
        N i = start;
        for (; i + 4 <= stop; i += 4)
            UNROLL for (int u = 0; u < 4; u++) {
                V d = *(const V *)(x + (i + u) * step) - centre;
                if (square) d *= d;
                sum[u] += d;
            }
        for (; i < stop; i++) {
            V d = *(const V *)(x + i * step) - centre;
            if (square) d *= d;
            sum[0] += d;
        }
        sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        for (int l = 0; l < LANES; l++) total[l] += sum[0][l];
    }
    V mean;
    for (int l = 0; l < LANES; l++) of[l] = total[l] / voxels, mean[l] = (float)of[l];
    return mean;
}

void moments(const float *x, N voxels, N channels, N step, float *mean, float *scale) {
    for (N c = 0; c < channels; c += LANES) {
        double of[LANES];
        V centre = mean_of(x + c, voxels, step, (V){}, 0, of);
        *(V *)(mean + c) = centre;
        mean_of(x + c, voxels, step, centre, 1, of);
        for (int l = 0; l < LANES; l++) scale[c + l] = (float)(1 / sqrt(of[l] + 1e-5));
    }
}

EXPORT void norm_forward(const float *x, N voxels, N channels, float *mean, float *scale, float *out) {
    moments(x, voxels, channels, channels, mean, scale);
    for (N i = 0; i < voxels; i++, x += channels, out += channels)
        for (N c = 0; c < channels; c += LANES)
            *(V *)(out + c) = (*(const V *)(x + c) - *(const V *)(mean + c)) * *(const V *)(scale + c);
}

/* the gradient of x from that of the normal value; out may be `gradient`, and `more` is added unless it is NULL */
void norm_gradient(const float *x, N voxels, N channels, const float *mean, const float *scale, const float *gradient,
                   const float *more, float *out) {
    for (N c = 0; c < channels; c += LANES) {
        V m = *(const V *)(mean + c), r = *(const V *)(scale + c);
        double sums[2][LANES] = {{0}};
        for (N start = 0; start < voxels; start += RUN) {
            N stop = start + RUN < voxels ? start + RUN : voxels;
            V sum = {}, along = {};
            for (N i = start; i < stop; i++) {
                V g = *(const V *)(gradient + i * channels + c);
                sum += g, along += g * (*(const V *)(x + i * channels + c) - m);
            }
            for (int l = 0; l < LANES; l++) sums[0][l] += sum[l], sums[1][l] += along[l];
        }
        V middle, along;
        for (int l = 0; l < LANES; l++)
            middle[l] = (float)(sums[0][l] / voxels), along[l] = (float)(sums[1][l] / voxels * r[l] * r[l]);
        for (N i = c; i < voxels * channels; i += channels) {
            V d = r * (*(const V *)(gradient + i) - middle - (*(const V *)(x + i) - m) * along);
            if (more) d += *(const V *)(more + i);
            *(V *)(out + i) = d;
        }
    }
}

EXPORT void norm_backward(const float *x, N voxels, N channels, const float *mean, const float *scale,
                          const float *gradient, float *out) {
    norm_gradient(x, voxels, channels, mean, scale, gradient, NULL, out);
}
