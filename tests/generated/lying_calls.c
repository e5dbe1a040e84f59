/* Runs offline models as a program would: every signature twice, then twice at once in two threads.
 *
 * Each line of the standard input is FLAGS and MODEL; a process of its own runs the model, and a line says how that ended: 0, 3
 * if the model or a call is refused, anything else is a crash. MODEL.out has all outputs of the first two calls of each
 * signature, MODEL.said what was said. FLAGS are those of opbuild_open, and 256: only open; 512: write over the whole file once
 * it is open. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opbuild_om.h"

enum { ONLY_OPEN = 256, OVERWRITE = 512, REFUSED = 3, CALLS = 2 };
static const size_t LARGEST = 1 << 28;

typedef struct {
    opbuild_model *model;
    int signature, call, result;
    void **inputs, **outputs;
    char why[512];
} turn;

static void refuse(const char *why) {
    puts(why);
    exit(REFUSED);
}

static size_t elements(const opbuild_port *port) {
    size_t count = 1;
    for (int i = 0; i < port->rank; i++) count *= (size_t)port->shape[i];
    return count;
}

/* Memory of exactly the port's size; elements of an input are small numbers. */
static void *array(const opbuild_port *port, int index, int call, int is_input) {
    uint8_t *data = port->bytes > LARGEST ? NULL : calloc(1, port->bytes);
    if (!data) refuse("there is no memory");
    size_t count = elements(port), item = count ? port->bytes / count : 0;
    for (size_t i = 0; is_input && i < count; i++) data[i * item] = (uint8_t)((i * 5 + (size_t)index + (size_t)call) % 4);
    return data;
}

static turn begin(opbuild_model *model, int signature, int call) {
    turn t = {.model = model, .signature = signature, .call = call};
    t.inputs = calloc((size_t)opbuild_inputs(model) + 1, sizeof *t.inputs);
    t.outputs = calloc((size_t)opbuild_outputs(model) + 1, sizeof *t.outputs);
    for (int i = 0; i < opbuild_inputs(model); i++) {
        opbuild_port port = opbuild_input(model, signature, i);
        t.inputs[i] = array(&port, i, call, 1);
    }
    for (int i = 0; i < opbuild_outputs(model); i++) {
        opbuild_port port = opbuild_output(model, signature, i);
        t.outputs[i] = array(&port, i, call, 0);
    }
    return t;
}

static void *run(void *context) {
    turn *t = context;
    t->result = opbuild_run(t->model, t->signature, (const void *const *)t->inputs, t->outputs, t->why, sizeof t->why);
    return NULL;
}

static void end(turn *t, FILE *to) {
    for (int i = 0; i < opbuild_inputs(t->model); i++) free(t->inputs[i]);
    for (int i = 0; i < opbuild_outputs(t->model); i++) {
        if (to) fwrite(t->outputs[i], 1, opbuild_output(t->model, t->signature, i).bytes, to);
        free(t->outputs[i]);
    }
    free(t->inputs), free(t->outputs);
}

static void overwrite(const char *path) {
    FILE *file = fopen(path, "r+b");
    if (!file || fseek(file, 0, SEEK_END) != 0) exit(2);
    long bytes = ftell(file);
    rewind(file);
    while (bytes-- > 0) fputc(0x91, file);
    fclose(file);
}

static int try_model(const char *path, int flags) {
    char why[512], out[4096];
    opbuild_model *model = opbuild_open(path, 2, (unsigned)flags & 255u, why, sizeof why);
    if (!model) refuse(why);
    if (flags & OVERWRITE) overwrite(path);
    snprintf(out, sizeof out, "%s.out", path);
    FILE *to = fopen(out, "wb");
    if (!to) return 2;
    for (int signature = 0; !(flags & ONLY_OPEN) && signature < opbuild_signatures(model); signature++) {
        for (int call = 0; call < CALLS; call++) {
            turn t = begin(model, signature, call);
            run(&t);
            if (t.result != 0) refuse(t.why);
            end(&t, to);
        }
        turn both[2] = {begin(model, signature, 0), begin(model, signature, 1)};
        pthread_t other;
        if (pthread_create(&other, NULL, run, &both[0]) != 0) return 2;
        run(&both[1]);
        pthread_join(other, NULL);
        end(&both[0], NULL), end(&both[1], NULL);
    }
    fclose(to);
    opbuild_close(model);
    return 0;
}

int main(void) {
    char line[4096], said[4200];
    while (fgets(line, sizeof line, stdin)) {
        char *path;
        int flags = (int)strtol(line, &path, 10), status = 0;
        path[strcspn(path, "\n")] = 0;
        path++;
        pid_t child = fork();
        if (child == 0) {
            snprintf(said, sizeof said, "%s.said", path);
            if (!freopen(said, "w", stdout) || dup2(fileno(stdout), 2) < 0) _exit(2);
            alarm(40);
            exit(try_model(path, flags));
        }
        if (child < 0 || waitpid(child, &status, 0) != child) return 1;
        printf("%d %s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), path);
        fflush(stdout);
    }
    return 0;
}
