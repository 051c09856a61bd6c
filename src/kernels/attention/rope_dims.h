/* rope_dims: the sizes of a call of rope (kernels/attention/rope.h says what they mean), for the ops' arguments and
 * for the list of parts that both backends walk (rope_parts.h). */
#ifndef KERNELS_ATTENTION_ROPE_DIMS_H
#define KERNELS_ATTENTION_ROPE_DIMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RopeMlaDims {
    int64_t heads, nope, rope, v; /* H, dn, dr, dv */
    int64_t q_col, k_col;
    bool interleaved;
} RopeMlaDims;

typedef struct RopeGqaDims {
    int64_t heads, kv_heads, head, rotary; /* H, G, width d of a head, dr columns of it */
    bool interleaved;
    int64_t temper_floor; /* 0: queries are not scaled */
    float temper_scale;
    bool gated; /* behind each query head lies its gate, which is skipped */
} RopeGqaDims;

#endif
