/* What refuses indices out of range: called as a kernel is, before the one that reads them.
 *
 * That one only keeps to memory: it reads the nearest element, or writes nothing. Compiled by `make support` into the objects
 * beside it, which are linked into networks.
 */

#include "../opbuild_indices.h"

/* Indices, of which negative ones count from the end. */
int opbuild_indices(int32_t tasks, const opbuild_argument *x, const opbuild_argument *bounds) {
    (void)tasks;
    return opbuild_any_outside(x, bounds, 1);
}

/* Indices that count from the front only. */
int opbuild_places(int32_t tasks, const opbuild_argument *x, const opbuild_argument *bounds) {
    (void)tasks;
    return opbuild_any_outside(x, bounds, 0);
}

const char opbuild_indices_source[] = SOURCE_DIGEST;
