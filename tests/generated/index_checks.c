/* What refuses indices (support/indices.c), on arrays of every length, kind and place, whose memory ends where they end: it says
 * what looking at one after the other says, however many tasks there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opbuild_argument.h"

int opbuild_indices(int32_t tasks, const argument *x, const argument *bounds);
int opbuild_places(int32_t tasks, const argument *x, const argument *bounds);
int halide_do_par_for(void *context, int (*task)(void *, int, uint8_t *), int first, int size, uint8_t *closure);

enum { MOST = 70, GROUP = 6 };
static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

int halide_do_par_for(void *context, int (*task)(void *, int, uint8_t *), int first, int size, uint8_t *closure) {
    int error = 0;
    for (int i = 0; i < size; i++) error |= task(context, first + i, closure);
    return error;
}

/* A number that may be an index of so many elements, most often one. */
static int64_t drawn(int64_t count, int bits) {
    const int64_t ends[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -1, 0, count, count - 1, -count, -count - 1};
    int64_t value = draw(20) ? (int64_t)draw((uint64_t)count + 1) : ends[draw(sizeof ends / sizeof *ends)];
    if (value == count && draw(40)) value = 0;
    if (draw(4) == 0 && value >= 0 && value <= count) value -= count;
    return bits == 32 ? (int32_t)value : value;
}

static int try_one(void) {
    dimension length = {.stride = 1}, bounds[GROUP] = {{0}};
    int group = 1 + (int)draw(GROUP), bits = draw(2) ? 32 : 64, wrong[2] = {0, 0};
    length.extent = (int32_t)draw(MOST) * group;
    for (int i = 0; i < group; i++) bounds[i].extent = draw(8) ? (int32_t)draw(1000) : draw(2) ? INT32_MAX : 0;
    size_t item = (size_t)bits / 8;
    uint8_t *memory = malloc((size_t)length.extent * item + 1);
    if (!memory) return 0;
    for (int32_t i = 0; i < length.extent; i++) {
        int64_t count = bounds[group - 1 - i % group].extent, value = drawn(count, bits);
        int32_t narrow = (int32_t)value;
        memcpy(memory + (size_t)i * item, bits == 64 ? (void *)&value : (void *)&narrow, item);
        wrong[0] |= value < 0 || value >= count;
        wrong[1] |= value < -count || value >= count;
    }
    argument x = {.host = memory, .bits = (uint8_t)bits, .lanes = 1, .dimensions = 1, .dim = &length};
    argument counts = {.bits = 8, .lanes = 1, .dimensions = group, .dim = bounds};
    int32_t tasks = 1 + (int32_t)draw(5);
    int same = opbuild_places(tasks, &x, &counts) == wrong[0] && opbuild_indices(tasks, &x, &counts) == wrong[1];
    free(memory);
    return same;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    uint64_t first = strtoull(words[1], NULL, 10), seeds = strtoull(words[2], NULL, 10);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        state = seed * 0x9E3779B97F4A7C15u | 1;
        if (!try_one()) {
            printf("seed %llu: it says something else\n", (unsigned long long)seed);
            return 1;
        }
    }
    return 0;
}
