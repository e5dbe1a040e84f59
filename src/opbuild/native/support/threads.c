/* A network's threads: the parallel loops of its kernels are divided among them.
 *
 * Takes the place of the thread pool in Halide's runtime: where that is linked too, its functions of these names are weak. It
 * is made for what a network is: many short parallel loops, one after the other, over data that the loop before has just
 * written.
 *
 * - Each thread begins with its own contiguous share of a loop's tasks, the same share each time, so that it finds in its
 *   core's cache what it wrote in the loop before. Who has finished takes tasks from the far end of another's share.
 * - A thread that has nothing to do looks for work for about 10 ms before it sleeps; every 4 us it gives up its core to
 *   whoever waits for it. Waking a thread costs more than many loops take, and worse: while the thread is being woken the
 *   other cores may be busy for a moment, it is put on its waker's core, the two take turns there, each sleeps while the
 *   other works, and no scheduler sees two threads that want to run. So a thread that finds itself on the caller's core
 *   leaves it, and keeps off it until it sleeps (`keep_off`).
 * - The caller works too and never waits for a thread that has not begun. So a loop also ends where threads can not be
 *   started, and in a forked child, which has none.
 * - One loop at a time is divided; a loop inside a task, or of a second caller, is run by its caller alone.
 *
 * Compiled by `make support` into the objects beside it, which are linked into networks: where networks are built there
 * may be no C compiler. Declares the few functions of the C library that it needs, so that it compiles for any target.
 */

#include <stdint.h>

#include "page.h"

#if defined(__x86_64__)
#define FUTEX 202L
#define SIGPROCMASK 14L
static inline void pause_core(void) { __builtin_ia32_pause(); }
static inline uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }
static inline uint64_t ticks_of_look(void) { return 10000; } /* 2 to 4 GHz: 2.5 to 5 us */
#elif defined(__aarch64__)
#define FUTEX 98L
#define SIGPROCMASK 135L
static inline void pause_core(void) { __asm__ volatile("isb" ::: "memory"); }
static inline uint64_t ticks(void) {
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
}
static inline uint64_t ticks_of_look(void) {
    uint64_t frequency;
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
    return frequency >> 18; /* 3.8 us */
}
#endif

typedef int (*task_function)(void *context, int index, uint8_t *closure);
typedef unsigned long thread_id;
extern int pthread_create(thread_id *, const void *, void *(*)(void *), void *);
extern int pthread_join(thread_id, void **);
extern int sched_yield(void);
extern int sched_getcpu(void);
extern int sched_getaffinity(int, unsigned long, unsigned long *);
extern int sched_setaffinity(int, unsigned long, const unsigned long *);
extern int getpid(void);
extern long syscall(long, ...);
extern long sysconf(int);

#define MOST 256 /* threads, the caller among them */
#define LOOKS 2500 /* before sleeping: about 10 ms */
#define LONG_LOOKS 1000000 /* some seconds */
#define WAIT_PRIVATE 128L
#define WAKE_PRIVATE 129L
#define SET_MASK 2L
#define PROCESSORS_ONLINE 84
#define CPUS 1024 /* as many as the C library's sets have */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_add_fetch(&(place), (value), __ATOMIC_SEQ_CST)

/* The tasks of one share that nobody has taken: the first in the low half, the one after the last in the high half. */
typedef struct {
    uint64_t range;
    uint8_t apart[120]; /* processors fetch lines of 64 bytes in pairs */
} share;

/* The loop that is divided; written by the caller that holds `held`, while it is closed and nobody is inside. */
static struct {
    uint32_t round; /* odd while the loop is open; sleeping threads wait for it to change */
    uint32_t sleepers;
    uint32_t stopping;
    uint8_t apart0[116];
    uint32_t inside; /* threads that may be looking at the loop */
    uint32_t left;   /* tasks not finished; a sleeping caller waits for it to change */
    uint32_t caller_sleeps;
    int error;
    uint8_t apart1[112];
    task_function function;
    void *context;
    uint8_t *closure;
    int first;
    uint32_t count; /* shares */
    int cpu;        /* where the caller runs */
    uint8_t apart2[92];
    share shares[MOST];
} loop __attribute__((aligned(128)));

static uint32_t held;
static int wanted;   /* threads, the caller among them; 0: not yet told */
static int started;  /* threads started, in the process `home` */
static int home;
static thread_id threads[MOST];

static void futex_wait(uint32_t *place, uint32_t value) { syscall(FUTEX, place, WAIT_PRIVATE, (long)value, 0L, 0L, 0L); }
static void futex_wake(uint32_t *place) { syscall(FUTEX, place, WAKE_PRIVATE, (long)MOST, 0L, 0L, 0L); }

/* Look at a place for about 4 us, until it is not `value`; then let whoever needs the core have it. */
static void look(uint32_t *place, uint32_t value) {
    uint64_t begin = ticks(), length = ticks_of_look();
    while (LOAD(*place) == value) {
        pause_core();
        if (ticks() - begin >= length) {
            sched_yield();
            return;
        }
    }
}

/* Take the first task of a share, or the last one; -1 if there is none. */
static int take(share *from, int last) {
    uint64_t range = LOAD(from->range), rest;
    uint32_t begin, end;
    do {
        begin = (uint32_t)range;
        end = (uint32_t)(range >> 32);
        if (begin >= end) return -1;
        rest = last ? (uint64_t)(end - 1) << 32 | begin : (uint64_t)end << 32 | (begin + 1);
    } while (!__atomic_compare_exchange_n(&from->range, &range, rest, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return (int)(last ? end - 1 : begin);
}

__attribute__((noinline)) static int call(void *context, task_function function, int index, uint8_t *closure) {
    int error;
    ON_A_PAGE(error = function(context, index, closure));
    return error;
}

static void run(int index) {
    if (!LOAD(loop.error)) {
        int error = call(loop.context, loop.function, loop.first + index, loop.closure);
        if (error) STORE(loop.error, error);
    }
    if (ADD(loop.left, -1) == 0 && LOAD(loop.caller_sleeps)) futex_wake(&loop.left);
}

/* Do tasks of the open loop until none is left to take: one's own share first, then the ends of others'. */
static void work(uint32_t self) {
    uint32_t count = loop.count;
    for (uint32_t step = 0; step < count; step++) {
        uint32_t owner = self + step < count ? self + step : (self + step) % count;
        int index;
        while ((index = take(&loop.shares[owner], step != 0)) >= 0) run(index);
    }
}

/* Where a thread may run: as it was told, and without the caller's core, if that is in force. */
typedef struct {
    unsigned long told[CPUS / 64], narrow[CPUS / 64];
    int is_narrow;
} places;

static int same(const unsigned long *one, const unsigned long *other) {
    for (int word = 0; word < CPUS / 64; word++)
        if (one[word] != other[word]) return 0;
    return 1;
}

/* Run wherever one was told again, unless somebody has told otherwise since. */
static void come_back(places *own) {
    unsigned long now[CPUS / 64] = {0};
    if (!own->is_narrow) return;
    own->is_narrow = 0;
    if (sched_getaffinity(0, sizeof now, now) >= 0 && same(now, own->narrow))
        sched_setaffinity(0, sizeof own->told, own->told);
}

/* Leave the caller's core, if this is it. A thread that is woken while the other cores are busy for a moment is put there, and
 * some schedulers gather threads on few cores by themselves; there the two would take turns. */
static void keep_off(places *own) {
    int cpu = sched_getcpu(), rest = 0;
    if (cpu < 0 || cpu >= CPUS || cpu != loop.cpu) return;
    come_back(own);
    for (int word = 0; word < CPUS / 64; word++) own->told[word] = 0;
    if (sched_getaffinity(0, sizeof own->told, own->told) < 0) return;
    for (int word = 0; word < CPUS / 64; word++) {
        own->narrow[word] = own->told[word] & ~(word == cpu / 64 ? 1UL << cpu % 64 : 0UL);
        rest |= own->narrow[word] != 0;
    }
    own->is_narrow = rest && sched_setaffinity(0, sizeof own->narrow, own->narrow) == 0;
}

static void *idle(void *number) {
    uint32_t self = (uint32_t)(uintptr_t)number, done = 0, looks = 0;
    places own;
    own.is_narrow = 0;
    for (;;) {
        uint32_t round = LOAD(loop.round);
        if (LOAD(loop.stopping)) return 0;
        if ((round & 1) && round != done) {
            ADD(loop.inside, 1);
            if (LOAD(loop.round) == round) { /* still open, and open until we are outside again */
                keep_off(&own);
                work(self);
            }
            ADD(loop.inside, -1);
            done = round;
            looks = 0;
        } else if (looks < LOOKS) {
            look(&loop.round, round);
            looks++;
        } else {
            come_back(&own);
            ADD(loop.sleepers, 1);
            if (LOAD(loop.round) == round && !LOAD(loop.stopping)) futex_wait(&loop.round, round);
            ADD(loop.sleepers, -1);
            looks = 0;
        }
    }
}

/* Start the threads that are still lacking; as many as the system allows. Signals are left to the caller's threads. */
static void start(void) {
    uint64_t all = ~(uint64_t)0, before = 0;
    if (wanted == 0) wanted = (int)sysconf(PROCESSORS_ONLINE);
    if (wanted < 1) wanted = 1;
    if (wanted > MOST) wanted = MOST;
    if (started >= wanted - 1) return;
    syscall(SIGPROCMASK, SET_MASK, &all, &before, 8L);
    while (started < wanted - 1) {
        if (pthread_create(&threads[started], 0, idle, (void *)(uintptr_t)(started + 1)) != 0) {
            wanted = started + 1;
            break;
        }
        started++;
    }
    syscall(SIGPROCMASK, SET_MASK, &before, (void *)0, 8L);
    home = getpid();
}

static int run_alone(void *context, task_function function, int first, int size, uint8_t *closure) {
    for (int index = 0; index < size; index++) {
        int error = call(context, function, first + index, closure);
        if (error) return error;
    }
    return 0;
}

static void open_loop(uint32_t size) {
    uint32_t count = (uint32_t)wanted < size ? (uint32_t)wanted : size;
    for (uint32_t number = 0; number < count; number++) {
        uint64_t begin = (uint64_t)size * number / count, end = (uint64_t)size * (number + 1) / count;
        STORE(loop.shares[number].range, end << 32 | begin);
    }
    loop.count = count;
    loop.left = size;
    loop.caller_sleeps = 0;
    loop.error = 0;
    ADD(loop.round, 1);
    if (LOAD(loop.sleepers)) futex_wake(&loop.round);
}

static int close_loop(void) {
    uint32_t left, inside;
    for (int looks = 0; (left = LOAD(loop.left)) != 0; looks++) {
        if (looks < LOOKS) {
            look(&loop.left, left);
        } else {
            STORE(loop.caller_sleeps, 1);
            if ((left = LOAD(loop.left)) != 0) futex_wait(&loop.left, left);
        }
    }
    ADD(loop.round, 1);
    while ((inside = LOAD(loop.inside)) != 0) look(&loop.inside, inside);
    return loop.error;
}

static int divide(void *context, task_function function, int first, int size, uint8_t *closure) {
    int error;
    if (size <= 1 || wanted == 1 || __atomic_exchange_n(&held, 1, __ATOMIC_SEQ_CST))
        return run_alone(context, function, first, size, closure);
    start();
    loop.function = function;
    loop.context = context;
    loop.closure = closure;
    loop.first = first;
    loop.cpu = sched_getcpu();
    open_loop((uint32_t)size);
    work(0);
    error = close_loop();
    STORE(held, 0);
    return error;
}

typedef int (*loop_function)(void *context, task_function function, int first, int size, uint8_t *closure);
static loop_function chosen = divide;

int halide_do_par_for(void *context, task_function function, int first, int size, uint8_t *closure) {
    return LOAD(chosen)(context, function, first, size, closure);
}

/* Let another function run the loops, or with a null pointer this one again; return which one has. */
loop_function halide_set_custom_do_par_for(loop_function other) {
    return __atomic_exchange_n(&chosen, other ? other : divide, __ATOMIC_SEQ_CST);
}

int halide_set_num_threads(int number) {
    int before = wanted;
    wanted = number;
    return before;
}

int halide_get_num_threads(void) { return wanted; }

/* End the threads, once no loop is open; those of a forked child's parent are not the child's to wait for. */
void halide_shutdown_thread_pool(void) {
    if (started == 0 || home != getpid()) return;
    for (int looks = 0; __atomic_exchange_n(&held, 1, __ATOMIC_SEQ_CST); looks++) {
        if (looks == LONG_LOOKS) return; /* the process ends in the middle of a loop, and takes the threads with it */
        look(&held, 1);
    }
    STORE(loop.stopping, 1);
    ADD(loop.round, 2);
    futex_wake(&loop.round);
    while (started > 0) pthread_join(threads[--started], 0);
    STORE(loop.stopping, 0);
    STORE(held, 0);
}

const char opbuild_threads_source[] = SOURCE_DIGEST;
