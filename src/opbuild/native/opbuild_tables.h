/* How one signature of an offline model runs, as tables that are read in place (opbuild/offline/file.py). */
#ifndef OPBUILD_TABLES_H
#define OPBUILD_TABLES_H

#include <stddef.h>
#include <stdint.h>

enum { INPUT, OUTPUT, CONSTANT, TEMPORARY };

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
    uint32_t symbol, first, count, nodes, work, writes;
} program_step;

typedef struct {
    uint32_t buffer, type, rank, first;
    int64_t offset;
} program_argument;

typedef struct {
    int32_t extent, stride;
} program_dimension;

typedef struct {
    const program_header *head;
    const program_port *ports;
    const program_buffer *buffers;
    const program_step *steps;
    const program_argument *views;
    const program_dimension *dims;
    const int64_t *extents;
    const char *text;
} program_tables;

/* Point to the tables in a section, which lies on a multiple of 8 bytes; return 0 if they are not in it. */
int opbuild_lay_out(program_tables *t, const uint8_t *data, size_t bytes);

/* Why tables that were laid out cannot be run safely beside so many bytes of weights, or NULL. `nodes` becomes what the step
 * at fault computes, or NULL. */
const char *opbuild_unsound(const program_tables *t, uint64_t weights, const char **nodes);

/* Why two signatures of one model differ in more than their extents, or NULL. */
const char *opbuild_unlike(const program_tables *one, const program_tables *other);

/* Name and bytes of an element; NULL and 0 if there is no such type. */
const char *opbuild_type_name(uint32_t type);
uint32_t opbuild_type_bytes(uint32_t type);

/* Whether a kernel is one that only refuses indices: it writes nothing. Negative ones count from the end in one of the two. */
int opbuild_is_check(const char *symbol);

#endif
