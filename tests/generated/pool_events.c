/* Random orders of events on a pool of threads: networks open, run and close, callers pause, processes fork.
 *
 * usage: pool_events CALLERS FIRST_SEED SEEDS FORKS
 * Each seed is one order for each of CALLERS threads. Prints what is wrong and ends with 1; else prints how many loops were
 * divided, and ends with 0.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opbuild_pool.h"

enum { MOST_THREADS = 6, MOST_TASKS = 60, SHARED = 3, SOME_ERROR = -40 };

/* One loop. `done` is written without any order but the pool's: what it lacks, a thread sanitizer finds. */
typedef struct {
    int threads, fails, nested, now, most;
    int done[MOST_TASKS];
} job;

static int forks;
static long divided;
static pthread_barrier_t begin;

static void wrong(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    fflush(stdout);
    _exit(1);
}

static int count_up(void *context, int index, uint8_t *closure) {
    (void)context;
    ((int *)closure)[index]++;
    return 0;
}

static void run_nested(void) {
    int done[4] = {0}, error;
    if (opbuild_pool_run(4, count_up, 0, 0, 4, (uint8_t *)done, &error)) wrong("a loop inside a task was divided");
}

static int task(void *context, int index, uint8_t *closure) {
    job *each = (job *)closure;
    (void)context;
    int now = __atomic_add_fetch(&each->now, 1, __ATOMIC_RELAXED), most = __atomic_load_n(&each->most, __ATOMIC_RELAXED);
    while (now > most && !__atomic_compare_exchange_n(&each->most, &most, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    for (volatile int turn = 0; turn < 40 * (index % 7); turn++) {
    }
    if (each->nested) run_nested();
    each->done[index]++;
    __atomic_sub_fetch(&each->now, 1, __ATOMIC_RELAXED);
    return index == each->fails ? SOME_ERROR : 0;
}

static int run_loop(int threads, unsigned *seed) {
    int size = 1 + rand_r(seed) % MOST_TASKS, error = 0;
    job each = {.threads = threads, .fails = rand_r(seed) % 20 ? -1 : rand_r(seed) % size, .nested = rand_r(seed) % 10 == 0};
    if (!opbuild_pool_run(threads, task, 0, 0, size, (uint8_t *)&each, &error)) return 0;
    if (each.most > threads) wrong("%d tasks ran at once in a network of %d threads", each.most, threads);
    if (error != (each.fails < 0 ? 0 : SOME_ERROR)) wrong("the error was %d", error);
    for (int index = 0; index < size; index++)
        if (each.done[index] != 1 && (each.fails < 0 || each.done[index] > 1))
            wrong("task %d of %d ran %d times", index, size, each.done[index]);
    return 1;
}

static void fork_child(unsigned *seed, int depth);

/* In a forked child: only this thread is there, and a loop is divided as ever. */
static void be_child(unsigned *seed, int depth) {
    alarm(20);
    opbuild_pool_open(3);
    if (!run_loop(3, seed) && !run_loop(3, seed) && !run_loop(3, seed) && !run_loop(3, seed))
        wrong("no loop was divided in a forked child");
    if (depth) fork_child(seed, depth - 1);
    opbuild_pool_close(3);
}

static void fork_child(unsigned *seed, int depth) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        be_child(seed, depth);
        _exit(0);
    }
    if (waitpid(child, &status, 0) < 0 || status) wrong("a child ended with %x", (unsigned)status);
}

static void *call(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    int own[4], count = 0;
    long loops = 0;
    pthread_barrier_wait(&begin);
    for (int event = 0; event < 60; event++) {
        int kind = rand_r(&seed) % 100;
        if (kind < 20 && count < 4) {
            opbuild_pool_open(own[count++] = 1 + rand_r(&seed) % MOST_THREADS);
        } else if (kind < 35 && count) {
            opbuild_pool_close(own[--count]);
        } else if (kind < 37) {
            usleep((unsigned)rand_r(&seed) % 20000); /* threads of the pool sleep after about 10 ms */
        } else if (kind < 39 && forks) {
            fork_child(&seed, rand_r(&seed) % 3);
        } else {
            int threads = count ? own[rand_r(&seed) % count] : SHARED;
            for (int turn = rand_r(&seed) % 20; turn >= 0; turn--) loops += run_loop(threads, &seed);
        }
    }
    while (count) opbuild_pool_close(own[--count]);
    __atomic_add_fetch(&divided, loops, __ATOMIC_RELAXED);
    return 0;
}

/* The threads of this process; the system shows one that has ended for a moment still. */
static int count_threads(int expected) {
    int count = 0;
    for (int turn = 0; turn < 1000 && (turn == 0 || count > expected); turn++, usleep(1000)) {
        DIR *folder = opendir("/proc/self/task");
        count = -2; /* "." and ".." */
        while (readdir(folder)) count++;
        closedir(folder);
    }
    return count;
}

static void *nothing(void *place) { return place; }

int main(int words, char **word) {
    if (words != 5) return 2;
    int callers = atoi(word[1]), seeds = atoi(word[3]), before = 0;
    unsigned first = (unsigned)strtoul(word[2], 0, 10);
    pthread_t threads[64];
    forks = atoi(word[4]);
    pthread_create(&threads[0], 0, nothing, 0); /* with the first, a sanitizer may start one of its own */
    pthread_join(threads[0], 0);
    before = count_threads(1);
    for (unsigned seed = first; seed < first + (unsigned)seeds; seed++) {
        opbuild_pool_open(SHARED);
        pthread_barrier_init(&begin, 0, (unsigned)callers);
        for (int i = 0; i < callers; i++) pthread_create(&threads[i], 0, call, (void *)(uintptr_t)(seed * 64 + (unsigned)i));
        for (int i = 0; i < callers; i++) pthread_join(threads[i], 0);
        if (count_threads(before + SHARED - 1) > before + SHARED - 1) wrong("seed %u left threads that no network needs", seed);
        opbuild_pool_close(SHARED);
        if (count_threads(before) > before) wrong("seed %u left threads", seed);
        pthread_barrier_destroy(&begin);
    }
    printf("%ld loops were divided\n", divided);
    return 0;
}
