/* The scratch memory of kernels, from the C library.
 *
 * Kernels expect blocks aligned for their widest vectors, and may read a little before and behind them.
 *
 * Compiled by `make support` into the objects beside it, which are linked into networks. Declares the few functions of the
 * C library that it needs, so that it compiles for any target.
 */

#include <stddef.h>
#include <stdint.h>

extern void *malloc(size_t);
extern void free(void *);

#define ALIGNMENT 128 /* two vectors of the widest kind */

/* The block begins behind the address of what `malloc` returned. */
void *halide_malloc(void *context, size_t size) {
    (void)context;
    if (size > SIZE_MAX - 2 * ALIGNMENT - sizeof(void *)) return NULL;
    uint8_t *whole = malloc(size + 2 * ALIGNMENT + sizeof(void *));
    if (whole == NULL) return NULL;
    uintptr_t first = (uintptr_t)whole + sizeof(void *);
    uint8_t *block = (uint8_t *)((first + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    ((void **)block)[-1] = whole;
    return block;
}

void halide_free(void *context, void *block) {
    (void)context;
    if (block != NULL) free(((void **)block)[-1]);
}

const char opbuild_memory_source[] = SOURCE_DIGEST;
