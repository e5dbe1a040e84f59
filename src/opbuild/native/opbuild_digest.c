/* BLAKE3 as its specification gives it, for one piece of memory: a binary tree over chunks of 1024 bytes. */
#include "opbuild_digest.h"

#include <string.h>

enum { BLOCK = 64, CHUNK = 1024 };
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                               0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};

static const uint8_t ORDER[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1}, {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4}, {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};

/* What remains to be compressed at a node: everything but the flag of the root. */
typedef struct {
    uint32_t chain[8];
    uint32_t words[16];
    uint64_t counter;
    uint32_t size;
    uint32_t flags;
} node;

static uint32_t rotate(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

#define MIX(a, b, c, d, x, y)                                                                                        \
    do {                                                                                                             \
        v[a] += v[b] + (x), v[d] = rotate(v[d] ^ v[a], 16), v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 12);             \
        v[a] += v[b] + (y), v[d] = rotate(v[d] ^ v[a], 8), v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 7);               \
    } while (0)

/* The first eight words that compressing a node gives. */
static void compress(const node *n, uint32_t extra_flags, uint32_t out[8]) {
    uint32_t v[16];
    memcpy(v, n->chain, 32);
    memcpy(v + 8, IV, 16);
    v[12] = (uint32_t)n->counter, v[13] = (uint32_t)(n->counter >> 32), v[14] = n->size, v[15] = n->flags | extra_flags;
    for (int round = 0; round < 7; round++) {
        const uint8_t *o = ORDER[round];
        const uint32_t *w = n->words;
        MIX(0, 4, 8, 12, w[o[0]], w[o[1]]);
        MIX(1, 5, 9, 13, w[o[2]], w[o[3]]);
        MIX(2, 6, 10, 14, w[o[4]], w[o[5]]);
        MIX(3, 7, 11, 15, w[o[6]], w[o[7]]);
        MIX(0, 5, 10, 15, w[o[8]], w[o[9]]);
        MIX(1, 6, 11, 12, w[o[10]], w[o[11]]);
        MIX(2, 7, 8, 13, w[o[12]], w[o[13]]);
        MIX(3, 4, 9, 14, w[o[14]], w[o[15]]);
    }
    for (int i = 0; i < 8; i++) out[i] = v[i] ^ v[i + 8];
}

static node chunk_node(const uint8_t *data, size_t size, uint64_t counter) {
    node n = {.counter = counter, .flags = CHUNK_START};
    memcpy(n.chain, IV, sizeof IV);
    for (;;) {
        n.size = size < BLOCK ? (uint32_t)size : BLOCK;
        memset(n.words, 0, sizeof n.words);
        if (n.size) memcpy(n.words, data, n.size); /* little-endian machines only, as the whole library */
        if (size <= BLOCK) break;
        compress(&n, 0, n.chain);
        n.flags = 0, data += BLOCK, size -= BLOCK;
    }
    n.flags |= CHUNK_END;
    return n;
}

static node tree_node(const uint8_t *data, size_t size, uint64_t counter) {
    if (size <= CHUNK) return chunk_node(data, size, counter);
    size_t left = CHUNK; /* the largest power of two of chunks that leaves something for the right */
    while (left * 2 < size) left *= 2;
    node l = tree_node(data, left, counter);
    node r = tree_node(data + left, size - left, counter + left / CHUNK);
    node n = {.size = BLOCK, .flags = PARENT};
    memcpy(n.chain, IV, sizeof IV);
    compress(&l, 0, n.words);
    compress(&r, 0, n.words + 8);
    return n;
}

void opbuild_digest(const void *data, size_t size, uint8_t digest[32]) {
    uint32_t words[8];
    node root = tree_node(data, size, 0);
    compress(&root, ROOT, words);
    memcpy(digest, words, 32);
}
