/* Kernels that read and write whatever their arguments say, and nothing else: each byte is asked for at the address sanitizer,
 * where there is one. Elements are integers of any width, so every element type gives the same bits to every reader. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opbuild_argument.h"

enum { MOST = 20000, RANK = 64 };

extern void *__asan_region_is_poisoned(void *, size_t) __attribute__((weak));

static uint8_t *touched(uint8_t *place, size_t bytes) {
    if (__asan_region_is_poisoned && __asan_region_is_poisoned(place, bytes)) {
        fprintf(stderr, "a kernel was given memory that is not there: %zu bytes at %p\n", bytes, (void *)place);
        abort();
    }
    if ((uintptr_t)place % bytes) {
        fprintf(stderr, "a kernel was given %zu bytes at %p\n", bytes, (void *)place);
        abort();
    }
    return place;
}

static size_t item(const argument *a) { return (size_t)(a->bits + 7) / 8; }

/* The element at an index, each part of which is no more than the last of its dimension; NULL if there is none. */
static uint8_t *at(const argument *a, const int32_t *index, int rank) {
    int64_t place = 0;
    for (int i = 0; i < a->dimensions; i++) {
        int32_t wanted = i < rank ? index[i] : 0, last = a->dim[i].extent - 1;
        if (last < 0) return NULL;
        place += (int64_t)(wanted < last ? wanted : last) * a->dim[i].stride;
    }
    return touched(a->host + place * (int64_t)item(a), item(a));
}

static uint64_t get(const argument *a, const int32_t *index, int rank) {
    uint64_t value = 0;
    const uint8_t *from = at(a, index, rank);
    if (from) memcpy(&value, from, item(a));
    return value;
}

static void put(const argument *a, const int32_t *index, uint64_t value) {
    uint8_t *to = at(a, index, a->dimensions);
    if (to) memcpy(to, &value, item(a));
}

/* The next index of an argument; 0 behind the last, or after so many. */
static int next(const argument *a, int32_t *index, int *count) {
    if (++*count >= MOST) return 0;
    for (int i = 0; i < a->dimensions; i++) {
        if (++index[i] < a->dim[i].extent) return 1;
        index[i] = 0;
    }
    return 0;
}

#define FOR_EACH(a)                        \
    int32_t index[RANK] = {0}, count = 0; \
    do

#define NEXT(a) while (next(a, index, &count))

int add__kernel0(int32_t tasks, argument *x, argument *y, argument *out) {
    (void)tasks;
    FOR_EACH(out) put(out, index, get(x, index, out->dimensions) * 3 + get(y, index, out->dimensions) + 1);
    NEXT(out);
    return 0;
}

/* Two results, of which the second is made from the first. */
int both__kernel0(int32_t tasks, argument *x, argument *one, argument *two) {
    (void)tasks;
    {
        FOR_EACH(one) put(one, index, get(x, index, one->dimensions) + 5);
        NEXT(one);
    }
    FOR_EACH(two) put(two, index, get(one, index, two->dimensions) * 2 + get(x, index, two->dimensions));
    NEXT(two);
    return 0;
}

/* Elements of a table at places that were looked at before. */
int pick__kernel0(int32_t tasks, argument *table, argument *places, argument *out) {
    (void)tasks;
    FOR_EACH(out) {
        int32_t place = (int32_t)(get(places, index, out->dimensions) & INT32_MAX);
        put(out, index, get(table, &place, 1));
    }
    NEXT(out);
    return 0;
}
