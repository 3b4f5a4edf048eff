/* A program: recorded calls, one row of 64-bit words each, run in one go.

   A row is the kernel's number and its arguments; recorder.py writes it, and has compared it with the buffers by then.
   Python is left once for a window and not once for a kernel, so threads do not wait for each other in between. */

#include "kernels.h"

#define FLOATS(i) (float *)w[i]

/* each kernel with its arguments out of the words w; a kernel's number is its place in this list */
#define KERNELS(DO) \
    DO(product, (const Product *)w[0]) \
    DO(head, FLOATS(0), w[1], w[2], FLOATS(3), FLOATS(4), FLOATS(5), w[6], w[7], w[8], w[9], w[10], FLOATS(11), \
       FLOATS(12)) \
    DO(group, FLOATS(0), w[1], w[2], FLOATS(3), FLOATS(4), FLOATS(5), w[6], w[7], w[8], w[9], w[10], w[11]) \
    DO(filtered_group, FLOATS(0), w[1], w[2], FLOATS(3), FLOATS(4), FLOATS(5), w[6], w[7], w[8], w[9], w[10], w[11], \
       FLOATS(12)) \
    DO(statistics, FLOATS(0), w[1], w[2], w[3], w[4], w[5], w[6], FLOATS(7), FLOATS(8)) \
    DO(normalise, FLOATS(0), w[1], w[2], FLOATS(3), FLOATS(4), w[5], FLOATS(6), FLOATS(7), w[8], w[9], w[10], w[11], \
       w[12], w[13]) \
    DO(layer_norm, FLOATS(0), FLOATS(1), w[2], w[3]) \
    DO(cells, FLOATS(0), w[1], w[2], FLOATS(3), w[4], w[5], w[6], w[7], w[8]) \
    DO(place, FLOATS(0), w[1], w[2], w[3], FLOATS(4), w[5], w[6], w[7], w[8], w[9], w[10], w[11]) \
    DO(gather, (const Pair *)w[0], FLOATS(1), w[2], w[3], w[4], FLOATS(5)) \
    DO(attention, FLOATS(0), w[1], w[2], w[3], w[4], w[5], FLOATS(6), FLOATS(7), FLOATS(8)) \
    DO(scatter, (const Pair *)w[0], FLOATS(1), w[2], FLOATS(3), FLOATS(4), w[5], w[6])

#define NUMBER(name, ...) number_of_##name,
#define NAME(name, ...) #name " "
#define CASE(name, ...) case number_of_##name: name(__VA_ARGS__); break;

enum { KERNELS(NUMBER) };

/* the kernels' names, in the order of their numbers */
EXPORT const char *kernel_names(void) { return KERNELS(NAME); }

/* `count` calls, with `row` words for each */
EXPORT void replay(const N *calls, N count, N row) {
    for (; count > 0; count--, calls += row) {
        const N *w = calls + 1;
        switch (calls[0]) { KERNELS(CASE) }
    }
}
