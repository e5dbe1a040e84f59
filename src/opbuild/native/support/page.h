/* A call on a stack that begins with a page. Kernels keep 64-byte vectors in frames for which the compiler promises 16-byte
 * alignment only: where such a vector happens to lie across two pages, each use of it costs tens of cycles. One process in fifty
 * ran ResNet-50 in 41 ms instead of 28, for as long as its caller's stack was what it was.
 *
 * What follows the call keeps it from being the last thing in its function, whose frame would be gone by then. */

#define ON_A_PAGE(call)                                \
    do {                                               \
        char page[64] __attribute__((aligned(4096)));  \
        __asm__ volatile("" : : "r"(page) : "memory"); \
        call;                                          \
        __asm__ volatile("" : : "r"(page) : "memory"); \
    } while (0)
