/* Reads what opbuild/offline/format.py and program_json.py write; their heads describe the layout. */
#define _GNU_SOURCE
#include "opbuild_om.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "opbuild_argument.h"
#include "opbuild_digest.h"
#include "opbuild_pool.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "offline models are for little-endian machines"
#endif

enum { OLDEST = 2, VERSION = 5, MOST_SECTIONS = 65536, MOST_ARGUMENTS = 32, ALIGNMENT = 64 };
enum { WAKING = 2500 }; /* nanoseconds of work from which on it pays to wake a second thread */
enum { ABOUT = 1, MACHINE, PLAN, PROGRAM, LIBRARY, WEIGHTS };
enum { INPUT, OUTPUT, CONSTANT, TEMPORARY };

/* -- the file, as it lies in memory ------------------------------------------------------------------------------- */

typedef struct {
    char magic[8];
    uint32_t version, sections;
    uint64_t bytes, zero;
    uint8_t digest[32];
} file_header;

typedef struct {
    uint32_t kind, index;
    uint64_t offset, bytes, zero;
    uint8_t digest[32];
} section;

typedef struct {
    uint32_t inputs, outputs, buffers, steps, arguments, dimensions, extents, text;
    uint64_t arena;
    uint32_t problem, zero;
} program_header;

typedef struct {
    uint32_t name, buffer, type, rank, first, zero;
    uint64_t bytes;
} program_port;

typedef struct {
    uint32_t kind, zero;
    uint64_t bytes, place;
} program_buffer;

typedef struct {
    uint32_t symbol, first, count, nodes, work, zero;
} program_step;

typedef struct {
    uint32_t buffer, type, rank, first;
    int64_t offset;
} program_argument;

typedef struct {
    int32_t extent, stride;
} program_dimension;

typedef void (*kernel)(void);

/* -- a model ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const program_header *head;
    const program_port *ports;
    const program_buffer *buffers;
    const program_step *steps;
    const program_argument *views;
    const program_dimension *dims;
    const int64_t *extents;
    const char *text;
    kernel *kernels;      /* one for each step; NULL until the signature runs for the first time */
    argument *arguments;  /* one for each view */
    dimension *dimensions;
    uint8_t *arena;
} program;

struct opbuild_model {
    const uint8_t *file;
    size_t bytes;
    const uint8_t *weights;
    size_t weights_bytes;
    void *library;
    int descriptor;
    int threads;
    int uses_pool;
    int count;
    program *programs;
    pthread_mutex_t lock;
};

static _Thread_local char kernel_said[512];

static int fail(char *message, size_t size, const char *format, ...) {
    if (message && size) {
        va_list values;
        va_start(values, format);
        vsnprintf(message, size, format, values);
        va_end(values);
    }
    return -1;
}

static void remember_error(void *context, const char *text) {
    (void)context;
    snprintf(kernel_said, sizeof kernel_said, "%s", text ? text : "");
}

/* -- opening ------------------------------------------------------------------------------------------------------ */

/* Memory with the file's bytes; MAP_FAILED if there is none, or the file becomes shorter meanwhile. */
static void *copy_file(int file, size_t bytes) {
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return data;
    for (size_t done = 0; done < bytes;) {
        ssize_t count = read(file, data + done, bytes - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            munmap(data, bytes);
            return MAP_FAILED;
        }
        done += (size_t)count;
    }
    return data;
}

static int map_file(opbuild_model *model, const char *path, unsigned flags, char *message, size_t size) {
    struct stat info;
    void *data = MAP_FAILED;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0) {
        int reason = errno;
        if (file >= 0) close(file);
        return fail(message, size, "%s can not be read: %s", path, strerror(reason));
    }
    model->bytes = (size_t)info.st_size;
    if (model->bytes && flags & OPBUILD_COPY_WEIGHTS) data = copy_file(file, model->bytes);
    else if (model->bytes) data = mmap(NULL, model->bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (data == MAP_FAILED) return fail(message, size, "%s can not be mapped or read, or is empty", path);
    model->file = data;
    return 0;
}

static const section *find(const opbuild_model *model, uint32_t kind, uint32_t index) {
    const file_header *head = (const file_header *)model->file;
    const section *table = (const section *)(model->file + sizeof *head);
    for (uint32_t i = 0; i < head->sections; i++)
        if (table[i].kind == kind && table[i].index == index) return &table[i];
    return NULL;
}

/* Nothing of the file is believed before this has returned 0. */
static int check_file(const opbuild_model *model, const char *path, unsigned flags, char *message, size_t size) {
    const file_header *head = (const file_header *)model->file;
    uint8_t digest[32];
    if (model->bytes < sizeof *head || memcmp(head->magic, "\x8fOPBOM\r\n", 8) != 0)
        return fail(message, size, "%s is not an offline model", path);
    if (head->version < OLDEST || head->version > VERSION)
        return fail(message, size, "%s has version %u of the format, this library reads %d to %d", path, head->version,
                    OLDEST, VERSION);
    size_t end = sizeof *head + (size_t)head->sections * sizeof(section), signed_bytes = sizeof *head - 32;
    if (head->bytes != model->bytes || head->sections > MOST_SECTIONS || end > model->bytes)
        return fail(message, size, "%s is damaged: it has %zu bytes, not %llu", path, model->bytes,
                    (unsigned long long)head->bytes);
    size_t table_bytes = end - sizeof *head;
    uint8_t *text = malloc(signed_bytes + table_bytes);
    if (!text) return fail(message, size, "there is no memory");
    memcpy(text, head, signed_bytes);
    memcpy(text + signed_bytes, head + 1, table_bytes);
    opbuild_digest(text, signed_bytes + table_bytes, digest);
    free(text);
    if (memcmp(digest, head->digest, 32) != 0)
        return fail(message, size, "%s is damaged: its table does not have the digest it should have", path);
    const section *table = (const section *)(head + 1);
    for (const section *each = table; each < table + head->sections; each++) {
        if (each->offset < end || each->offset % ALIGNMENT || each->offset > model->bytes ||
            each->bytes > model->bytes - each->offset)
            return fail(message, size, "%s is damaged: section %u.%u is not inside", path, each->kind, each->index);
        if (each->kind == WEIGHTS && (flags & OPBUILD_TRUST_WEIGHTS)) continue;
        opbuild_digest(model->file + each->offset, each->bytes, digest);
        if (memcmp(digest, each->digest, 32) != 0)
            return fail(message, size, "%s is damaged: section %u.%u does not have the digest it should have", path,
                        each->kind, each->index);
    }
    return 0;
}

static int has_flag(const char *line, const char *word) {
    size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)); at += length)
        if ((at == line || at[-1] == ' ' || at[-1] == '\t') && (at[length] == ' ' || at[length] == '\n' || !at[length]))
            return 1;
    return 0;
}

/* The line of /proc/cpuinfo that lists what the processor can do; empty if there is none. */
static void read_flags(char *line, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    line[0] = 0;
    while (file && fgets(line, (int)size, file))
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) {
            fclose(file);
            return;
        }
    line[0] = 0;
    if (file) fclose(file);
}

static int check_machine(const opbuild_model *model, const char *path, char *message, size_t size) {
    const section *needs = find(model, MACHINE, 0);
    char words[2048] = "", flags[8192], *rest = words;
    struct utsname here;
    if (!needs || needs->bytes >= sizeof words || uname(&here) != 0)
        return fail(message, size, "%s does not say what it needs", path);
    memcpy(words, model->file + needs->offset, needs->bytes);
    const char *machine = strtok_r(words, " ", &rest);
    if (!machine || strcmp(machine, here.machine) != 0)
        return fail(message, size, "%s can not run here: it is for %s, this machine is %s", path,
                    machine ? machine : "nothing", here.machine);
    read_flags(flags, sizeof flags);
    for (const char *word; (word = strtok_r(NULL, " ", &rest));)
        if (!has_flag(flags, word)) return fail(message, size, "%s can not run here: this machine lacks %s", path, word);
    return 0;
}

/* Let kernels use the process's threads; where there is no pool, the compiler's own are linked into the library. */
static void share_threads(opbuild_model *model) {
    int (*set_threads)(int);
    void (*use_pool)(__typeof__(opbuild_pool_run) *, int);
    *(void **)&set_threads = dlsym(model->library, "halide_set_num_threads");
    *(void **)&use_pool = dlsym(model->library, "opbuild_use_pool");
    if (set_threads) set_threads(model->threads);
    if (!use_pool) return;
    model->uses_pool = 1;
    opbuild_pool_open(model->threads);
    use_pool(opbuild_pool_run, model->threads);
}

/* The library is loaded from the bytes that were checked, not from a file that others could replace. */
static int load_library(opbuild_model *model, const char *path, int threads, char *message, size_t size) {
    const section *code = find(model, LIBRARY, 0);
    if (!code || code->bytes == 0) return 0;
    char name[64];
    dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL); /* kernels call its functions */
    model->descriptor = memfd_create("opbuild-model", MFD_CLOEXEC);
    if (model->descriptor < 0) return fail(message, size, "no file in memory: %s", strerror(errno));
    for (size_t done = 0; done < code->bytes;) {
        ssize_t written = write(model->descriptor, model->file + code->offset + done, code->bytes - done);
        if (written < 0) return fail(message, size, "the library can not be written: %s", strerror(errno));
        done += (size_t)written;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", model->descriptor);
    model->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!model->library) return fail(message, size, "the library of %s can not be loaded: %s", path, dlerror());
    void *(*set_handler)(void (*)(void *, const char *));
    *(void **)&set_handler = dlsym(model->library, "halide_set_error_handler");
    if (set_handler) set_handler(remember_error);
    model->threads = threads > 0 ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    share_threads(model);
    return 0;
}

/* -- programs ----------------------------------------------------------------------------------------------------- */

static int inside(uint64_t first, uint64_t count, uint64_t size) { return first <= size && count <= size - first; }

/* Take the tables of a section apart. */
static int lay_out(program *p, const uint8_t *data, size_t bytes) {
    const program_header *h = (const program_header *)data;
    if (bytes < sizeof *h) return 0;
    const uint8_t *at = data + sizeof *h;
    size_t ports = (size_t)h->inputs + h->outputs;
    p->head = h;
    p->ports = (const void *)at, at += ports * sizeof *p->ports;
    p->buffers = (const void *)at, at += h->buffers * sizeof *p->buffers;
    p->steps = (const void *)at, at += h->steps * sizeof *p->steps;
    p->views = (const void *)at, at += h->arguments * sizeof *p->views;
    p->dims = (const void *)at, at += h->dimensions * sizeof *p->dims;
    p->extents = (const void *)at, at += h->extents * sizeof *p->extents;
    p->text = (const char *)at;
    if ((size_t)(at - data) > bytes || h->text != bytes - (size_t)(at - data) || h->text == 0) return 0;
    return p->text[h->text - 1] == 0 && h->problem < h->text;
}

/* Whether a view stays inside its buffer. */
static int view_fits(const program *p, const program_argument *view) {
    const program_buffer *buffer = &p->buffers[view->buffer];
    int64_t item = (view->type / 256 + 7) / 8, low = view->offset, high = view->offset + item;
    if (!inside(view->first, view->rank, p->head->dimensions) || item == 0) return 0;
    for (uint32_t i = 0; i < view->rank; i++) {
        program_dimension dim = p->dims[view->first + i];
        if (dim.extent == 0) return 1;
        if (dim.extent < 0) return 0;
        int64_t reach;
        if (__builtin_mul_overflow((int64_t)(dim.extent - 1) * dim.stride, item, &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return 0;
    }
    return low >= 0 && (uint64_t)high <= buffer->bytes;
}

static int buffer_fits(const opbuild_model *model, const program *p, const program_buffer *buffer) {
    const program_header *h = p->head;
    switch (buffer->kind) {
    case INPUT: return buffer->place < h->inputs;
    case OUTPUT: return buffer->place < h->outputs;
    case CONSTANT: return inside(buffer->place, buffer->bytes, model->weights_bytes);
    case TEMPORARY: return inside(buffer->place, buffer->bytes, h->arena);
    default: return 0;
    }
}

static int is_sound(const opbuild_model *model, const program *p) {
    const program_header *h = p->head;
    for (uint32_t i = 0; i < h->buffers; i++)
        if (!buffer_fits(model, p, &p->buffers[i])) return 0;
    for (uint32_t i = 0; i < h->inputs + h->outputs; i++) {
        const program_port *port = &p->ports[i];
        if (port->name >= h->text || port->buffer >= h->buffers || !inside(port->first, port->rank, h->extents) ||
            p->buffers[port->buffer].bytes != port->bytes)
            return 0;
    }
    for (uint32_t i = 0; i < h->arguments; i++)
        if (p->views[i].buffer >= h->buffers || !view_fits(p, &p->views[i])) return 0;
    for (uint32_t i = 0; i < h->steps; i++)
        if (p->steps[i].symbol >= h->text || p->steps[i].nodes >= h->text || p->steps[i].count > MOST_ARGUMENTS ||
            !inside(p->steps[i].first, p->steps[i].count, h->arguments))
            return 0;
    return 1;
}

static int read_programs(opbuild_model *model, const char *path, char *message, size_t size) {
    const section *weights = find(model, WEIGHTS, 0);
    if (weights) model->weights = model->file + weights->offset, model->weights_bytes = weights->bytes;
    while (find(model, PROGRAM, (uint32_t)model->count)) model->count++;
    model->programs = calloc((size_t)model->count + 1, sizeof *model->programs);
    if (!model->programs) return fail(message, size, "there is no memory");
    if (model->count == 0) return fail(message, size, "%s serves no signature", path);
    for (int i = 0; i < model->count; i++) {
        const section *tables = find(model, PROGRAM, (uint32_t)i);
        program *p = &model->programs[i];
        int is_whole = lay_out(p, model->file + tables->offset, tables->bytes) && is_sound(model, p);
        if (is_whole && p->head->problem) return fail(message, size, "%s: %s", path, p->text + p->head->problem);
        if (!is_whole || p->head->inputs != model->programs[0].head->inputs ||
            p->head->outputs != model->programs[0].head->outputs)
            return fail(message, size, "%s is not sound: the tables of signature %d", path, i);
    }
    return 0;
}

/* Make the arguments of a signature ready, once: all but the addresses of the caller's arrays. */
static int prepare(opbuild_model *model, program *p, char *message, size_t size) {
    const program_header *h = p->head;
    size_t arena = (h->arena + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    if (!p->arguments) p->arguments = calloc((size_t)h->arguments + 1, sizeof *p->arguments);
    if (!p->dimensions) p->dimensions = calloc((size_t)h->dimensions + 1, sizeof *p->dimensions);
    if (!p->arena && (p->arena = aligned_alloc(ALIGNMENT, arena))) memset(p->arena, 0, arena); /* paddings are zero */
    kernel *kernels = calloc((size_t)h->steps + 1, sizeof *kernels);
    if (!p->arguments || !p->dimensions || !p->arena || !kernels) {
        free(kernels);
        return fail(message, size, "there is no memory for the model's %zu bytes of values", arena);
    }
    for (uint32_t i = 0; i < h->steps; i++) {
        const char *symbol = p->text + p->steps[i].symbol;
        *(void **)&kernels[i] = model->library ? dlsym(model->library, symbol) : NULL;
        if (!kernels[i]) {
            free(kernels);
            return fail(message, size, "the model's library has no kernel %s", symbol);
        }
    }
    for (uint32_t i = 0; i < h->dimensions; i++)
        p->dimensions[i].extent = p->dims[i].extent, p->dimensions[i].stride = p->dims[i].stride;
    for (uint32_t i = 0; i < h->arguments; i++) {
        const program_argument *view = &p->views[i];
        const program_buffer *buffer = &p->buffers[view->buffer];
        argument *a = &p->arguments[i];
        a->code = (uint8_t)(view->type % 256), a->bits = (uint8_t)(view->type / 256), a->lanes = 1;
        a->dimensions = (int32_t)view->rank, a->dim = p->dimensions + view->first;
        if (buffer->kind == CONSTANT) a->host = (uint8_t *)model->weights + buffer->place + view->offset;
        if (buffer->kind == TEMPORARY) a->host = p->arena + buffer->place + view->offset;
    }
    p->kernels = kernels;
    return 0;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

/* A kernel takes the number of tasks and a pointer for each argument; C has a type for each number of them. */
#define P argument *
#define T1 P, P, P, P
#define T2 T1, T1
#define T3 T2, T1
#define T4 T2, T2
#define T5 T4, T1
#define T6 T4, T2
#define T7 T4, T3
#define T8 T4, T4
#define A4(i) a + (i), a + (i) + 1, a + (i) + 2, a + (i) + 3
#define A1 A4(0)
#define A2 A1, A4(4)
#define A3 A2, A4(8)
#define A4_ A3, A4(12)
#define A5 A4_, A4(16)
#define A6 A5, A4(20)
#define A7 A6, A4(24)
#define A8 A7, A4(28)
#define AS(...) ((int (*)(int32_t, __VA_ARGS__))function)
#define FOUR(k, types, ...)                                                                                          \
    case 4 * (k): return AS(types)(tasks, __VA_ARGS__);                                                                     \
    case 4 * (k) + 1: return AS(types, P)(tasks, __VA_ARGS__, a + 4 * (k));                                                 \
    case 4 * (k) + 2: return AS(types, P, P)(tasks, __VA_ARGS__, a + 4 * (k), a + 4 * (k) + 1);                             \
    case 4 * (k) + 3: return AS(types, P, P, P)(tasks, __VA_ARGS__, a + 4 * (k), a + 4 * (k) + 1, a + 4 * (k) + 2);

static int pass(kernel function, int32_t tasks, argument *a, uint32_t count) {
    switch (count) {
    case 1: return AS(P)(tasks, a);
    case 2: return AS(P, P)(tasks, a, a + 1);
    case 3: return AS(P, P, P)(tasks, a, a + 1, a + 2);
    FOUR(1, T1, A1)
    FOUR(2, T2, A2)
    FOUR(3, T3, A3)
    FOUR(4, T4, A4_)
    FOUR(5, T5, A5)
    FOUR(6, T6, A6)
    FOUR(7, T7, A7)
    case 32: return AS(T8)(tasks, A8);
    default: return -1;
    }
}

/* Call a kernel on a stack that begins with a page: kernels keep 64-byte vectors in frames that are aligned to 16 bytes, and one
 * that lies across two pages costs tens of cycles in each step of the innermost loop. */
static int call(kernel function, int32_t tasks, argument *a, uint32_t count) {
    _Alignas(4096) volatile uint8_t page[64];
    page[0] = 0;
    int error = pass(function, tasks, a, count);
    return page[0] ? -1 : error; /* the call is not the last thing here, so the frame is still there */
}

/* The index at a place of those that a call was given. */
static int64_t index_at(const argument *x, int64_t place) {
    return x->bits == 64 ? ((const int64_t *)x->host)[place] : ((const int32_t *)x->host)[place];
}

/* Say which index a call refused, if that is what it does. */
static int refused(const char *symbol, const char *nodes, const argument *a, char *message, size_t size) {
    int negative = strcmp(symbol, "opbuild_indices") == 0;
    if (!negative && strcmp(symbol, "opbuild_places") != 0) return 0;
    for (int64_t i = 0; i < a[0].dim[0].extent; i++) {
        int64_t count = a[1].dim[a[1].dimensions - 1 - i % a[1].dimensions].extent, found = index_at(a, i);
        if (found >= (negative ? -count : 0) && found < count) continue;
        fail(message, size, "node %s: index %lld is out of range: it must be from %lld to %lld", nodes, (long long)found,
             negative ? -(long long)count : 0LL, (long long)count - 1);
        return 1;
    }
    return 0;
}

static int run(opbuild_model *model, program *p, const void *const *inputs, void *const *outputs, char *message,
               size_t size) {
    if (!p->kernels && prepare(model, p, message, size) != 0) return -1;
    for (uint32_t i = 0; i < p->head->arguments; i++) {
        const program_argument *view = &p->views[i];
        const program_buffer *buffer = &p->buffers[view->buffer];
        if (buffer->kind == INPUT) p->arguments[i].host = (uint8_t *)inputs[buffer->place] + view->offset;
        if (buffer->kind == OUTPUT) p->arguments[i].host = (uint8_t *)outputs[buffer->place] + view->offset;
    }
    for (uint32_t i = 0; i < p->head->steps; i++) {
        const program_step *step = &p->steps[i];
        kernel_said[0] = 0;
        int32_t tasks = step->work >= WAKING ? model->threads : 1;
        if (call(p->kernels[i], tasks, p->arguments + step->first, step->count) != 0)
            return refused(p->text + step->symbol, p->text + step->nodes, p->arguments + step->first, message, size) ? -1
                 : fail(message, size, "the kernel of node %s failed: %s", p->text + step->nodes,
                        kernel_said[0] ? kernel_said : "it gave no message");
    }
    return 0;
}

/* -- the interface ------------------------------------------------------------------------------------------------ */

opbuild_model *opbuild_open(const char *path, int threads, unsigned flags, char *message, size_t size) {
    opbuild_model *model = calloc(1, sizeof *model);
    if (!model) {
        fail(message, size, "there is no memory");
        return NULL;
    }
    model->descriptor = -1;
    pthread_mutex_init(&model->lock, NULL);
    if (map_file(model, path, flags, message, size) != 0 || check_file(model, path, flags, message, size) != 0 ||
        check_machine(model, path, message, size) != 0 || read_programs(model, path, message, size) != 0 ||
        load_library(model, path, threads, message, size) != 0) {
        opbuild_close(model);
        return NULL;
    }
    return model;
}

void opbuild_close(opbuild_model *model) {
    if (!model) return;
    if (model->library) {
        void (*shutdown)(void);
        *(void **)&shutdown = dlsym(model->library, "halide_shutdown_thread_pool");
        if (shutdown) shutdown(); /* threads of its own run code that is about to go */
        if (model->uses_pool) opbuild_pool_close(model->threads);
        dlclose(model->library);
    }
    if (model->descriptor >= 0) close(model->descriptor);
    for (int i = 0; model->programs && i < model->count; i++) {
        program *p = &model->programs[i];
        free(p->kernels), free(p->arguments), free(p->dimensions), free(p->arena);
    }
    free(model->programs);
    if (model->file) munmap((void *)model->file, model->bytes);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

int opbuild_signatures(const opbuild_model *model) { return model->count; }
int opbuild_inputs(const opbuild_model *model) { return (int)model->programs[0].head->inputs; }
int opbuild_outputs(const opbuild_model *model) { return (int)model->programs[0].head->outputs; }

static const char *type_name(uint32_t type) {
    static const struct {
        uint32_t type;
        const char *name;
    } names[] = {{0x0101, "bool"},   {0x0801, "uint8"},    {0x1001, "uint16"}, {0x2001, "uint32"},
                 {0x4001, "uint64"},     {0x0800, "int8"},     {0x1000, "int16"},  {0x2000, "int32"},
                 {0x4000, "int64"},      {0x1002, "float16"},  {0x2002, "float32"}, {0x4002, "float64"},
                 {0x1003, "bfloat16"},   {0x10801, "float8_e4m3fn"},   {0x20801, "float8_e4m3fnuz"},
                 {0x30801, "float8_e5m2"},   {0x40801, "float8_e5m2fnuz"}, {0x50801, "float8_e8m0fnu"},
                 {0x60801, "float4_e2m1fn"}, {0x70801, "int4"}, {0x80801, "uint4"}, {0x90801, "int2"},
                 {0xa0801, "uint2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].type == type) return names[i].name;
    return "unknown";
}

static opbuild_port describe(const opbuild_model *model, int signature, uint32_t index) {
    const program *p = &model->programs[signature];
    const program_port *port = &p->ports[index];
    return (opbuild_port){.name = p->text + port->name,
                          .type = type_name(port->type),
                          .rank = (int)port->rank,
                          .shape = p->extents + port->first,
                          .bytes = (size_t)port->bytes};
}

opbuild_port opbuild_input(const opbuild_model *model, int signature, int index) {
    return describe(model, signature, (uint32_t)index);
}

opbuild_port opbuild_output(const opbuild_model *model, int signature, int index) {
    return describe(model, signature, model->programs[signature].head->inputs + (uint32_t)index);
}

int opbuild_run(opbuild_model *model, int signature, const void *const *inputs, void *const *outputs, char *message,
                size_t size) {
    if (signature < 0 || signature >= model->count)
        return fail(message, size, "there is no signature %d, the model has %d", signature, model->count);
    pthread_mutex_lock(&model->lock);
    int result = run(model, &model->programs[signature], inputs, outputs, message, size);
    pthread_mutex_unlock(&model->lock);
    return result;
}
