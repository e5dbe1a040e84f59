/* An argument of a kernel, as HalideRuntime.h has it. */
#ifndef OPBUILD_ARGUMENT_H
#define OPBUILD_ARGUMENT_H

#include <stdint.h>

typedef struct {
    int32_t min, extent, stride;
    uint32_t flags;
} dimension;

typedef struct {
    uint64_t device;
    const void *device_interface;
    uint8_t *host;
    uint64_t flags;
    uint8_t code, bits;
    uint16_t lanes;
    int32_t dimensions;
    dimension *dim;
    void *padding;
} argument;

#endif
