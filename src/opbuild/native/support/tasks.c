/* The parallel loops of a network's kernels: handed to the process's pool of threads (opbuild_pool.c), or else run by their
 * caller alone.
 *
 * Takes the place of the thread pool in Halide's runtime: where that is linked too, its functions of these names are weak.
 * Each task gets a stack that begins with a page (page.h).
 *
 * Compiled by `make support` into the objects beside it, which are linked into networks: where networks are built there
 * may be no C compiler.
 */

#include "../opbuild_pool.h"
#include "page.h"

typedef int (*loop_function)(void *context, opbuild_task function, int first, int size, uint8_t *closure);
typedef int (*pool_function)(int threads, opbuild_task task, void *context, int first, int size, uint8_t *closure, int *error);

static pool_function pool;
static int threads;

typedef struct {
    opbuild_task function;
    uint8_t *closure;
} task;

__attribute__((noinline)) static int run_on_a_page(void *context, int index, uint8_t *closure) {
    const task *each = (const task *)closure;
    int error;
    ON_A_PAGE(error = each->function(context, index, each->closure));
    return error;
}

static int divide(void *context, opbuild_task function, int first, int size, uint8_t *closure) {
    task each = {function, closure};
    int error = 0;
    if (pool && pool(threads, run_on_a_page, context, first, size, (uint8_t *)&each, &error)) return error;
    for (int index = 0; index < size && !error; index++) error = run_on_a_page(context, first + index, (uint8_t *)&each);
    return error;
}

static loop_function chosen = divide;

int halide_do_par_for(void *context, opbuild_task function, int first, int size, uint8_t *closure) {
    return __atomic_load_n(&chosen, __ATOMIC_SEQ_CST)(context, function, first, size, closure);
}

/* Let another function run the loops, or with a null pointer this one again; return which one has. */
loop_function halide_set_custom_do_par_for(loop_function other) {
    return __atomic_exchange_n(&chosen, other ? other : divide, __ATOMIC_SEQ_CST);
}

/* Divide loops among at most so many threads, with a pool's `opbuild_pool_run`; to be called before any kernel. */
void opbuild_use_pool(pool_function run, int number) {
    pool = run;
    threads = number;
}

const char opbuild_tasks_source[] = SOURCE_DIGEST;
