/* Calls of kernels that run in one thread, on a stack that begins with a page (page.h).
 *
 * A kernel takes fewer words than this passes; it never looks at the rest. x86-64 passes six in registers, and eight more fill
 * a line of the stack, so that what lies behind them is aligned as well.
 *
 * Compiled by `make support` into the objects beside it, which are linked into networks.
 */

#include "page.h"

typedef int (*kernel)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                      void *);

/* Call the kernel that comes first with the 14 words behind it: the number of tasks, then pointers. */
int opbuild_call(void *const *a) {
    int error;
    ON_A_PAGE(error = ((kernel)a[0])(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14]));
    return error;
}

const char opbuild_call_source[] = SOURCE_DIGEST;
