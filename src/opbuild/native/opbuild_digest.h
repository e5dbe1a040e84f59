/* BLAKE3 of bytes in memory, for checking offline models. */
#ifndef OPBUILD_DIGEST_H
#define OPBUILD_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Write the 32-byte digest of `size` bytes. */
void opbuild_digest(const void *data, size_t size, uint8_t digest[32]);

#endif
