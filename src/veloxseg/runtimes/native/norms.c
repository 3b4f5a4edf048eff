/* Instance norm and layer norm. */

#include "vectors.h"

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
