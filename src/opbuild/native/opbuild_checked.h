/* Sums and products of numbers that a file says: all that could leave 64 bits is added and multiplied here. */
#ifndef OPBUILD_CHECKED_H
#define OPBUILD_CHECKED_H

#include <stdint.h>

/* Add to, or multiply, a number; return 0 where the result would not fit, which is then not to be used. */
static inline int opbuild_add(uint64_t *total, uint64_t more) { return !__builtin_add_overflow(*total, more, total); }
static inline int opbuild_multiply(uint64_t *total, uint64_t by) { return !__builtin_mul_overflow(*total, by, total); }

/* Whether `count` things from `first` on are among `size`. */
static inline int opbuild_inside(uint64_t first, uint64_t count, uint64_t size) {
    return first <= size && count <= size - first;
}

#endif
