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

/* Indices, dense, in groups of as many as `bounds` has dimensions: the numbers of elements of which each chooses one. */
typedef struct {
    const argument *x, *bounds;
    int negative, tasks, wrong;
} request;

static uint32_t count_of(const request *r, int64_t i) {
    int32_t group = r->bounds->dimensions;
    return (uint32_t)r->bounds->dim[group - 1 - i % group].extent;
}

/* Whether some indices, from the begin of a group, are not from 0, or from -count, to count - 1. Nothing is compared: where one
 * is outside, a sum or a difference has its highest bit set, also if it left the type. */
static int any_of_64(const request *r, int64_t begin, int64_t end) {
    const int64_t *x = (const int64_t *)r->x->host;
    uint64_t wrong = 0;
    int64_t i = begin;
    if (4 % r->bounds->dimensions == 0) {
        words low, most, found = {0}, other = {0};
        for (int lane = 0; lane < 4; lane++) {
            most[lane] = (uint64_t)count_of(r, lane) - 1;
            low[lane] = r->negative ? most[lane] + 1 : 0;
        }
        for (; i + 8 <= end; i += 8) {
            words one = *(const words *)(x + i), two = *(const words *)(x + i + 4);
            found |= (one + low) | (most - one);
            other |= (two + low) | (most - two);
        }
        found |= other;
        wrong = found[0] | found[1] | found[2] | found[3];
    }
    for (; i < end; i++) {
        uint64_t count = count_of(r, i), each = (uint64_t)x[i];
        wrong |= (each + (r->negative ? count : 0)) | (count - 1 - each);
    }
    return (int)(wrong >> 63);
}

/* The same, where a sum would leave the type although the index is inside: -1 - x stands for a negative x. */
static int any_of_32(const request *r, int64_t begin, int64_t end) {
    const int32_t *x = (const int32_t *)r->x->host, turns = r->negative ? -1 : 0;
    uint32_t wrong = 0;
    int64_t i = begin;
    if (r->bounds->dimensions == 1) {
        const uint32_t most = count_of(r, 0) - 1;
        halves found = {0};
        for (; i + 8 <= end; i += 8) {
            signed_halves one = *(const signed_halves *)(x + i), turned = one ^ (one >> 31 & turns);
            found |= (halves)turned | (most - (halves)turned);
        }
        for (int lane = 0; lane < 8; lane++) wrong |= found[lane];
    }
    for (; i < end; i++) {
        int32_t turned = x[i] ^ (x[i] >> 31 & turns);
        wrong |= (uint32_t)turned | (count_of(r, i) - 1 - (uint32_t)turned);
    }
    return (int)(wrong >> 31);
}

static int look(void *context, int task, uint8_t *closure) {
    request *r = (request *)closure;
    int64_t group = r->bounds->dimensions, groups = r->x->dim[0].extent / group;
    int64_t begin = groups * task / r->tasks * group, end = groups * (task + 1) / r->tasks * group;
    (void)context;
    if (r->x->bits == 64 ? any_of_64(r, begin, end) : any_of_32(r, begin, end)) __atomic_store_n(&r->wrong, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Not there where no kernel of the network divides its loops. */
extern int halide_do_par_for(void *, int (*)(void *, int, uint8_t *), int, int, uint8_t *) __attribute__((weak));

static int any_outside(int32_t tasks, const argument *x, const argument *bounds, int negative) {
    request r = {x, bounds, negative, tasks, 0};
    if (x->dimensions != 1 || bounds->dimensions < 1) return 1;
    if (tasks > 1 && halide_do_par_for) return halide_do_par_for(0, look, 0, tasks, (uint8_t *)&r) || r.wrong;
    r.tasks = 1;
    look(0, 0, (uint8_t *)&r);
    return r.wrong;
}

/* Indices, of which negative ones count from the end. */
int opbuild_indices(int32_t tasks, const argument *x, const argument *bounds) { return any_outside(tasks, x, bounds, 1); }

/* Indices that count from the front only. */
int opbuild_places(int32_t tasks, const argument *x, const argument *bounds) { return any_outside(tasks, x, bounds, 0); }

const char opbuild_indices_source[] = SOURCE_DIGEST;
