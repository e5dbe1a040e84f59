/* One pass over weights: each is read where the model has it, multiplied, and written where a kernel reads it. */
#include "opbuild_arrange.h"

#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef uint32_t ANYWHERE bits;
typedef float ANYWHERE number;
typedef float vector __attribute__((vector_size(16)));
typedef vector ANYWHERE numbers;
typedef double wide __attribute__((vector_size(32)));

#define FOR_EACH(count) for (int64_t i = 0; i < (count); i++, source += loop->source, out += loop->out)

static void scale(const opbuild_loop *loop, const uint8_t *source, uint8_t *out, const uint8_t *factor) {
    int64_t done = 0;
    if (loop->factor == 0 && loop->source == sizeof(float)) {
        const double same = *(const double *)factor;
        const wide by = {same, same, same, same};
        for (; done + 4 <= loop->extent; done += 4, source += sizeof(vector), out += 4 * loop->out) {
            const vector found = *(const numbers *)source;
            const vector product = __builtin_convertvector(__builtin_convertvector(found, wide) * by, vector);
            for (int lane = 0; lane < 4; lane++) *(number *)(out + lane * loop->out) = product[lane];
        }
    }
    factor += done * loop->factor;
    FOR_EACH(loop->extent - done) {
        *(number *)out = (float)(*(const number *)source * *(const double *)factor);
        factor += loop->factor;
    }
}

static void nest(const opbuild_loop *loop, int rank, const uint8_t *source, uint8_t *out, const uint8_t *factor) {
    if (rank > 1) {
        FOR_EACH(loop->extent) {
            nest(loop + 1, rank - 1, source, out, factor);
            if (factor) factor += loop->factor;
        }
    } else if (factor) {
        scale(loop, source, out, factor);
    } else {
        FOR_EACH(loop->extent) *(bits *)out = *(const bits *)source;
    }
}

void opbuild_arrange(const opbuild_loop *loops, int rank, const void *source, void *out, const double *factors) {
    nest(loops, rank, source, out, (const uint8_t *)factors);
}

#ifdef SOURCE_DIGEST
const char opbuild_arrange_source[] = SOURCE_DIGEST;
#endif
