/* Numbers moved from one arrangement in memory to another: how weights are packed. */
#ifndef OPBUILD_ARRANGE_H
#define OPBUILD_ARRANGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loop: how often, and by how many bytes it steps in each array. */
typedef struct {
    int64_t extent, source, out, factor;
} opbuild_loop;

/* Copy floats in nested loops, the outermost first. With factors, which are double, each product is rounded to double, then to
 * float; without, bits are copied. Only the factors must be aligned. */
void opbuild_arrange(const opbuild_loop *loops, int rank, const void *source, void *out, const double *factors);

#ifdef __cplusplus
}
#endif

#endif
