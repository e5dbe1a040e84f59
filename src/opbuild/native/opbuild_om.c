/* Reads what opbuild/offline/format.py and program_json.py write; their heads describe the layout. */
#define _GNU_SOURCE
#include "opbuild_om.h"

#include <dlfcn.h>
#include <elf.h>
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
#include "opbuild_checked.h"
#include "opbuild_digest.h"
#include "opbuild_pool.h"
#include "opbuild_tables.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "offline models are for little-endian machines"
#endif

/* Tables of older versions do not say what kernels write. */
enum { OLDEST = 6, VERSION = 6, MOST_SECTIONS = 65536, ALIGNMENT = 64 };
enum { WAKING = 2500 }; /* nanoseconds of work from which on it pays to wake a second thread */
enum { ABOUT = 1, MACHINE, PLAN, PROGRAM, LIBRARY, WEIGHTS };

/* -- the file ----------------------------------------------------------------------------------------------------- */

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
} file_section;

typedef void (*kernel)(void);

/* -- a model ------------------------------------------------------------------------------------------------------ */

/* A section: a copy, which nobody can change once it was checked; weights lie in the mapped file unless they are copied too. */
typedef struct {
    uint32_t kind, index;
    const uint8_t *data;
    size_t bytes;
    uint8_t *own;
} section;

typedef struct {
    program_tables tables;
    kernel *kernels;      /* one for each step; NULL until the signature runs for the first time */
    argument *arguments;  /* one for each view */
    dimension *dimensions;
    uint8_t *memory, *arena; /* what was allocated, and where values lie in it */
} program;

struct opbuild_model {
    uint8_t *mapped; /* the file, unless it was copied */
    size_t bytes;
    section *sections; /* in order */
    size_t section_count;
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

/* Read bytes of a file, all of them; return 0 if they are not there. */
static int read_bytes(int file, void *data, size_t bytes, uint64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t count = pread(file, (uint8_t *)data + done, bytes - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return 0;
        done += (size_t)count;
    }
    return 1;
}

static int open_file(opbuild_model *model, const char *path, char *message, size_t size) {
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), is_there = file >= 0 && fstat(file, &info) == 0;
    if (is_there && S_ISREG(info.st_mode)) {
        model->bytes = (size_t)info.st_size;
        return file;
    }
    fail(message, size, "%s cannot be read: %s", path, is_there ? "it is no file" : strerror(errno));
    if (file >= 0) close(file);
    return -1;
}

/* Read the header, and the table behind it; NULL if it is not one, or does not have its digest. */
static file_section *read_table(const opbuild_model *model, int file, file_header *head, const char *path, char *message,
                                size_t size) {
    enum { SIGNED = sizeof *head - sizeof head->digest };
    uint8_t digest[32];
    if (!read_bytes(file, head, sizeof *head, 0) || memcmp(head->magic, "\x8fOPBOM\r\n", 8) != 0) {
        fail(message, size, "%s is not an offline model", path);
        return NULL;
    }
    if (head->version < OLDEST || head->version > VERSION) {
        fail(message, size, "%s has version %u of the format, this library reads %d to %d: write the file again", path,
             head->version, OLDEST, VERSION);
        return NULL;
    }
    size_t bytes = head->sections * sizeof(file_section);
    if (head->bytes != model->bytes || head->sections > MOST_SECTIONS ||
        !opbuild_inside(sizeof *head, bytes, model->bytes)) {
        fail(message, size, "%s is damaged: it has %zu bytes, not %llu", path, model->bytes, (unsigned long long)head->bytes);
        return NULL;
    }
    uint8_t *text = malloc(SIGNED + bytes), *table = malloc(bytes + 1);
    int is_read = text && table && read_bytes(file, table, bytes, sizeof *head);
    if (is_read) {
        memcpy(text, head, SIGNED);
        memcpy(text + SIGNED, table, bytes);
        opbuild_digest(text, SIGNED + bytes, digest);
    }
    free(text);
    if (is_read && memcmp(digest, head->digest, 32) == 0) return (file_section *)table;
    free(table);
    fail(message, size, is_read ? "%s is damaged: its table does not have the digest it should have"
                                : "%s cannot be read, or there is no memory", path);
    return NULL;
}

/* Read a section, if it is not mapped, and compare it with its digest. What nobody here needs is not kept. */
static int read_section(const opbuild_model *model, int file, const file_section *from, section *to, unsigned flags,
                        const char *path, char *message, size_t size) {
    int is_kept = from->kind == MACHINE || from->kind == PROGRAM || from->kind == LIBRARY || from->kind == WEIGHTS;
    uint8_t digest[32];
    *to = (section){.kind = from->kind, .index = from->index, .bytes = (size_t)from->bytes};
    if (from->kind == WEIGHTS && model->mapped) to->data = model->mapped + from->offset;
    else {
        to->data = to->own = aligned_alloc(ALIGNMENT, (to->bytes / ALIGNMENT + 1) * ALIGNMENT);
        if (!to->own || !read_bytes(file, to->own, to->bytes, from->offset))
            return fail(message, size, "section %u.%u of %s cannot be read, or there is no memory", to->kind, to->index,
                        path);
    }
    if (from->kind == WEIGHTS && (flags & OPBUILD_TRUST_WEIGHTS)) return 0;
    opbuild_digest(to->data, to->bytes, digest);
    if (memcmp(digest, from->digest, 32) != 0)
        return fail(message, size, "%s is damaged: section %u.%u does not have the digest it should have", path, to->kind,
                    to->index);
    if (!is_kept) free(to->own), to->data = to->own = NULL;
    return 0;
}

static int by_place(const void *one, const void *other) {
    const section *a = one, *b = other;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Read the sections, which lie one behind the other: all of them together are no larger than the file. */
static int read_sections(opbuild_model *model, int file, const file_header *head, const file_section *table, unsigned flags,
                         const char *path, char *message, size_t size) {
    uint64_t end = sizeof *head + head->sections * sizeof *table;
    model->sections = calloc((size_t)head->sections + 1, sizeof *model->sections);
    if (!model->sections) return fail(message, size, "there is no memory");
    for (const file_section *each = table; each < table + head->sections; each++) {
        if (each->offset < end || each->offset % ALIGNMENT || !opbuild_inside(each->offset, each->bytes, model->bytes))
            return fail(message, size, "%s is damaged: section %u.%u is not inside, or not behind the one before", path,
                        each->kind, each->index);
        end = each->offset + each->bytes;
        section *to = &model->sections[model->section_count++];
        if (read_section(model, file, each, to, flags, path, message, size) != 0) return -1;
    }
    qsort(model->sections, model->section_count, sizeof *model->sections, by_place);
    for (size_t i = 1; i < model->section_count; i++)
        if (by_place(&model->sections[i - 1], &model->sections[i]) == 0)
            return fail(message, size, "%s is damaged: section %u.%u is there twice", path, model->sections[i].kind,
                        model->sections[i].index);
    return 0;
}

/* Nothing of the file is believed before this has returned 0. */
static int read_file(opbuild_model *model, const char *path, unsigned flags, char *message, size_t size) {
    file_header head;
    int result = -1, file = open_file(model, path, message, size);
    if (file < 0) return -1;
    file_section *table = read_table(model, file, &head, path, message, size);
    if (table && !(flags & OPBUILD_COPY_WEIGHTS)) model->mapped = mmap(NULL, model->bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (model->mapped == MAP_FAILED) {
        model->mapped = NULL;
        fail(message, size, "%s cannot be mapped: %s", path, strerror(errno));
    } else if (table) result = read_sections(model, file, &head, table, flags, path, message, size);
    free(table);
    close(file);
    return result;
}

/* A section of the file; NULL if there is none. */
static section *find(const opbuild_model *model, uint32_t kind, uint32_t index) {
    section wanted = {.kind = kind, .index = index};
    return bsearch(&wanted, model->sections, model->section_count, sizeof wanted, by_place);
}

static uint32_t count_of(const opbuild_model *model, uint32_t kind) {
    uint32_t count = 0;
    for (size_t i = 0; i < model->section_count; i++) count += model->sections[i].kind == kind;
    return count;
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
    memcpy(words, needs->data, needs->bytes);
    const char *machine = strtok_r(words, " ", &rest);
    if (!machine || strcmp(machine, here.machine) != 0)
        return fail(message, size, "%s cannot run here: it is for %s, this machine is %s", path,
                    machine ? machine : "nothing", here.machine);
    read_flags(flags, sizeof flags);
    for (const char *word; (word = strtok_r(NULL, " ", &rest));)
        if (!has_flag(flags, word)) return fail(message, size, "%s cannot run here: this machine lacks %s", path, word);
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

/* Whether all that is loaded of a library is there: the system's loader would write behind its end. */
static int is_whole(const section *code) {
    Elf64_Ehdr head;
    Elf64_Phdr segment;
    if (code->bytes < sizeof head) return 0;
    memcpy(&head, code->data, sizeof head);
    for (uint64_t i = 0, at = head.e_phoff; i < head.e_phnum; i++, at += head.e_phentsize) {
        if (!opbuild_inside(at, sizeof segment, code->bytes)) return 0;
        memcpy(&segment, code->data + at, sizeof segment);
        if (segment.p_type == PT_LOAD && !opbuild_inside(segment.p_offset, segment.p_filesz, code->bytes)) return 0;
    }
    return 1;
}

/* The library is loaded from the bytes that were checked, not from a file that others could replace. */
static int load_library(opbuild_model *model, const char *path, int threads, char *message, size_t size) {
    section *code = find(model, LIBRARY, 0);
    if (!code || code->bytes == 0) return 0;
    if (!is_whole(code)) return fail(message, size, "%s is not sound: its library is cut", path);
    char name[64];
    dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL); /* kernels call its functions */
    model->descriptor = memfd_create("opbuild-model", MFD_CLOEXEC);
    if (model->descriptor < 0) return fail(message, size, "no file in memory: %s", strerror(errno));
    for (size_t done = 0; done < code->bytes;) {
        ssize_t written = write(model->descriptor, code->data + done, code->bytes - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return fail(message, size, "the library cannot be written: %s", strerror(errno));
        done += (size_t)written;
    }
    free(code->own), code->data = code->own = NULL;
    snprintf(name, sizeof name, "/proc/self/fd/%d", model->descriptor);
    model->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!model->library) return fail(message, size, "the library of %s cannot be loaded: %s", path, dlerror());
    void *(*set_handler)(void (*)(void *, const char *));
    *(void **)&set_handler = dlsym(model->library, "halide_set_error_handler");
    if (set_handler) set_handler(remember_error);
    model->threads = threads > 0 ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    share_threads(model);
    return 0;
}

/* -- programs ----------------------------------------------------------------------------------------------------- */

static int read_program(opbuild_model *model, uint32_t index, const char *path, char *message, size_t size) {
    const section *from = find(model, PROGRAM, index), *weights = find(model, WEIGHTS, 0);
    program_tables *t = &model->programs[index].tables;
    const char *nodes = NULL, *wrong = "its tables are not there";
    if (from && find(model, PLAN, index) && opbuild_lay_out(t, from->data, from->bytes)) {
        if (t->text[t->head->problem]) return fail(message, size, "%s: %s", path, t->text + t->head->problem);
        wrong = opbuild_unsound(t, weights ? weights->bytes : 0, &nodes);
        if (!wrong) wrong = opbuild_unlike(&model->programs[0].tables, t);
    }
    if (!wrong) return 0;
    return fail(message, size, "%s is not sound: signature %u%s%s: %s", path, index, nodes ? ", node " : "",
                nodes ? nodes : "", wrong);
}

static int read_programs(opbuild_model *model, const char *path, char *message, size_t size) {
    uint32_t count = count_of(model, PROGRAM);
    if (count == 0 || count_of(model, PLAN) != count || !find(model, ABOUT, 0))
        return fail(message, size, "%s serves no signature, or has sections of others", path);
    model->programs = calloc(count, sizeof *model->programs);
    if (!model->programs) return fail(message, size, "there is no memory");
    model->count = (int)count;
    for (uint32_t i = 0; i < count; i++)
        if (read_program(model, i, path, message, size) != 0) return -1;
    return 0;
}

/* The kernels of the steps; NULL if one is not there. */
static kernel *find_kernels(const opbuild_model *model, const program_tables *t, char *message, size_t size) {
    kernel *kernels = calloc((size_t)t->head->steps + 1, sizeof *kernels);
    if (!kernels) fail(message, size, "there is no memory");
    for (uint32_t i = 0; kernels && i < t->head->steps; i++) {
        const char *symbol = t->text + t->steps[i].symbol;
        *(void **)&kernels[i] = model->library ? dlsym(model->library, symbol) : NULL;
        if (kernels[i]) continue;
        fail(message, size, "the model's library has no kernel %s", symbol);
        free(kernels);
        return NULL;
    }
    return kernels;
}

/* Make the arguments of a signature ready, once: all but the addresses of the caller's arrays. */
static int prepare(opbuild_model *model, program *p, char *message, size_t size) {
    const program_tables *t = &p->tables;
    const program_header *h = t->head;
    const section *weights = find(model, WEIGHTS, 0); /* where there are none, constants are empty */
    if (!p->arguments) p->arguments = calloc((size_t)h->arguments + 1, sizeof *p->arguments);
    if (!p->dimensions) p->dimensions = calloc((size_t)h->dimensions + 1, sizeof *p->dimensions);
    if (!p->memory) p->memory = calloc(1, h->arena + ALIGNMENT); /* paddings are zero */
    if (!p->arguments || !p->dimensions || !p->memory)
        return fail(message, size, "there is no memory for the model's %llu bytes of values", (unsigned long long)h->arena);
    const uint8_t *constants = weights ? weights->data : p->memory;
    p->arena = p->memory + (ALIGNMENT - (uintptr_t)p->memory % ALIGNMENT) % ALIGNMENT;
    for (uint32_t i = 0; i < h->dimensions; i++)
        p->dimensions[i].extent = t->dims[i].extent, p->dimensions[i].stride = t->dims[i].stride;
    for (uint32_t i = 0; i < h->arguments; i++) {
        const program_argument *view = &t->views[i];
        const program_buffer *buffer = &t->buffers[view->buffer];
        argument *a = &p->arguments[i];
        a->code = (uint8_t)(view->type % 256), a->bits = (uint8_t)(view->type / 256), a->lanes = 1;
        a->dimensions = (int32_t)view->rank, a->dim = p->dimensions + view->first;
        if (buffer->kind == CONSTANT) a->host = (uint8_t *)constants + buffer->place + view->offset;
        if (buffer->kind == TEMPORARY) a->host = p->arena + buffer->place + view->offset;
    }
    p->kernels = find_kernels(model, t, message, size);
    return p->kernels ? 0 : -1;
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
    if (!opbuild_is_check(symbol)) return 0;
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
    const program_tables *t = &p->tables;
    if (!p->kernels && prepare(model, p, message, size) != 0) return -1;
    for (uint32_t i = 0; i < t->head->arguments; i++) {
        const program_argument *view = &t->views[i];
        const program_buffer *buffer = &t->buffers[view->buffer];
        if (buffer->kind == INPUT) p->arguments[i].host = (uint8_t *)inputs[buffer->place] + view->offset;
        if (buffer->kind == OUTPUT) p->arguments[i].host = (uint8_t *)outputs[buffer->place] + view->offset;
    }
    for (uint32_t i = 0; i < t->head->steps; i++) {
        const program_step *step = &t->steps[i];
        const char *symbol = t->text + step->symbol, *nodes = t->text + step->nodes;
        kernel_said[0] = 0;
        int32_t tasks = step->work >= WAKING ? model->threads : 1;
        if (call(p->kernels[i], tasks, p->arguments + step->first, step->count) == 0) continue;
        if (!refused(symbol, nodes, p->arguments + step->first, message, size))
            fail(message, size, "the kernel of node %s failed: %s", nodes, kernel_said[0] ? kernel_said : "it gave no message");
        return -1;
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
    if (read_file(model, path, flags, message, size) != 0 || check_machine(model, path, message, size) != 0 || read_programs(model, path, message, size) != 0 ||
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
    for (int i = 0; i < model->count; i++) {
        program *p = &model->programs[i];
        free(p->kernels), free(p->arguments), free(p->dimensions), free(p->memory);
    }
    free(model->programs);
    for (size_t i = 0; i < model->section_count; i++) free(model->sections[i].own);
    free(model->sections);
    if (model->mapped) munmap(model->mapped, model->bytes);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

int opbuild_signatures(const opbuild_model *model) { return model->count; }
int opbuild_inputs(const opbuild_model *model) { return (int)model->programs[0].tables.head->inputs; }
int opbuild_outputs(const opbuild_model *model) { return (int)model->programs[0].tables.head->outputs; }

static opbuild_port describe(const opbuild_model *model, int signature, uint32_t index) {
    const program_tables *t = &model->programs[signature].tables;
    const program_port *port = &t->ports[index];
    return (opbuild_port){.name = t->text + port->name,
                          .type = opbuild_type_name(port->type),
                          .rank = (int)port->rank,
                          .shape = t->extents + port->first,
                          .bytes = (size_t)port->bytes};
}

opbuild_port opbuild_input(const opbuild_model *model, int signature, int index) {
    return describe(model, signature, (uint32_t)index);
}

opbuild_port opbuild_output(const opbuild_model *model, int signature, int index) {
    return describe(model, signature, model->programs[signature].tables.head->inputs + (uint32_t)index);
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
