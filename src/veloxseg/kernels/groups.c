/* The parallel group convolutions of a JLC block, y = x + sum over s of gelu(IN(conv_s(x))), and their gradients.

   Channels are taken in parts: as many as a vector has, or as a group has if that is more; a part depends on no other.
   With d the gradient of a convolution's output, that of its input is the convolution of d with the mirrored kernel,
   groups transposed; that of its weight is the sum over voxels of the products of input and d. */

#include "training.h"

#define MOST 4 /* branches */

typedef struct {
    N nx, ny, nz, channels, width, branches, border; /* of the widest kernel */
    N size[MOST];                                    /* 1, 3 or 5 */
    const float *weight[MOST];   /* (part, vector, kx, ky, kz, c, lane); mirrored and transposed for the gradient */
    float *weight_gradient[MOST]; /* the same layout, not mirrored */
    const float *bias;            /* of a single branch, which has neither norm nor activation; else NULL */
    const float *x, *gradient;    /* gradient: of y */
    float *raw[MOST];             /* the convolutions, before their norm; NULL for a single branch */
    float *mean[MOST], *scale[MOST]; /* of each channel */
    float *out;                   /* y, or the gradient of x */
    float *inside;                /* a part with its border of zeros; room for one per thread */
} Branches;

INLINE N part_width(const Branches *b) { return b->width > LANES ? b->width : LANES; }

/* of[c]: input channels first to first + 3 of each lane's group. WIDE groups fill whole vectors. */
#define WIDE 0
INLINE void spread(const float *from, int groups, int first, V *of) {
    if (groups == WIDE) {
        UNROLL for (int c = 0; c < 4; c++) of[c] = all(from[first + c]);
        return;
    }
    V in = *(const V *)from;
#if LANES == 16
    if (groups == 8) in = (V)(first ? _mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xf5)
                                    : _mm512_shuffle_f32x4((__m512)in, (__m512)in, 0xa0));
#endif
    of[0] = QUAD(in, 0), of[1] = QUAD(in, 1), of[2] = QUAD(in, 2), of[3] = QUAD(in, 3);
}

/* ---- convolution ---------------------------------------------------------------------------------------------- */

typedef struct {
    N sx, sy, sz; /* steps of the input */
    N width, out_step;
    int add;
} Steps;

/* `rows` voxels of a line, one vector of outputs; all of the kernel passes by while they stay in registers */
INLINE void conv_tile(int rows, int size, int groups, const Steps *s, const float *x, const float *w, float *out) {
    V sum[SUMS];
    N width = groups == WIDE ? s->width : groups;
    UNROLL for (int r = 0; r < rows; r++) sum[r] = s->add ? *(const V *)(out + r * s->out_step) : (V){};
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++, w += size * width * LANES) {
            const float *from = x + i * s->sx + j * s->sy;
            for (int first = 0; first < width; first += 4) {
                const V *weight = (const V *)w + first;
                UNROLL for (int z = 0; z < rows + size - 1; z++) {
                    V of[4];
                    spread(from + z * s->sz, groups, first, of);
                    UNROLL for (int c = 0; c < 4; c++) UNROLL for (int t = 0; t < size; t++)
                        if (z - t >= 0 && z - t < rows) sum[z - t] += of[c] * weight[t * width + c];
                }
            }
        }
    UNROLL for (int r = 0; r < rows; r++) *(V *)(out + r * s->out_step) = sum[r];
}

#define TILES(rows) \
    for (; z + rows <= nz; z += rows) conv_tile(rows, size, groups, s, x + z * s->sz, w, out + z * s->out_step);

INLINE void conv_line(int size, int groups, const Steps *s, const float *x, const float *w, float *out, N nz) {
    N z = 0;
    if (SUMS >= 24) { TILES(24) TILES(16) }
    TILES(12) TILES(8) TILES(4) TILES(2) TILES(1)
}

#define LINES(size, groups) \
    static __attribute__((noinline)) void conv_##size##_##groups(const Steps *s, const float *x, const float *w, \
                                                                 float *out, N nz) { \
        conv_line(size, groups, s, x, w, out, nz); \
    }
#define SIZES(groups) LINES(1, groups) LINES(3, groups) LINES(5, groups)
SIZES(4) SIZES(8) SIZES(0)

/* A part whose border is inside; out has the layout of a whole feature. */
static void convolve(const Branches *b, int size, const float *w, float *out, int add) {
    static void (*const lines[3][3])(const Steps *, const float *, const float *, float *, N) = {
        {conv_1_4, conv_1_8, conv_1_0}, {conv_3_4, conv_3_8, conv_3_0}, {conv_5_4, conv_5_8, conv_5_0}};
    N part = part_width(b), pz = b->nz + 2 * b->border, py = b->ny + 2 * b->border, shift = b->border - size / 2;
    Steps s = {py * pz * part, pz * part, part, b->width, b->channels, add};
    const float *first = b->inside + shift * (s.sx + s.sy + s.sz);
    int groups = b->width >= LANES ? 2 : b->width == 8;
    for (N v = 0; v < part; v += LANES, w += (N)size * size * size * b->width * LANES)
        for (N i = 0; i < b->nx; i++)
            for (N j = 0; j < b->ny; j++)
                lines[size / 2][groups](&s, first + i * s.sx + j * s.sy, w,
                                        out + (i * b->ny + j) * b->nz * b->channels + v, b->nz);
}

/* ---- the gradient of a weight ------------------------------------------------------------------------------------ */

/* One plane of the input, one row (kx, ky) of the kernel, four input channels of each group: size x 4 sums. */
INLINE void weight_tile(int size, int groups, const float *x, N x_step, const float *d, N d_row, N part, N ny, N nz,
                        N first, N width, float *total) {
    V sum[5][4];
    UNROLL for (int t = 0; t < size; t++) UNROLL for (int c = 0; c < 4; c++) sum[t][c] = (V){};
    for (N j = 0; j < ny; j++, x += nz * x_step, d += d_row)
        for (N z = 0; z < nz; z++) {
            V of[4];
            spread(x + z * x_step, groups, first, of);
            UNROLL for (int t = 0; t < size; t++) {
                V gradient = *(const V *)(d + (z - t) * part);
                UNROLL for (int c = 0; c < 4; c++) sum[t][c] += of[c] * gradient;
            }
        }
    UNROLL for (int t = 0; t < size; t++) UNROLL for (int c = 0; c < 4; c++)
        *(V *)(total + (t * width + c) * LANES) += sum[t][c];
}

INLINE void weight_plane(int size, int groups, const float *x, N x_step, const float *d, N d_row, N part, N ny, N nz,
                         N width, float *total) {
    for (N first = 0; first < width; first += 4)
        weight_tile(size, groups, x, x_step, d, d_row, part, ny, nz, first, width, total + first * LANES);
}

#define PLANES(size, groups) \
    static __attribute__((noinline)) void weight_##size##_##groups( \
        const float *x, N x_step, const float *d, N d_row, N part, N ny, N nz, N width, float *total) { \
        weight_plane(size, groups, x, x_step, d, d_row, part, ny, nz, groups ? groups : width, total); \
    }
#define PLANE_SIZES(groups) PLANES(1, groups) PLANES(3, groups) PLANES(5, groups)
PLANE_SIZES(4) PLANE_SIZES(8) PLANE_SIZES(0)

/* x: the part's first channel; the gradient of the convolution's output lies inside. */
static void weight_sums(const Branches *b, int size, const float *x, float *total) {
    static void (*const planes[3][3])(const float *, N, const float *, N, N, N, N, N, float *) = {
        {weight_1_4, weight_1_8, weight_1_0}, {weight_3_4, weight_3_8, weight_3_0}, {weight_5_4, weight_5_8, weight_5_0}};
    N part = part_width(b), row = (b->nz + 2 * b->border) * part, plane = (b->ny + 2 * b->border) * row;
    N shift = b->border + size / 2, vector = (N)size * size * size * b->width * LANES;
    int groups = b->width >= LANES ? 2 : b->width == 8;
    memset(total, 0, part / LANES * vector * sizeof(float));
    for (N v = 0; v < part; v += LANES, total += vector)
        for (N i = 0; i < b->nx; i++)
            for (N k = 0; k < size * size; k++) {
                const float *d = b->inside + (i - k / size + shift) * plane + (shift - k % size) * row + shift * part + v;
                planes[size / 2][groups](x + i * b->ny * b->nz * b->channels, b->channels, d, row, part, b->ny, b->nz,
                                         b->width, total + k * size * b->width * LANES);
            }
}

/* ---- the block ----------------------------------------------------------------------------------------------- */

/* a part of a feature goes inside its border */
static void put_inside(const Branches *b, const float *x) {
    N part = part_width(b), row = (b->nz + 2 * b->border) * part, plane = (b->ny + 2 * b->border) * row;
    memset(b->inside, 0, (b->nx + 2 * b->border) * plane * sizeof(float));
    for (N i = 0; i < b->nx; i++)
        for (N j = 0; j < b->ny; j++) {
            float *to = b->inside + (i + b->border) * plane + (j + b->border) * row + b->border * part;
            for (N z = 0; z < b->nz; z++, x += b->channels, to += part)
                for (N v = 0; v < part; v += LANES) *(V *)(to + v) = *(const V *)(x + v);
        }
}

static void forward_part(const Branches *b, N first) {
    N part = part_width(b), voxels = b->nx * b->ny * b->nz, step = b->channels;
    const float *x = b->x + first;
    float *y = b->out + first;
    put_inside(b, x);
    for (N s = 0; s < b->branches; s++) {
        const float *weight = b->weight[s] + first * b->size[s] * b->size[s] * b->size[s] * b->width;
        float *raw = b->bias ? y : b->raw[s] + first;
        convolve(b, (int)b->size[s], weight, raw, 0);
        if (!b->bias) moments(raw, voxels, part, step, b->mean[s] + first, b->scale[s] + first);
    }
    for (N v = 0; v < part; v += LANES) {
        V bias = b->bias ? *(const V *)(b->bias + first + v) : (V){};
        for (N i = v; i < voxels * step; i += step) {
            V sum = *(const V *)(x + i);
            if (b->bias) sum += *(V *)(y + i) + bias;
            else for (N s = 0; s < b->branches; s++) {
                V mean = *(const V *)(b->mean[s] + first + v), scale = *(const V *)(b->scale[s] + first + v);
                sum += gelu((*(const V *)(b->raw[s] + first + i) - mean) * scale);
            }
            *(V *)(y + i) = sum;
        }
    }
}

/* The gradient of a branch's convolution, from that of y, goes inside: through gelu, then through the norm,
   d = scale (g - E[g] - n E[n g]) with n the normal value and g its gradient. */
static void branch_gradient(const Branches *b, N s, N first) {
    N part = part_width(b), row = (b->nz + 2 * b->border) * part, plane = (b->ny + 2 * b->border) * row;
    float *start = b->inside + b->border * (plane + row + part);
    double count = (double)b->nx * b->ny * b->nz;
    for (N v = 0; v < part; v += LANES) {
        V mean = *(const V *)(b->mean[s] + first + v), scale = *(const V *)(b->scale[s] + first + v);
        V along = {}, middle = {};
        for (int pass = 0; pass < 2; pass++) {
            double sums[2][LANES] = {{0}};
            const float *raw = b->raw[s] + first + v, *gradient = b->gradient + first + v;
            for (N i = 0; i < b->nx; i++) {
                V of_plane = {}, with_normal = {};
                for (N j = 0; j < b->ny; j++) {
                    float *d = start + i * plane + j * row + v;
                    for (N z = 0; z < b->nz; z++, raw += b->channels, gradient += b->channels, d += part) {
                        V normal = (*(const V *)raw - mean) * scale;
                        if (pass) {
                            *(V *)d = scale * (*(V *)d - middle - normal * along);
                        } else {
                            V g = *(const V *)gradient * gelu_slope(normal, share_below(normal));
                            of_plane += g, with_normal += g * normal;
                            *(V *)d = g;
                        }
                    }
                }
                for (int l = 0; l < LANES; l++) sums[0][l] += of_plane[l], sums[1][l] += with_normal[l];
            }
            for (int l = 0; l < LANES && !pass; l++)
                middle[l] = (float)(sums[0][l] / count), along[l] = (float)(sums[1][l] / count);
        }
    }
}

static void backward_part(const Branches *b, N first) {
    N part = part_width(b), voxels = b->nx * b->ny * b->nz, step = b->channels;
    put_inside(b, b->gradient + first); /* what a single branch takes; others overwrite all but the border */
    for (N i = 0; i < voxels * step; i += step)
        for (N v = 0; v < part; v += LANES)
            *(V *)(b->out + first + i + v) = *(const V *)(b->gradient + first + i + v);
    for (N s = 0; s < b->branches; s++) {
        N before = first * b->size[s] * b->size[s] * b->size[s] * b->width;
        if (!b->bias) branch_gradient(b, s, first);
        convolve(b, (int)b->size[s], b->weight[s] + before, b->out + first, 1);
        weight_sums(b, (int)b->size[s], b->x + first, b->weight_gradient[s] + before);
    }
}

/* channels from `first` to `stop`, whole parts */
EXPORT void branches_forward(const Branches *b, N first, N stop) {
    for (; first < stop; first += part_width(b)) forward_part(b, first);
}
EXPORT void branches_backward(const Branches *b, N first, N stop) {
    for (; first < stop; first += part_width(b)) backward_part(b, first);
}
