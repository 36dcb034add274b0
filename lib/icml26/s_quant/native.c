/* The weights of an encoded layer, and their product with a few vectors, straight from the bit-packed streams.
 *
 * Compiled and called by native.py, which says what each field of Layer means and bounds it. A row of weights is
 * worked on in tiles of a few blocks: first the streams are unpacked, then every block is the sum over j of the
 * coefficient q[j] times a run of integers, in integers. The table holds them in pairs, for two j at a time. Reads stay
 * inside the streams whatever bits they hold.
 */

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) && !defined(ICML26_PLAIN)
#include <immintrin.h>
#define MADD 1
#endif

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 64, MOST = 64, PAD = 32 }; /* blocks per tile, basis vectors per block, places read or written too far */
enum { EXACT, NEAR, FUSED };             /* what becomes of a block: see `emit` */

typedef struct {
    const uint8_t *seeds, *counts, *codes, *scales; /* for SeedLM the words are in `seeds`, and the rest is not used */
    int64_t seeds_size, counts_size, codes_size;    /* bytes */
    const int64_t *starts;                          /* the coefficient that each row begins with, or null */
    const int32_t *place;                           /* by seed */
    const int32_t *table;                           /* z - h, and above it the z - h that lies `stride` further */
    int64_t stride, rows, columns, group;
    int32_t word, block, seed_bits, count_bits, code_bits, k, shift;
    double span; /* h - 1 */
} Layer;

typedef struct {
    int32_t seed[TILE], k[TILE], first[TILE]; /* first: where in q a block's coefficients begin */
    float scale[TILE];
    int16_t q[TILE * MOST + PAD];
} Tile;

typedef int32_t int8 __attribute__((vector_size(32)));
typedef int32_t word8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double double8 __attribute__((vector_size(64)));

/* Eight bytes of a stream; what lies behind its end is zero. */
INLINE uint64_t load(const uint8_t *stream, int64_t size, int64_t byte) {
    uint64_t found = 0;
    if (byte + 8 <= size)
        memcpy(&found, stream + byte, 8);
    else if (byte < size)
        memcpy(&found, stream + byte, (size_t)(size - byte));
    return found;
}

/* n numbers of a stream; `sign` is the value of their sign bit, or 0. Four bits are spread out several at a time. */
#define UNPACK(NAME, TYPE)                                                                                             \
    static void NAME(const uint8_t *restrict stream, int64_t size, int64_t first, int64_t n, int width, int32_t sign,  \
                     TYPE *restrict out) {                                                                             \
        enum { EACH = 8 / sizeof(TYPE) };                                                                              \
        int64_t i = 0;                                                                                                 \
        const uint8_t *at = stream + first * width / 8;                                                                \
        if ((first + n) * width <= 8 * size) {                                                                         \
            if (width == 8)                                                                                            \
                for (; i < n; i++) out[i] = (TYPE)at[i];                                                               \
            if (width == 16)                                                                                           \
                for (; i < n; i++) out[i] = (TYPE)(at[2 * i] | at[2 * i + 1] << 8);                                    \
            if (width == 4 && first % 2 == 0) {                                                                        \
                for (int64_t j = 0; j < n / EACH; j++) {                                                               \
                    const uint64_t v = EACH == 2 ? at[j] : (uint64_t)(at[2 * j] | at[2 * j + 1] << 8);                 \
                    const uint64_t spread = EACH == 2 ? (v & 0xF) | (v & 0xF0) << 28 : SPREAD(v);                      \
                    memcpy(out + EACH * j, &spread, 8);                                                                \
                }                                                                                                      \
                i = n / EACH * EACH;                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            const int64_t bit = (first + i) * width;                                                                   \
            out[i] = (TYPE)(load(stream, size, bit >> 3) >> (bit & 7) & (((uint64_t)1 << width) - 1));                 \
        }                                                                                                              \
        if (sign)                                                                                                      \
            for (i = 0; i < n; i++) out[i] = (TYPE)((out[i] ^ sign) - sign);                                           \
    }
#define SPREAD(v) (((v) & 0xF) | ((v) & 0xF0) << 12 | ((v) & 0xF00) << 24 | ((v) & 0xF000) << 36) /* to 16 bits each */
UNPACK(unpack, int32_t)
UNPACK(unpack_short, int16_t)

INLINE float half_float(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, 2);
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023, bits = (exponent + 112) << 23 | fraction << 13;
    float found;
    memcpy(&found, &bits, 4);
    return exponent ? found : (float)fraction * 0x1p-24f;
}

static void unpack_words(const Layer *l, int64_t first, int n, Tile *restrict t) {
    uint64_t word[TILE], q[TILE];
    const int bits = l->seed_bits, width = l->word, k = l->k, shift = l->shift, wide = (k + 3) / 4;
    const uint64_t mask = ((uint64_t)1 << bits) - 1, keep = ((uint64_t)1 << 4 * k) - 1;
    const uint8_t *stream = l->seeds;
    if (width == 32 && 4 * (first + n) <= l->seeds_size)
        for (int i = 0; i < n; i++) {
            uint32_t found;
            memcpy(&found, stream + 4 * (first + i), 4);
            word[i] = found;
        }
    else
        for (int i = 0; i < n; i++) {
            int64_t bit = (first + i) * width;
            word[i] = load(stream, l->seeds_size, bit >> 3) >> (bit & 7);
        }
    for (int i = 0; i < n; i++) t->seed[i] = (int32_t)(word[i] & mask);
    for (int i = 0; i < n; i++) {
        int32_t power = ((((int32_t)(word[i] >> bits) & 15) ^ 8) - 8 + shift + 127) << 23;
        memcpy(&t->scale[i], &power, 4);
    }
    for (int j = 0; j < wide; j++) { /* four coefficients at a time, from 4 to 16 bits each */
        for (int i = 0; i < n; i++) {
            const uint64_t four = (word[i] >> (bits + 4) & keep) >> 16 * j;
            q[i] = SPREAD(four);
        }
        for (int i = 0; i < n; i++) memcpy(t->q + 4 * (i * wide + j), q + i, 8);
    }
    for (int i = 0; i < 4 * n * wide; i++) t->q[i] = (int16_t)((t->q[i] ^ 8) - 8);
}

static int64_t unpack_blocks(const Layer *l, int64_t first, int n, int64_t code, Tile *restrict t) {
    const int most = l->k;
    const int64_t group = l->group;
    int32_t total = n * most;
    unpack(l->seeds, l->seeds_size, first, n, l->seed_bits, 0, t->seed);
    if (l->count_bits) {
        unpack(l->counts, l->counts_size, first, n, l->count_bits, 0, t->k);
        for (int i = 0; i < n; i++) t->k[i] = t->k[i] > most ? most : t->k[i];
        total = 0;
        for (int i = 0; i < n; i++) {
            t->first[i] = total;
            total += t->k[i];
        }
    }
    unpack_short(l->codes, l->codes_size, code, total, l->code_bits, 1 << (l->code_bits - 1), t->q);
    int64_t g = first / group;
    for (int64_t i = 0, end = (g + 1) * group - first; i < n; g++, end += group) {
        const float scale = half_float(l->scales + 2 * g);
        for (; i < n && i < end; i++) t->scale[i] = scale;
    }
    return code + total;
}

/* q[0] times the low halves and q[1] times the high halves of eight pairs, added up */
INLINE int8 pairs(const int32_t *z, int32_t q) {
#ifdef MADD
    return (int8)_mm256_madd_epi16(_mm256_loadu_si256((const void *)z), _mm256_set1_epi32(q));
#else
    const int8 both = *(const word8 *)z;
    return (both << 16 >> 16) * (int32_t)(int16_t)q + (both >> 16) * (q >> 16);
#endif
}

/* The sums for 8 places (`low`), or for 16 if `more`. */
INLINE void sums(const int32_t *z, int64_t stride, const int16_t *q, int k, int more, int8 *low, int8 *high) {
    int8 a = {0}, b = {0};
    for (int j = 0; j < k; j += 2, z += 2 * stride) {
        int32_t two;
        memcpy(&two, q + j, 4);
        if (j + 1 == k) two &= 0xFFFF; /* the second one is of the next block */
        a += pairs(z, two);
        if (more) b += pairs(z + 8, two);
    }
    *low = a;
    *high = b;
}

/* Eight weights: to the bit as the codec says; to an ulp or two; or that times x, added up. */
INLINE void emit(int mode, int8 sum, float scale, double span, float near, float *w, const float *x, float8 *total) {
    if (mode == EXACT)
        *(float8 *)w = __builtin_convertvector(__builtin_convertvector(sum, double8) * (double)scale / span, float8);
    else if (mode == NEAR)
        *(float8 *)w = __builtin_convertvector(sum, float8) * near;
    else
        *total += __builtin_convertvector(sum, float8) * near * *(const float8 *)x;
}

INLINE float products(const Layer *l, const Tile *t, int n, float *w, const float *x, int mode, int B, int k, int wide) {
    const int32_t *table = l->table, *start[TILE];
    const int32_t *place = l->place;
    const int64_t stride = l->stride;
    const double span = l->span;
    const float unit = (float)(1 / l->span);
    float8 a = {0}, b = {0};
    for (int i = 0; B > 8 && i < n; i++) {
        start[i] = table + place[t->seed[i]];
        __builtin_prefetch(start[i]);
    }
    for (int i = 0; i < n; i++, w += B, x += B) {
        const int16_t *q = t->q + (k ? i * wide : t->first[i]);
        const int32_t *z = B > 8 ? start[i] : table + place[t->seed[i]];
        const float scale = t->scale[i], near = scale * unit;
        for (int c = 0; c < B; c += 16) { /* what is written behind a block is overwritten by the next */
            int8 low, high;
            sums(z + c, stride, q, k ? k : t->k[i], B - c > 8, &low, &high);
            emit(mode, low, scale, span, near, w + c, x + c, &a);
            if (B - c > 8) emit(mode, high, scale, span, near, w + c + 8, x + c + 8, &b);
        }
    }
    float total = 0;
    a += b;
    for (int c = 0; c < 8; c++) total += a[c];
    return total;
}

/* Common shapes get code of their own; the others share one. */
#define SHAPES(MODE)                                                                                                   \
    if (B == 8 && k == 3 && wide == 4) return products(l, &t, n, w, x, MODE, 8, 3, 4);                                 \
    if (B == 8 && k == 3) return products(l, &t, n, w, x, MODE, 8, 3, 3);                                              \
    if (B == 12 && k == 4) return products(l, &t, n, w, x, MODE, 12, 4, 4);                                            \
    if (B == 16 && k == 0) return products(l, &t, n, w, x, MODE, 16, 0, 0);                                            \
    if (B == 16 && k == 8) return products(l, &t, n, w, x, MODE, 16, 8, 8);                                            \
    return products(l, &t, n, w, x, MODE, B, k, wide);

static float tile(const Layer *l, int64_t first, int n, int64_t *code, float *w, const float *x, int mode) {
    Tile t;
    const int B = l->block, k = l->count_bits ? 0 : l->k, wide = l->word ? (k + 3) / 4 * 4 : k;
    if (l->word)
        unpack_words(l, first, n, &t);
    else
        *code = unpack_blocks(l, first, n, *code, &t);
    if (mode == EXACT) return products(l, &t, n, w, x, EXACT, B, k, wide);
    if (mode == NEAR) { SHAPES(NEAR) }
    SHAPES(FUSED)
}

static float dot(const float *a, const float *b, int64_t n) {
    float lane[32] = {0}, total = 0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int c = 0; c < 32; c++) lane[c] += a[i + c] * b[i + c];
    for (; i < n; i++) lane[i & 31] += a[i] * b[i];
    for (int c = 0; c < 32; c++) total += lane[c];
    return total;
}

/* One row: its weights into `out`, or else its products with m vectors x into y[0], y[rows], ... */
static void row(const Layer *l, int64_t r, float *out, const float *x, int64_t m, float *y) {
    const int64_t B = l->block, columns = l->columns, begin = r * columns, end = begin + columns;
    const int fused = !out && m == 1 && B % 8 == 0 && columns % B == 0;
    int64_t code = l->starts ? l->starts[r] : 0;
    float w[TILE * 255 + PAD];
    for (int64_t i = 0; !out && i < m; i++) y[i * l->rows + r] = 0;
    for (int64_t b = begin / B; b * B < end; b += TILE) {
        const int64_t blocks = (end + B - 1) / B - b;
        const int n = blocks < TILE ? (int)blocks : TILE;
        const int64_t left = b * B < begin ? begin : b * B, right = (b + n) * B > end ? end : (b + n) * B;
        if (fused) {
            y[r] += tile(l, b, n, &code, w, x + (left - begin), FUSED);
            continue;
        }
        tile(l, b, n, &code, w, x, out ? EXACT : NEAR);
        if (out) memcpy(out + (left - begin), w + (left - b * B), (size_t)(right - left) * sizeof(float));
        for (int64_t i = 0; !out && i < m; i++)
            y[i * l->rows + r] += dot(w + (left - b * B), x + i * columns + (left - begin), right - left);
    }
}

/* y, m x rows, from x, m x columns */
void icml26_forward(const Layer *l, const float *x, int64_t m, float *y) {
#pragma omp parallel for schedule(static) if (l->rows * l->columns > 1 << 18)
    for (int64_t r = 0; r < l->rows; r++) row(l, r, 0, x, m, y);
}

/* rows first to last - 1 of the weight */
void icml26_decode(const Layer *l, int64_t first, int64_t last, float *out) {
#pragma omp parallel for schedule(static) if ((last - first) * l->columns > 1 << 18)
    for (int64_t r = first; r < last; r++) row(l, r, out + (r - first) * l->columns, 0, 0, 0);
}
