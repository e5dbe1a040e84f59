/* What refuses indices out of range: called as a kernel is, before the one that reads them.
 *
 * That one only keeps to memory: it reads the nearest element, or writes nothing. Compiled by `make support` into the objects
 * beside it, which are linked into networks.
 */

#include "../opbuild_argument.h"

/* Two vectors of the narrowest kind that a machine has; indices lie at any multiple of their size. */
typedef uint64_t words __attribute__((vector_size(32), aligned(8), may_alias));
typedef uint32_t halves __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t signed_halves __attribute__((vector_size(32), aligned(4), may_alias));

/* Whether one of `number` indices, `step` apart, is not from 0, or from -count, to count - 1. Nothing is compared: where one is
 * outside, a difference has its highest bit set, also if it left the type. */
static int any_of_64(const int64_t *x, int64_t number, int64_t step, uint64_t count, int negative) {
    const uint64_t low = negative ? count : 0, most = count - 1;
    uint64_t wrong = 0;
    int64_t i = 0;
    if (step == 1) {
        words found = {0}, other = {0};
        for (; i + 8 <= number; i += 8) {
            words one = *(const words *)(x + i), two = *(const words *)(x + i + 4);
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
static int any_of_32(const int32_t *x, int64_t number, int64_t step, uint32_t count, int negative) {
    const uint32_t most = count - 1;
    const int32_t turns = negative ? -1 : 0;
    uint32_t wrong = 0;
    int64_t i = 0;
    if (step == 1) {
        halves found = {0};
        for (; i + 8 <= number; i += 8) {
            signed_halves one = *(const signed_halves *)(x + i), turned = one ^ (one >> 31 & turns);
            found |= (halves)turned | (most - (halves)turned);
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
static int any_outside(const argument *x, const argument *bounds, int negative) {
    int32_t group = bounds->dimensions;
    int64_t number = x->dim[0].extent / group;
    for (int32_t i = 0; i < group; i++) {
        uint32_t count = (uint32_t)bounds->dim[group - 1 - i].extent;
        if (x->bits == 64 ? any_of_64((const int64_t *)x->host + i, number, group, count, negative)
                          : any_of_32((const int32_t *)x->host + i, number, group, count, negative))
            return 1;
    }
    return 0;
}

/* Indices, of which negative ones count from the end. */
int opbuild_indices(int32_t tasks, const argument *x, const argument *bounds) {
    (void)tasks;
    return any_outside(x, bounds, 1);
}

/* Indices that count from the front only. */
int opbuild_places(int32_t tasks, const argument *x, const argument *bounds) {
    (void)tasks;
    return any_outside(x, bounds, 0);
}

const char opbuild_indices_source[] = SOURCE_DIGEST;
