/* The rules are those of Python's reader (opbuild/runtime/soundness.py); docs/reference/files.md lists them. What one refuses,
 * the other refuses. */
#include "opbuild_tables.h"

#include <stdlib.h>
#include <string.h>

#include "opbuild_checked.h"

enum { MOST_ARGUMENTS = 32, MOST_DIMENSIONS = 32, MOST_VIEWED = 64, ALIGNMENT = 64 };
#define MOST ((uint64_t)1 << 56)

/* What is known of a buffer so far. */
typedef struct {
    uint32_t item;    /* bytes of an element; 0 as long as nothing has told */
    int is_written;   /* by a step before */
    uint64_t written; /* elements, at most MOST */
} state;

/* -- element types ------------------------------------------------------------------------------------------------ */

static const struct {
    uint32_t type;
    const char *name;
} TYPES[] = {{0x0101, "bool"},           {0x0801, "uint8"},           {0x1001, "uint16"},        {0x2001, "uint32"},
             {0x4001, "uint64"},         {0x0800, "int8"},            {0x1000, "int16"},         {0x2000, "int32"},
             {0x4000, "int64"},          {0x1002, "float16"},         {0x2002, "float32"},       {0x4002, "float64"},
             {0x1003, "bfloat16"},       {0x10801, "float8_e4m3fn"},  {0x20801, "float8_e4m3fnuz"},
             {0x30801, "float8_e5m2"},   {0x40801, "float8_e5m2fnuz"}, {0x50801, "float8_e8m0fnu"},
             {0x60801, "float4_e2m1fn"}, {0x70801, "int4"},           {0x80801, "uint4"},        {0x90801, "int2"},
             {0xa0801, "uint2"}};
enum { INT32 = 0x2000, INT64 = 0x4000, OF_PORTS = 0x10000 }; /* types from the last on are ports' only */

const char *opbuild_type_name(uint32_t type) {
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (TYPES[i].type == type) return TYPES[i].name;
    return NULL;
}

uint32_t opbuild_type_bytes(uint32_t type) { return opbuild_type_name(type) ? (type / 256 % 256 + 7) / 8 : 0; }

int opbuild_is_check(const char *symbol) {
    return strcmp(symbol, "opbuild_indices") == 0 || strcmp(symbol, "opbuild_places") == 0;
}

/* -- where the tables lie ----------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at;
    uint64_t left;
} remains;

/* Take the next table off what remains; NULL if it is not all there. */
static const void *take(remains *rest, uint64_t count, uint64_t item) {
    const uint8_t *table = rest->at;
    if (!opbuild_multiply(&count, item) || count > rest->left) return NULL;
    rest->at += count, rest->left -= count;
    return table;
}

int opbuild_lay_out(program_tables *t, const uint8_t *data, size_t bytes) {
    remains rest = {data, bytes};
    const program_header *h = t->head = take(&rest, 1, sizeof *h);
    return h && (t->ports = take(&rest, (uint64_t)h->inputs + h->outputs, sizeof *t->ports)) &&
           (t->buffers = take(&rest, h->buffers, sizeof *t->buffers)) &&
           (t->steps = take(&rest, h->steps, sizeof *t->steps)) &&
           (t->views = take(&rest, h->arguments, sizeof *t->views)) &&
           (t->dims = take(&rest, h->dimensions, sizeof *t->dims)) &&
           (t->extents = take(&rest, h->extents, sizeof *t->extents)) && (t->text = take(&rest, h->text, 1)) &&
           rest.left == 0 && h->text && t->text[h->text - 1] == 0 && h->problem < h->text &&
           h->inputs <= INT32_MAX && h->outputs <= INT32_MAX;
}

/* -- ports and buffers -------------------------------------------------------------------------------------------- */

/* Elements of a port; 0 and a message if no array has its shape. */
static const char *check_shape(const program_tables *t, const program_port *port, uint64_t *elements) {
    uint64_t most = 1; /* extents count even beside one of 0 */
    *elements = 1;
    if (port->rank > MOST_DIMENSIONS || !opbuild_inside(port->first, port->rank, t->head->extents))
        return "the shape of an input or output is not there";
    for (uint32_t i = 0; i < port->rank; i++) {
        int64_t extent = t->extents[port->first + i];
        if (extent < 0 || !opbuild_multiply(&most, extent ? (uint64_t)extent : 1) || most > INT32_MAX)
            return "an input or output has too many elements";
        *elements *= (uint64_t)extent;
    }
    return NULL;
}

/* A port is the array of one buffer, and the buffer is for that array. */
static const char *check_port(const program_tables *t, state *states, uint64_t index) {
    const program_header *h = t->head;
    const program_port *port = &t->ports[index];
    uint32_t kind = index < h->inputs ? INPUT : OUTPUT, item = opbuild_type_bytes(port->type);
    uint64_t elements;
    if (port->name >= h->text || port->buffer >= h->buffers) return "an input or output names what is not there";
    const program_buffer *buffer = &t->buffers[port->buffer];
    const char *wrong = check_shape(t, port, &elements);
    if (wrong) return wrong;
    if (buffer->kind != kind || buffer->place != (kind == INPUT ? index : index - h->inputs))
        return "an input or output has the buffer of another";
    if (!item || port->bytes != elements * item || buffer->bytes != port->bytes)
        return "an input or output is not as large as its buffer";
    states[port->buffer].item = item;
    return NULL;
}

static const char *check_buffer(const program_tables *t, uint64_t weights, uint32_t index) {
    const program_header *h = t->head;
    const program_buffer *buffer = &t->buffers[index];
    uint64_t place = buffer->place, bytes = buffer->bytes;
    switch (buffer->kind) {
    case INPUT: return place < h->inputs && t->ports[place].buffer == index ? NULL : "a buffer is of no input";
    case OUTPUT:
        return place < h->outputs && t->ports[h->inputs + place].buffer == index ? NULL : "a buffer is of no output";
    case CONSTANT:
        return place % ALIGNMENT == 0 && opbuild_inside(place, bytes, weights) ? NULL : "a constant is outside the weights";
    case TEMPORARY:
        return place % ALIGNMENT == 0 && opbuild_inside(place, bytes, bytes ? h->arena : MOST)
                   ? NULL
                   : "a buffer is outside the memory for values";
    default: return "a buffer is of no kind";
    }
}

/* -- steps -------------------------------------------------------------------------------------------------------- */

/* The elements that a view has, at most MOST; each of those that lie in one place counts once. */
static uint64_t elements_of(const program_tables *t, const program_argument *view) {
    uint64_t count = 1;
    for (const program_dimension *dim = t->dims + view->first, *end = dim + view->rank; dim < end; dim++) {
        if (dim->extent == 0) return 0;
        if (dim->stride && (!opbuild_multiply(&count, (uint64_t)dim->extent) || count > MOST)) count = MOST;
    }
    return count;
}

static int is_empty(const program_tables *t, const program_argument *view) {
    for (uint32_t i = 0; i < view->rank; i++)
        if (t->dims[view->first + i].extent == 0) return 1;
    return 0;
}

/* Whether a view of dimensions that are sound stays among the elements of its buffer. */
static int reaches_inside(const program_tables *t, const program_argument *view, uint64_t size, uint32_t item) {
    int64_t low = view->offset / item, high = low;
    if (low < 0 || (uint64_t)low > size || size > MOST) return 0;
    if (is_empty(t, view)) return 1;
    for (uint32_t i = 0; i < view->rank; i++) {
        const program_dimension *dim = &t->dims[view->first + i];
        int64_t reach = (int64_t)(dim->extent - 1) * dim->stride; /* less than 2^62, and what it is added to than 2^57 */
        *(reach < 0 ? &low : &high) += reach;
        if (low < 0 || (uint64_t)high >= size) return 0;
    }
    return (uint64_t)high < size;
}

static const char *check_view(const program_tables *t, state *states, const program_argument *view) {
    const program_header *h = t->head;
    uint32_t item = view->type < OF_PORTS ? opbuild_type_bytes(view->type) : 0;
    if (view->buffer >= h->buffers || view->rank > MOST_VIEWED || !opbuild_inside(view->first, view->rank, h->dimensions))
        return "a view names what is not there";
    for (uint32_t i = 0; i < view->rank; i++)
        if (t->dims[view->first + i].extent < 0 || t->dims[view->first + i].stride == INT32_MIN)
            return "a view has no such extent or stride";
    state *of = &states[view->buffer];
    uint64_t bytes = t->buffers[view->buffer].bytes;
    if (!of->item) of->item = item;
    if (!item || of->item != item || view->offset % item || bytes % item)
        return "a view has elements of another size than its buffer";
    return reaches_inside(t, view, bytes / item, item) ? NULL : "a view leaves its buffer";
}

/* What refuses indices reads them as they lie, one after the other. */
static int can_check(const program_tables *t, const program_step *step) {
    const program_argument *x = t->views + step->first, *bounds = x + 1;
    return step->count == 2 && (x->type == INT32 || x->type == INT64) && x->rank == 1 &&
           (t->dims[x->first].stride == 1 || t->dims[x->first].extent <= 1) && bounds->rank >= 1;
}

static int is_made(const program_tables *t, const program_argument *view) {
    uint32_t kind = t->buffers[view->buffer].kind;
    return kind == TEMPORARY || kind == OUTPUT;
}

/* A step of several results may read what it wrote itself. */
static int is_there(const program_tables *t, const state *states, const program_step *step, const program_argument *view) {
    if (!is_made(t, view) || states[view->buffer].is_written || elements_of(t, view) == 0) return 1;
    const program_argument *end = t->views + step->first + step->count;
    for (const program_argument *own = end - step->writes; step->writes > 1 && own < end; own++)
        if (own->buffer == view->buffer) return 1;
    return 0;
}

static const char *check_step(const program_tables *t, state *states, const program_step *step) {
    const program_argument *view = t->views + step->first, *end = view + step->count;
    for (; view < end; view++) {
        const char *wrong = check_view(t, states, view);
        if (wrong) return wrong;
    }
    int is_check = opbuild_is_check(t->text + step->symbol);
    if (step->writes > step->count || (step->writes == 0) != is_check) return "a kernel writes none of its arguments";
    if (is_check && !can_check(t, step)) return "indices are not looked at as they lie";
    for (view = end - step->count; view < end - step->writes; view++)
        if (!is_there(t, states, step, view)) return "it reads what nothing wrote before";
    for (; view < end; view++) {
        state *of = &states[view->buffer];
        if (!is_made(t, view)) return "it would write to an input or a constant";
        of->is_written = 1;
        if (!opbuild_add(&of->written, elements_of(t, view)) || of->written > MOST) of->written = MOST;
    }
    return NULL;
}

static const char *check_steps(const program_tables *t, state *states, const char **nodes) {
    uint64_t next = 0;
    for (const program_step *step = t->steps, *end = step + t->head->steps; step < end; step++) {
        if (step->symbol >= t->head->text || step->nodes >= t->head->text) return "a step names what is not there";
        *nodes = t->text + step->nodes;
        if (step->count == 0 || step->count > MOST_ARGUMENTS) return "a kernel has no or too many arguments";
        if (step->first != next || !opbuild_inside(next, step->count, t->head->arguments))
            return "the arguments of steps do not follow each other";
        next += step->count;
        const char *wrong = check_step(t, states, step);
        if (wrong) return wrong;
    }
    *nodes = NULL;
    return next == t->head->arguments ? NULL : "there are arguments of no step";
}

/* -- all of it ---------------------------------------------------------------------------------------------------- */

static const char *check(const program_tables *t, uint64_t weights, state *states, const char **nodes) {
    const program_header *h = t->head;
    uint64_t ports = (uint64_t)h->inputs + h->outputs;
    const char *wrong = h->arena > MOST ? "it needs more memory for values than there can be" : NULL;
    for (uint64_t i = 0; i < ports && !wrong; i++) wrong = check_port(t, states, i);
    for (uint32_t i = 0; i < h->buffers && !wrong; i++) wrong = check_buffer(t, weights, i);
    if (!wrong) wrong = check_steps(t, states, nodes);
    for (uint64_t i = h->inputs; i < ports && !wrong; i++) {
        const state *of = &states[t->ports[i].buffer];
        if (of->written < t->ports[i].bytes / of->item) wrong = "an output is not written";
    }
    return wrong;
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* Python's users give inputs by their names. */
static const char *check_names(const program_tables *t) {
    const char **names = calloc((size_t)t->head->inputs + 1, sizeof *names), *wrong = NULL;
    if (!names) return "there is no memory";
    for (uint32_t i = 0; i < t->head->inputs; i++) names[i] = t->text + t->ports[i].name;
    qsort(names, t->head->inputs, sizeof *names, by_text);
    for (uint32_t i = 1; i < t->head->inputs; i++)
        if (strcmp(names[i - 1], names[i]) == 0) wrong = "two inputs have one name";
    free(names);
    return wrong;
}

const char *opbuild_unsound(const program_tables *t, uint64_t weights, const char **nodes) {
    state *states = calloc((size_t)t->head->buffers + 1, sizeof *states);
    *nodes = NULL;
    if (!states) return "there is no memory";
    const char *wrong = check(t, weights, states, nodes);
    free(states);
    return wrong ? wrong : check_names(t);
}

const char *opbuild_unlike(const program_tables *one, const program_tables *other) {
    const program_header *h = one->head;
    if (h->inputs != other->head->inputs || h->outputs != other->head->outputs) return "it has other inputs or outputs";
    for (uint64_t i = 0; i < (uint64_t)h->inputs + h->outputs; i++) {
        const program_port *a = &one->ports[i], *b = &other->ports[i];
        if (strcmp(one->text + a->name, other->text + b->name) != 0) return "its inputs or outputs have other names";
        if (i < h->inputs && (a->type != b->type || a->rank != b->rank)) return "its inputs have other types";
    }
    return NULL;
}
