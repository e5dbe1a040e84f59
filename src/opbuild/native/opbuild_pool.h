/* The threads of a process, shared by all networks in it; opbuild_pool.c says how they work. */
#ifndef OPBUILD_POOL_H
#define OPBUILD_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*opbuild_task)(void *context, int index, uint8_t *closure);

/* A network that uses `threads`, its caller among them, begins or ends its use of the pool. The pool has no more threads of its
 * own than the network with the most needs, or than cores where several run at once; it starts them when they are first needed,
 * and ends them with the last network that needs them. A network may be unloaded when it has ended its use and no call of it is
 * running. */
void opbuild_pool_open(int threads);
void opbuild_pool_close(int threads);

/* Run tasks `first` to `first + size - 1` in at most `threads` threads, the caller among them. Returns 1, and the error of a
 * task that failed, else 0, in `error`; or returns 0 and has done nothing: then the caller runs the tasks alone. */
int opbuild_pool_run(int threads, opbuild_task task, void *context, int first, int size, uint8_t *closure, int *error);

#ifdef __cplusplus
}
#endif
#endif
