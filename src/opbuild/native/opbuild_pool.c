/* The threads of a process, shared by all networks in it: the parallel loops of their kernels are divided among them.
 *
 * It is made for what networks are: many short parallel loops, one after the other, over data that the loop before has just
 * written.
 *
 * - Each thread begins with its own contiguous share of a loop's tasks, the same share each time, so that it finds in its
 *   core's cache what it wrote in the loop before. Who has finished takes tasks from the far end of another's share.
 * - The caller works too and never waits for a thread that has not begun. So a loop also ends where threads can not be
 *   started, and one that is being woken holds nobody up.
 * - Several loops may be open at once, each with the threads that its own network may use. Who opens a loop invites threads
 *   that are free, always from the first, so that one caller has the same threads each time. Who has finished looks at the
 *   open loops and joins the one with the fewest helpers. A loop inside a task is run by its caller alone, and so are loops
 *   for which there is no room.
 * - There are as many threads as the loops that were open at once could use, up to what the network with the most needs, or
 *   to one for each core where networks run at once. The callers are threads, too.
 * - A thread that has nothing to do looks for work for about 10 ms before it sleeps; every 4 us it gives up its core to
 *   whoever waits for it. Waking a thread costs more than many loops take, and worse: while the thread is being woken the
 *   other cores may be busy for a moment, it is put on its waker's core, the two take turns there, each sleeps while the
 *   other works, and no scheduler sees two threads that want to run. So a thread that finds itself on the caller's core
 *   leaves it, and keeps off it until it sleeps (`keep_off`); not where several callers run, who need all cores.
 * - Everything that describes the threads lies in memory that a forked child finds empty, whatever its parent was doing at
 *   that moment: the child starts threads of its own when it needs them.
 *
 * Compiled by `make support` into the libraries in `support` that Python loads: where networks run there may be no C compiler.
 * A C program compiles it with opbuild_om.c. Declares the few functions of the C library that it needs, so that it compiles
 * for any target.
 */

#include "opbuild_pool.h"

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define FUTEX 202L
#define SIGPROCMASK 14L
static inline void pause_core(void) { __builtin_ia32_pause(); }
static inline uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }
static inline uint64_t ticks_of_look(void) { return 10000; } /* 2 to 4 GHz: 2.5 to 5 us */
#else
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

typedef unsigned long thread_id;
extern int pthread_create(thread_id *, const void *, void *(*)(void *), void *);
extern int pthread_join(thread_id, void **);
extern int sched_yield(void);
extern int sched_getcpu(void);
extern int sched_getaffinity(int, unsigned long, unsigned long *);
extern int sched_setaffinity(int, unsigned long, const unsigned long *);
extern int getpid(void);
extern long syscall(long, ...);
extern void *mmap(void *, unsigned long, int, int, int, long);
extern int munmap(void *, unsigned long);
extern int madvise(void *, unsigned long, int);

#define MOST 256 /* threads of a loop, the caller among them */
#define LOOPS 32 /* open at once */
#define LOOKS 2500 /* before sleeping: about 10 ms */
#define WAIT_PRIVATE 128L
#define WAKE_PRIVATE 129L
#define SET_MASK 2L
#define READ_AND_WRITE 3
#define PRIVATE_ANONYMOUS 0x22
#define WIPE_ON_FORK 18
#define CPUS 1024 /* as many as the C library's sets have */
#define FORKED (-1)

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_add_fetch(&(place), (value), __ATOMIC_SEQ_CST)
#define EXCHANGE(place, value) __atomic_exchange_n(&(place), (value), __ATOMIC_SEQ_CST)
/* Store `value` if the place holds `old`, else put into `old` what it holds. */
#define REPLACE(place, old, value) __atomic_compare_exchange_n(&(place), &(old), (value), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/* The tasks of one share that nobody has taken: the first in the low half, the one after the last in the high half. */
typedef struct {
    uint64_t range;
} __attribute__((aligned(128))) share; /* processors fetch lines of 64 bytes in pairs */

/* What the word `state` of a loop holds: how many threads are inside, how many may be, and two flags. */
#define INSIDE(state) ((state) & 0x3ff)
#define ROOM 10 /* bits to the left */
#define MAY_JOIN(state) ((state) & OPEN && INSIDE(state) < ((state) >> ROOM & 0x3ff))
#define OPEN (1u << 31)          /* there may be tasks that nobody has taken */
#define CALLER_SLEEPS (1u << 30) /* until nobody is inside */

/* A loop; but for `state`, `error` and the shares it is written by its caller alone, while it is closed and nobody inside. */
typedef struct {
    uint32_t state;
    struct {
        opbuild_task task;
        void *context;
        uint8_t *closure;
        int first;
        uint32_t count; /* shares, at least two */
        int cpu;        /* where the caller runs */
        int error;
    } __attribute__((aligned(128)));
    share shares[MOST];
} __attribute__((aligned(128))) loop;

/* What the word `word` of a thread holds; any other value invites it to loop `word - INVITED`. */
enum { LOOKS_FOR_WORK, SLEEPS, WORKS, INVITED };

typedef struct pool pool;
typedef struct {
    uint32_t word;
    uint32_t ends;
    uint32_t number; /* from 1; a caller is number 0 of its loop */
    pool *home;
    thread_id thread;
} __attribute__((aligned(128))) worker;

struct pool {
    uint32_t alive; /* 0 in a forked child */
    uint32_t cores; /* that this process may use */
    int process;    /* the one that made it, where the system does not empty it in a child; else 0 */
    uint32_t started;
    uint32_t refused;  /* so many threads could not be had, or are more than the open networks need */
    uint32_t changing; /* held by who starts or ends threads */
    uint64_t claimed __attribute__((aligned(128))); /* a bit for each loop that has a caller */
    worker workers[MOST];
    loop loops[LOOPS];
};

static pool *current;
static uint32_t networks[MOST + 1]; /* by the threads that they use */
static __thread int within;         /* a task, or a thread of the pool */

static void futex_wait(uint32_t *place, uint32_t value) { syscall(FUTEX, place, WAIT_PRIVATE, (long)value, 0L, 0L, 0L); }
static void futex_wake(uint32_t *place) { syscall(FUTEX, place, WAKE_PRIVATE, 1L, 0L, 0L, 0L); }

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

/* -- the pool of this process ------------------------------------------------------------------------------------- */

static int is_ours(pool *all) { return LOAD(all->alive) && (all->process == 0 || all->process == getpid()); }

static uint32_t usable_cores(void) {
    unsigned long mask[CPUS / 64] = {0};
    uint32_t count = 0;
    if (sched_getaffinity(0, sizeof mask, mask) < 0) return 1;
    for (int word = 0; word < CPUS / 64; word++)
        for (unsigned long rest = mask[word]; rest; rest &= rest - 1) count++;
    return count;
}

/* Put a new pool in the place of none, or of one that a parent left. */
static pool *make(pool *before) {
    pool *made = mmap(0, sizeof *made, READ_AND_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    if (made == (pool *)-1) return 0;
    if (madvise(made, sizeof *made, WIPE_ON_FORK) != 0) made->process = getpid();
    made->cores = usable_cores();
    made->alive = 1;
    if (REPLACE(current, before, made)) return made;
    munmap(made, sizeof *made);
    return before;
}

static pool *ours(void) {
    pool *all = LOAD(current);
    return all && is_ours(all) ? all : make(all);
}

/* -- tasks -------------------------------------------------------------------------------------------------------- */

/* Take the first task of a share, or the last one; -1 if there is none. */
static int take(share *from, int last) {
    uint64_t range = LOAD(from->range), rest;
    uint32_t begin, end;
    do {
        begin = (uint32_t)range;
        end = (uint32_t)(range >> 32);
        if (begin >= end) return -1;
        rest = last ? (uint64_t)(end - 1) << 32 | begin : (uint64_t)end << 32 | (begin + 1);
    } while (!REPLACE(from->range, range, rest));
    return (int)(last ? end - 1 : begin);
}

/* Do tasks of a loop until none is left to take: one's own share first, then the ends of others'. Nobody needs to join then. */
static void work(loop *open, uint32_t own) {
    uint32_t count = open->count;
    for (uint32_t step = 0; step < count; step++) {
        share *from = &open->shares[own + step < count ? own + step : own + step - count];
        for (int index; !LOAD(open->error) && (index = take(from, step != 0)) >= 0;) {
            int error = open->task(open->context, open->first + index, open->closure);
            if (error) STORE(open->error, error);
        }
    }
    if (LOAD(open->state) & OPEN) __atomic_and_fetch(&open->state, ~OPEN, __ATOMIC_SEQ_CST);
}

/* -- where threads run -------------------------------------------------------------------------------------------- */

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
static void keep_off(places *own, int callers) {
    int cpu = sched_getcpu(), rest = 0;
    if (cpu < 0 || cpu >= CPUS || cpu != callers) return;
    come_back(own);
    for (int word = 0; word < CPUS / 64; word++) own->told[word] = 0;
    if (sched_getaffinity(0, sizeof own->told, own->told) < 0) return;
    for (int word = 0; word < CPUS / 64; word++) {
        own->narrow[word] = own->told[word] & ~(word == cpu / 64 ? 1UL << cpu % 64 : 0UL);
        rest |= own->narrow[word] != 0;
    }
    own->is_narrow = rest && sched_setaffinity(0, sizeof own->narrow, own->narrow) == 0;
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

/* The open loop that has the fewest helpers and room for one more. */
static loop *neediest(pool *all) {
    uint32_t fewest = MOST;
    loop *found = 0;
    for (uint64_t rest = LOAD(all->claimed); rest; rest &= rest - 1) {
        loop *each = &all->loops[__builtin_ctzll(rest)];
        uint32_t state = LOAD(each->state);
        if (MAY_JOIN(state) && INSIDE(state) < fewest) {
            fewest = INSIDE(state);
            found = each;
        }
    }
    return found;
}

/* Join a loop, unless it was closed or filled meanwhile; its caller waits for who is inside. */
static int help(pool *all, loop *open, uint32_t number, places *own) {
    uint32_t state = LOAD(open->state);
    do
        if (!MAY_JOIN(state)) return 0;
    while (!REPLACE(open->state, state, state + 1));
    uint64_t claimed = LOAD(all->claimed);
    if ((claimed & (claimed - 1)) == 0) keep_off(own, open->cpu);
    work(open, number < open->count ? number : 1 + (number - 1) % (open->count - 1));
    state = __atomic_fetch_sub(&open->state, 1, __ATOMIC_SEQ_CST);
    if (INSIDE(state) == 1 && state & CALLER_SLEEPS) futex_wake(&open->state);
    return 1;
}

/* Sleep until one is invited or to end. A loop that was opened before is seen here, by others the thread is seen asleep. */
static void sleep_until_called(worker *self) {
    uint32_t word = LOOKS_FOR_WORK;
    if (!REPLACE(self->word, word, SLEEPS)) return;
    if (!LOAD(self->ends) && !neediest(self->home)) futex_wait(&self->word, SLEEPS);
    word = SLEEPS;
    REPLACE(self->word, word, LOOKS_FOR_WORK);
}

static void *idle(void *place) {
    worker *self = place;
    pool *all = self->home;
    uint32_t number = self->number, looks = 0;
    places own;
    own.is_narrow = 0;
    within = 1;
    while (!LOAD(self->ends)) {
        uint32_t word = LOAD(self->word);
        loop *open = word >= INVITED ? &all->loops[word - INVITED] : neediest(all);
        if (open) {
            STORE(self->word, WORKS);
            if (help(all, open, number, &own) || word >= INVITED) looks = 0;
            STORE(self->word, LOOKS_FOR_WORK);
        } else if (looks < LOOKS) {
            look(&self->word, LOOKS_FOR_WORK);
            looks++;
        } else {
            if (!is_ours(all)) return 0; /* a task has forked here, and the child's only thread has nothing to do */
            come_back(&own);
            sleep_until_called(self);
            looks = 0;
        }
    }
    return 0;
}

/* As many threads as there may be: what the open network with the most needs, and where several run at once one for each core,
 * their callers' left out, but no more than all of them need. */
static uint32_t most_needed(const pool *all) {
    uint32_t together = 0, alone = 0;
    for (uint32_t threads = 2; threads <= MOST; threads++) {
        uint32_t users = LOAD(networks[threads]);
        if (users) alone = threads - 1;
        if (together < MOST) together += (users < MOST ? users : MOST) * (threads - 1);
    }
    if (together > all->cores - 1) together = all->cores - 1;
    if (together > MOST - 1) together = MOST - 1;
    return together > alone ? together : alone;
}

/* The threads that the loops of all callers may have, and one more loop. */
static uint32_t wanted(pool *all, uint32_t more) {
    for (uint64_t rest = LOAD(all->claimed); rest && more < MOST; rest &= rest - 1)
        more += LOAD(all->loops[__builtin_ctzll(rest)].state) >> ROOM & 0x3ff;
    return more < MOST ? more : MOST - 1;
}

/* Start threads that a loop lacks; as many as the system allows. Signals are left to the caller's threads. */
static void start(pool *all, uint32_t number) {
    uint64_t every = ~(uint64_t)0, before = 0;
    uint32_t most;
    if (LOAD(all->started) >= number || LOAD(all->refused) >= number || EXCHANGE(all->changing, 1)) return;
    syscall(SIGPROCMASK, SET_MASK, &every, &before, 8L);
    most = most_needed(all);
    while (all->started < number && all->started < most) {
        worker *next = &all->workers[all->started + 1];
        next->home = all;
        next->number = all->started + 1;
        STORE(next->ends, 0);
        STORE(next->word, LOOKS_FOR_WORK);
        if (pthread_create(&next->thread, 0, idle, next) != 0) break;
        ADD(all->started, 1);
    }
    if (all->started < number) STORE(all->refused, number);
    syscall(SIGPROCMASK, SET_MASK, &before, (void *)0, 8L);
    STORE(all->changing, 0);
}

/* End the threads that no network needs any more, and wait for them: their code may be about to be unloaded. */
static void end(pool *all) {
    while (EXCHANGE(all->changing, 1)) look(&all->changing, 1);
    while (all->started > most_needed(all)) {
        worker *last = &all->workers[all->started];
        uint32_t asleep = SLEEPS;
        ADD(all->started, -1);
        STORE(last->ends, 1);
        if (REPLACE(last->word, asleep, LOOKS_FOR_WORK)) futex_wake(&last->word);
        pthread_join(last->thread, 0);
    }
    STORE(all->refused, 0);
    STORE(all->changing, 0);
}

/* -- loops -------------------------------------------------------------------------------------------------------- */

static loop *claim(pool *all) {
    uint64_t claimed = LOAD(all->claimed), free;
    do {
        free = ~claimed & ((1ull << LOOPS) - 1);
        if (!free) return 0;
    } while (!REPLACE(all->claimed, claimed, claimed | (free & -free)));
    return &all->loops[__builtin_ctzll(free)];
}

static void release(pool *all, loop *closed) {
    __atomic_and_fetch(&all->claimed, ~(1ull << (closed - all->loops)), __ATOMIC_SEQ_CST);
}

/* Ask free threads to a loop: the first ones. Who was asked before and has not come yet comes to this one now. */
static void invite(pool *all, loop *open, uint32_t wanted) {
    uint32_t invitation = INVITED + (uint32_t)(open - all->loops), started = LOAD(all->started);
    for (uint32_t number = 1; number <= started && wanted; number++) {
        worker *each = &all->workers[number];
        uint32_t word = LOAD(each->word);
        if (word == WORKS) continue;
        if (word >= INVITED && word != invitation && LOAD(all->loops[word - INVITED].state) & OPEN) continue;
        if (!REPLACE(each->word, word, invitation)) continue;
        if (word == SLEEPS) futex_wake(&each->word);
        wanted--;
    }
}

static void open_loop(pool *all, loop *free, uint32_t threads, uint32_t size) {
    uint32_t count = threads < size ? threads : size;
    for (uint32_t number = 0; number < count; number++) {
        uint64_t begin = (uint64_t)size * number / count, end = (uint64_t)size * (number + 1) / count;
        __atomic_store_n(&free->shares[number].range, end << 32 | begin, __ATOMIC_RELAXED);
    }
    free->count = count;
    free->cpu = sched_getcpu();
    STORE(free->error, 0);
    STORE(free->state, OPEN | (count - 1) << ROOM);
    invite(all, free, count - 1);
}

/* Wait until nobody is inside: all tasks were taken, so all are done then. */
static int close_loop(pool *all, loop *open) {
    uint32_t state;
    for (int looks = 0; INSIDE(state = LOAD(open->state)) && is_ours(all); looks++) {
        if (looks < LOOKS) {
            look(&open->state, state);
        } else {
            state = __atomic_or_fetch(&open->state, CALLER_SLEEPS, __ATOMIC_SEQ_CST);
            if (INSIDE(state)) futex_wait(&open->state, state);
        }
    }
    return is_ours(all) ? open->error : FORKED; /* a task has forked, and in the child others' tasks are not done */
}

int opbuild_pool_run(int threads, opbuild_task task, void *context, int first, int size, uint8_t *closure, int *error) {
    pool *all;
    loop *mine;
    if (threads > MOST) threads = MOST;
    if (within || threads < 2 || size < 2 || !(all = ours())) return 0;
    start(all, wanted(all, (uint32_t)threads - 1));
    if (!LOAD(all->started) || !(mine = claim(all))) return 0;
    mine->task = task;
    mine->context = context;
    mine->closure = closure;
    mine->first = first;
    within = 1;
    open_loop(all, mine, (uint32_t)threads, (uint32_t)size);
    work(mine, 0);
    *error = close_loop(all, mine);
    within = 0;
    release(all, mine);
    return 1;
}

static uint32_t *users(int threads) { return &networks[threads < 1 ? 1 : threads > MOST ? MOST : threads]; }

void opbuild_pool_open(int threads) {
    pool *all = LOAD(current);
    ADD(*users(threads), 1);
    if (all && is_ours(all)) STORE(all->refused, 0);
}

void opbuild_pool_close(int threads) {
    pool *all = LOAD(current);
    ADD(*users(threads), -1);
    if (within || !all || !is_ours(all)) return; /* a task does not wait for threads, which may wait for what it holds */
    end(all);
}

#else /* where networks bring Halide's own threads */

void opbuild_pool_open(int threads) { (void)threads; }
void opbuild_pool_close(int threads) { (void)threads; }
int opbuild_pool_run(int threads, opbuild_task task, void *context, int first, int size, uint8_t *closure, int *error) {
    (void)threads, (void)task, (void)context, (void)first, (void)size, (void)closure, (void)error;
    return 0;
}

#endif

#ifdef SOURCE_DIGEST
const char opbuild_pool_source[] = SOURCE_DIGEST;
#endif
