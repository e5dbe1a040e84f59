/* Which of some indices are out of range; shared by what is linked into networks and the reader of offline models. */
#ifndef OPBUILD_INDICES_H
#define OPBUILD_INDICES_H

#include <stdint.h>

typedef struct {
    int32_t min, extent, stride;
    uint32_t flags;
} opbuild_dimension;

/* An argument of a kernel, as HalideRuntime.h has it. */
typedef struct {
    uint64_t device;
    const void *device_interface;
    uint8_t *host;
    uint64_t flags;
    uint8_t code, bits;
    uint16_t lanes;
    int32_t dimensions;
    opbuild_dimension *dim;
    void *padding;
} opbuild_argument;

/* Two vectors of the narrowest kind that a machine has; indices lie at any multiple of their size. */
typedef uint64_t opbuild_words __attribute__((vector_size(32), aligned(8), may_alias));
typedef uint32_t opbuild_halves __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t opbuild_signed_halves __attribute__((vector_size(32), aligned(4), may_alias));

/* Whether one of `number` indices, `step` apart, is not from 0, or from -count, to count - 1. Nothing is compared: where one is
 * outside, a difference has its highest bit set, also if it left the type. */
static int opbuild_any_of_64(const int64_t *x, int64_t number, int64_t step, uint64_t count, int negative) {
    const uint64_t low = negative ? count : 0, most = count - 1;
    uint64_t wrong = 0;
    int64_t i = 0;
    if (step == 1) {
        opbuild_words found = {0}, other = {0};
        for (; i + 8 <= number; i += 8) {
            opbuild_words one = *(const opbuild_words *)(x + i), two = *(const opbuild_words *)(x + i + 4);
            found |= (one + low) | (most - one);
            other |= (two + low) | (most - two);
        }
        found |= other;
        wrong = found[0] | found[1] | found[2] | found[3];
    }
    for (; i < number; i++) wrong |= ((uint64_t)x[i * step] + low) | (most - (uint64_t)x[i * step]);
    return (int)(wrong >> 63);
}

/* The same, where a sum would leave the type although the index is inside: -1 - x is compared in the place of a negative x. */
static int opbuild_any_of_32(const int32_t *x, int64_t number, int64_t step, uint32_t count, int negative) {
    const uint32_t most = count - 1;
    const int32_t turns = negative ? -1 : 0;
    uint32_t wrong = 0;
    int64_t i = 0;
    if (step == 1) {
        opbuild_halves found = {0};
        for (; i + 8 <= number; i += 8) {
            opbuild_signed_halves one = *(const opbuild_signed_halves *)(x + i), turned = one ^ (one >> 31 & turns);
            found |= (opbuild_halves)turned | (most - (opbuild_halves)turned);
        }
        for (int lane = 0; lane < 8; lane++) wrong |= found[lane];
    }
    for (; i < number; i++) {
        int32_t turned = x[i * step] ^ (x[i * step] >> 31 & turns);
        wrong |= (uint32_t)turned | (most - (uint32_t)turned);
    }
    return (int)(wrong >> 31);
}

/* Whether one of the indices in `x`, dense, is out of range. They come in groups of as many as `bounds` has dimensions; the extents
 * of these are the numbers of elements of which an index chooses one, the last one innermost. */
static int opbuild_any_outside(const opbuild_argument *x, const opbuild_argument *bounds, int negative) {
    int32_t group = bounds->dimensions;
    int64_t number = x->dim[0].extent / group;
    for (int32_t i = 0; i < group; i++) {
        uint32_t count = (uint32_t)bounds->dim[group - 1 - i].extent;
        if (x->bits == 64 ? opbuild_any_of_64((const int64_t *)x->host + i, number, group, count, negative)
                          : opbuild_any_of_32((const int32_t *)x->host + i, number, group, count, negative))
            return 1;
    }
    return 0;
}

#endif
