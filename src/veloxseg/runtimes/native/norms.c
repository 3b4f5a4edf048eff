/* Instance norm and layer norm. */

#include "kernels.h"

/* `keep` channels. Lines and planes are summed in floats, these in doubles: on a nearly constant feature a single
   float sum loses half its digits. */
INLINE void channel_statistics(const float *x, N sx, N sy, N nx, N ny, N nz, N channels, float *mean, float *scale,
                               N keep) {
    double total[LANES], count = (double)nx * ny * nz;
    V centre = {};
    for (int pass = 0; pass < 2; pass++) {
        memset(total, 0, sizeof total);
        for (N i = 0; i < nx; i++) {
            V plane = {};
            for (N j = 0; j < ny; j++) {
                const float *line = x + i * sx + j * sy;
                V sum = {};
                for (N z = 0; z < nz; z++) {
                    V d = load(line + z * channels, keep) - centre;
                    if (pass) d *= d;
                    sum += d;
                }
                plane += sum;
            }
            for (int l = 0; l < LANES; l++) total[l] += plane[l];
        }
        for (int l = 0; l < keep; l++) {
            if (pass) scale[l] = (float)(1 / sqrt(total[l] / count + 1e-5));
            else centre[l] = mean[l] = (float)(total[l] / count);
        }
    }
}

/* Mean and 1 / sqrt(variance + 1e-5) of each channel. `bias` of the convolution before has no effect. */
void statistics(const float *x, N sx, N sy, N nx, N ny, N nz, N channels, float *mean, float *scale) {
    for (N c = 0; c < channels; c += LANES) {
        N left = channels - c;
        if (left >= LANES) channel_statistics(x + c, sx, sy, nx, ny, nz, channels, mean + c, scale + c, LANES);
        else channel_statistics(x + c, sx, sy, nx, ny, nz, channels, mean + c, scale + c, left);
    }
}

INLINE void normalise_line(const float *x, const float *mean, const float *scale, int activate, const float *other,
                           float *out, N nz, N channels, N keep) {
    V m = load(mean, keep), s = load(scale, keep);
    for (N z = 0; z < nz; z++) {
        V y = (load(x + z * channels, keep) - m) * s;
        if (activate) y = gelu(y);
        if (other) y += load(other + z * channels, keep);
        store(out + z * channels, y, keep);
    }
}

/* out = other + act((x - mean) scale); `other` may be NULL or out itself, and has out's strides */
void normalise(const float *x, N sx, N sy, const float *mean, const float *scale, int activate, const float *other,
               float *out, N ox, N oy, N nx, N ny, N nz, N channels) {
    for (N i = 0; i < nx; i++)
        for (N j = 0; j < ny; j++) {
            const float *from = x + i * sx + j * sy, *more = other ? other + i * ox + j * oy : NULL;
            float *to = out + i * ox + j * oy;
            for (N c = 0; c < channels; c += LANES) {
                N left = channels - c;
                const float *add = more ? more + c : NULL;
                if (left >= LANES)
                    normalise_line(from + c, mean + c, scale + c, activate, add, to + c, nz, channels, LANES);
                else normalise_line(from + c, mean + c, scale + c, activate, add, to + c, nz, channels, left);
            }
        }
}

/* each row to mean 0 and variance 1; the affine part is in the weights that follow */
void layer_norm(const float *x, float *out, N rows, N channels) {
    N whole = channels / LANES * LANES, left = channels - whole;
    for (N r = 0; r < rows; r++, x += channels, out += channels) {
        V sum = {}, squares = {};
        for (N c = 0; c < whole; c += LANES) sum += load(x + c, LANES);
        if (left) sum += load(x + whole, left);
        float mean = sum_of(sum) / channels;
        for (N c = 0; c < whole; c += LANES) {
            V d = load(x + c, LANES) - mean;
            squares += d * d;
        }
        if (left) {
            V d = only(load(x + whole, left) - mean, left);
            squares += d * d;
        }
        float scale = 1 / sqrtf(sum_of(squares) / channels + 1e-6f);
        for (N c = 0; c < whole; c += LANES) store(out + c, (load(x + c, LANES) - mean) * scale, LANES);
        if (left) store(out + whole, (load(x + whole, left) - mean) * scale, left);
    }
}
