/* Running opbuild's offline models (.om) from C. Linux; needs libc, libdl, libm and pthreads, nothing else.
 *
 * A model serves one or several signatures (shapes of its inputs), numbered from 0. Arrays are dense and row-major, in
 * the caller's memory. Any number of threads may use one model; its calls run one after the other. Of a model that was
 * built for ranges of sizes, C runs the one size that is stored whole: signature 0.
 */
#ifndef OPBUILD_OM_H
#define OPBUILD_OM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct opbuild_model opbuild_model;

/* An input or output of a model, for one signature. All pointers live as long as the model. */
typedef struct {
    const char *name;
    const char *type;     /* "float32", "int64", "bool", ... */
    int rank;
    const int64_t *shape; /* `rank` extents, outermost first */
    size_t bytes;
} opbuild_port;

/* Flags of opbuild_open. */
enum {
    OPBUILD_TRUST_WEIGHTS = 1, /* do not read the weights and compare them with their digest */
    OPBUILD_COPY_WEIGHTS = 2   /* read the weights into memory instead of mapping it: nobody can change or cut it then */
};

/* Open a model, or return NULL and write why to `message` (at most `size` bytes; NULL and 0 if nobody asks).
 * `threads` run its kernels; 0 takes the number of cores. The file may be deleted or replaced by renaming afterwards. It
 * must not be written to or cut unless it was opened with OPBUILD_COPY_WEIGHTS: the weights would change, and results be
 * wrong, or the program end with SIGBUS. All else was copied. */
opbuild_model *opbuild_open(const char *path, int threads, unsigned flags, char *message, size_t size);
void opbuild_close(opbuild_model *model);

int opbuild_signatures(const opbuild_model *model);
int opbuild_inputs(const opbuild_model *model);
int opbuild_outputs(const opbuild_model *model);

/* Describe an input or output; `signature` and `index` must be in range. */
opbuild_port opbuild_input(const opbuild_model *model, int signature, int index);
opbuild_port opbuild_output(const opbuild_model *model, int signature, int index);

/* Run: read `inputs[i]`, write `outputs[i]`, each of the port's bytes. Returns 0, or -1 and writes why. */
int opbuild_run(opbuild_model *model, int signature, const void *const *inputs, void *const *outputs, char *message,
                size_t size);

#ifdef __cplusplus
}
#endif
#endif
