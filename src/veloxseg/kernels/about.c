/* What this library is; see `about` of the kernels of prediction. */

#include "training.h"

EXPORT const char *sources(void) { return SOURCES; } /* their hash, see library.py */
EXPORT N lanes(void) { return LANES; }

/* Whether the processor has what the library was compiled for. The function itself does without. */
#if defined(__x86_64__)
__attribute__((target("no-avx"))) EXPORT int supported(void) {
    __builtin_cpu_init();
#if LANES == 16
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
           && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
}
#else
EXPORT int supported(void) { return 1; } /* every aarch64 has NEON */
#endif
