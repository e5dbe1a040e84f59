/* The scratch memory of kernels: blocks of the C library, kept from one use to the next.
 *
 * A kernel takes and frees the same few blocks thousands of times a second, in several threads. Here a freed block waits in a
 * slot, first of all for the thread that freed it: its lines lie in that thread's core's cache, and who takes another's has to
 * fetch all of them. There are as many blocks as were ever in use at once, each as large as the largest that was asked for;
 * nobody waits for a lock, and no page is given back and faulted in again between two runs.
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
#define SLOTS 512 /* a few for each of 256 threads */
#define LARGEST_KEPT (64u << 20)

/* What lies before a block. */
typedef struct {
    void *whole;     /* what `malloc` returned */
    size_t capacity; /* bytes of the block */
} header;

/* Processors fetch lines of 64 bytes in pairs. */
static struct {
    void *block;
    uintptr_t owner; /* the thread that freed it; another may just have taken it, so this is only a hint */
    uint8_t apart[128 - sizeof(void *) - sizeof(uintptr_t)];
} slots[SLOTS] __attribute__((aligned(128)));

static header *header_of(void *block) { return (header *)block - 1; }

static uintptr_t thread(void) { return (uintptr_t)__builtin_thread_pointer(); }

/* Where a thread begins to look: its own slot, mostly. */
static size_t first_slot(uintptr_t self) { return (self >> 6) * 0x9E3779B97F4A7C15u >> 55; }

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

/* Take a block of this thread's, or of anybody's, out of its slot. */
static void *take(uintptr_t self, int anybodys) {
    size_t start = first_slot(self);
    for (size_t step = 0; step < SLOTS; step++) {
        size_t slot = (start + step) % SLOTS;
        if (__atomic_load_n(&slots[slot].block, __ATOMIC_RELAXED) == NULL) continue;
        if (!anybodys && __atomic_load_n(&slots[slot].owner, __ATOMIC_RELAXED) != self) continue;
        void *block = __atomic_exchange_n(&slots[slot].block, NULL, __ATOMIC_ACQUIRE);
        if (block != NULL) return block;
    }
    return NULL;
}

void *halide_malloc(void *context, size_t size) {
    (void)context;
    if (size > LARGEST_KEPT) return make(size);
    uintptr_t self = thread();
    void *block = take(self, 0);
    if (block == NULL) block = take(self, 1);
    if (block == NULL) return make(size);
    if (header_of(block)->capacity >= size) return block;
    free(header_of(block)->whole); /* a larger one takes its place */
    return make(size);
}

void halide_free(void *context, void *block) {
    (void)context;
    if (block == NULL) return;
    uintptr_t self = thread();
    size_t start = first_slot(self);
    for (size_t step = 0; step < SLOTS && header_of(block)->capacity <= LARGEST_KEPT; step++) {
        size_t slot = (start + step) % SLOTS;
        void *nothing = NULL;
        if (__atomic_load_n(&slots[slot].block, __ATOMIC_RELAXED) != NULL) continue;
        if (__atomic_compare_exchange_n(&slots[slot].block, &nothing, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
            __atomic_store_n(&slots[slot].owner, self, __ATOMIC_RELAXED);
            return;
        }
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
