/* Answers for `cpuid`, without what is beyond a level, where it was replaced by `ud2` (see limited_cpu.py). */

#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

enum { FEATURES = 7, LENGTH = 2 };

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
    (void)info;
    if (memcmp((void *)registers[REG_RIP], "\x0f\x0b", LENGTH) != 0) {
        signal(number, SIG_DFL); /* the next attempt ends the process */
        return;
    }
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == FEATURES && part == 0) {
        b &= ~(unsigned)HIDDEN_EBX;
        c &= ~(unsigned)HIDDEN_ECX;
        d &= ~(unsigned)HIDDEN_EDX;
    } else if (leaf == FEATURES) {
        a = b = c = d = 0; /* AVX-VNNI, bfloat16, AMX and AVX10: all beyond both levels */
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += LENGTH;
}

__attribute__((constructor)) static void install(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
}
