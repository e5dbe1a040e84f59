/* One pass over weights: each is read where the model has it, multiplied, and written where a kernel reads it. */
#include "opbuild_arrange.h"

#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef uint32_t ANYWHERE bits;
typedef float ANYWHERE number;
typedef float vector __attribute__((vector_size(16)));
typedef vector ANYWHERE numbers;
typedef double wide __attribute__((vector_size(32)));
typedef int32_t places __attribute__((vector_size(16)));

#define LANES 4
#define FOR_EACH(count) for (int64_t i = 0; i < (count); i++, source += loop->source, out += loop->out)

/* As many rows of the source as a vector has lanes, which lie side by side in the output, each with a factor of its own. */
typedef struct {
    int64_t step;
    int scaled;
    double factors[LANES];
} rows;

static vector scaled(vector found, double factor) {
    const wide by = {factor, factor, factor, factor};
    return __builtin_convertvector(__builtin_convertvector(found, wide) * by, vector);
}

static void scale(const opbuild_loop *loop, const uint8_t *source, uint8_t *out, const uint8_t *factor) {
    int64_t done = 0;
    if (loop->factor == 0 && loop->source == sizeof(float)) {
        for (; done + LANES <= loop->extent; done += LANES, source += sizeof(vector), out += LANES * loop->out) {
            const vector product = scaled(*(const numbers *)source, *(const double *)factor);
            for (int lane = 0; lane < LANES; lane++) *(number *)(out + lane * loop->out) = product[lane];
        }
    }
    factor += done * loop->factor;
    FOR_EACH(loop->extent - done) {
        *(number *)out = (float)(*(const number *)source * *(const double *)factor);
        factor += loop->factor;
    }
}

/* Turn a square of numbers, read along the rows, and write it across them. */
static void turn(const rows *of, const uint8_t *source, uint8_t *out, int64_t step) {
    vector row[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        row[lane] = *(const numbers *)(source + lane * of->step);
        if (of->scaled) row[lane] = scaled(row[lane], of->factors[lane]);
    }
    const places low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
    const vector a = __builtin_shuffle(row[0], row[1], low), b = __builtin_shuffle(row[0], row[1], high);
    const vector c = __builtin_shuffle(row[2], row[3], low), d = __builtin_shuffle(row[2], row[3], high);
    *(numbers *)out = __builtin_shuffle(a, c, first);
    *(numbers *)(out + step) = __builtin_shuffle(a, c, second);
    *(numbers *)(out + 2 * step) = __builtin_shuffle(b, d, first);
    *(numbers *)(out + 3 * step) = __builtin_shuffle(b, d, second);
}

static void nest_rows(const opbuild_loop *loop, int rank, const rows *of, const uint8_t *source, uint8_t *out) {
    if (rank > 1) {
        FOR_EACH(loop->extent) nest_rows(loop + 1, rank - 1, of, source, out);
        return;
    }
    int64_t done = 0;
    if (loop->source == sizeof(float)) {
        for (; done + LANES <= loop->extent; done += LANES, source += sizeof(vector), out += LANES * loop->out)
            turn(of, source, out, loop->out);
    }
    FOR_EACH(loop->extent - done) {
        for (int lane = 0; lane < LANES; lane++) {
            const uint8_t *from = source + lane * of->step;
            if (of->scaled) ((number *)out)[lane] = (float)(*(const number *)from * of->factors[lane]);
            else ((bits *)out)[lane] = *(const bits *)from;
        }
    }
}

/* Return whether a loop runs along the output, and what is within it has one factor for each of its steps. */
static int is_across(const opbuild_loop *loop, int rank, const uint8_t *factor) {
    if (rank < 2 || loop->out != sizeof(float)) return 0;
    for (int inner = 1; factor && inner < rank; inner++)
        if (loop[inner].factor) return 0;
    return 1;
}

static void nest(const opbuild_loop *loop, int rank, const uint8_t *source, uint8_t *out, const uint8_t *factor) {
    int64_t done = 0;
    if (is_across(loop, rank, factor)) {
        rows of = {loop->source, factor != 0, {0}};
        for (; done + LANES <= loop->extent; done += LANES, source += LANES * loop->source, out += sizeof(vector)) {
            for (int lane = 0; factor && lane < LANES; lane++, factor += loop->factor) of.factors[lane] = *(const double *)factor;
            nest_rows(loop + 1, rank - 1, &of, source, out);
        }
    }
    if (rank > 1) {
        FOR_EACH(loop->extent - done) {
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
