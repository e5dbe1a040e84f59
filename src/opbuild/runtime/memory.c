/* The scratch memory of kernels: blocks of the C library, kept from one use to the next.
 *
 * A kernel takes and frees the same few blocks thousands of times a second, in several threads. Here a freed block waits in a
 * slot for whoever comes next, so there are as many blocks as were ever in use at once, each as large as the largest that was
 * asked for; nobody waits for a lock, and no page is given back and faulted in again between two runs.
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
#define SLOTS 32
#define LARGEST_KEPT (64u << 20)

/* What lies before a block. */
typedef struct {
    void *whole;     /* what `malloc` returned */
    size_t capacity; /* bytes of the block */
} header;

/* Processors fetch lines of 64 bytes in pairs; threads begin at different slots. */
static struct {
    void *block;
    uint8_t apart[128 - sizeof(void *)];
} slots[SLOTS] __attribute__((aligned(128)));

static header *header_of(void *block) { return (header *)block - 1; }

static size_t first_slot(void) { return ((uintptr_t)__builtin_frame_address(0) >> 12) * 7 % SLOTS; } /* by its stack */

static void *make(size_t size) {
    if (size > SIZE_MAX - 2 * ALIGNMENT - sizeof(header)) return NULL;
    uint8_t *whole = malloc(size + 2 * ALIGNMENT + sizeof(header));
    if (whole == NULL) return NULL;
    uintptr_t first = (uintptr_t)whole + sizeof(header);
    void *block = (void *)((first + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    header_of(block)->whole = whole;
    header_of(block)->capacity = size;
    return block;
}

void *halide_malloc(void *context, size_t size) {
    (void)context;
    size_t start = first_slot();
    for (size_t step = 0; step < SLOTS && size <= LARGEST_KEPT; step++) {
        void **place = &slots[(start + step) % SLOTS].block;
        if (__atomic_load_n(place, __ATOMIC_RELAXED) == NULL) continue;
        void *block = __atomic_exchange_n(place, NULL, __ATOMIC_ACQUIRE);
        if (block == NULL) continue;
        if (header_of(block)->capacity >= size) return block;
        free(header_of(block)->whole); /* a larger one takes its place */
        break;
    }
    return make(size);
}

void halide_free(void *context, void *block) {
    (void)context;
    if (block == NULL) return;
    size_t start = first_slot();
    for (size_t step = 0; step < SLOTS && header_of(block)->capacity <= LARGEST_KEPT; step++) {
        void *nothing = NULL, **place = &slots[(start + step) % SLOTS].block;
        if (__atomic_load_n(place, __ATOMIC_RELAXED) != NULL) continue;
        if (__atomic_compare_exchange_n(place, &nothing, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
    free(header_of(block)->whole);
}

/* When the library is unloaded. */
__attribute__((destructor)) static void release(void) {
    for (size_t slot = 0; slot < SLOTS; slot++) {
        void *block = __atomic_exchange_n(&slots[slot].block, NULL, __ATOMIC_ACQUIRE);
        if (block != NULL) free(header_of(block)->whole);
    }
}

const char opbuild_memory_source[] = SOURCE_DIGEST;
