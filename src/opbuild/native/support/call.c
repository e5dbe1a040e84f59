/* Calls of kernels that run in one thread, on a stack that begins with a page; `call` in threads.c says why.
 *
 * A kernel takes fewer pointers than these pass; the rest are null and nobody looks at them. x86-64 passes six in registers, and
 * eight more fill a line of the stack, so that what lies behind them is aligned as well.
 *
 * Compiled by `make support` into the objects beside it, which are linked into networks.
 */

#include <stdint.h>

typedef int (*kernel_6)(void *, void *, void *, void *, void *, void *);
typedef int (*kernel_14)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                         void *);

int opbuild_call_6(kernel_6 kernel, void *a, void *b, void *c, void *d, void *e, void *f) {
    uint8_t page[64] __attribute__((aligned(4096)));
    int error;
    __asm__ volatile("" : : "r"(page) : "memory");
    error = kernel(a, b, c, d, e, f);
    __asm__ volatile("" : : "r"(page) : "memory"); /* the call is not the last thing here, so the frame is still there */
    return error;
}

int opbuild_call_14(kernel_14 kernel, void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i, void *j,
                    void *k, void *l, void *m, void *n) {
    uint8_t page[64] __attribute__((aligned(4096)));
    int error;
    __asm__ volatile("" : : "r"(page) : "memory");
    error = kernel(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
    __asm__ volatile("" : : "r"(page) : "memory");
    return error;
}

const char opbuild_call_source[] = SOURCE_DIGEST;
