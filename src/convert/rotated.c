/* rotated: which rows of which parameters make rotated columns, as a table. */
#include "convert/rotated.h"

#include <string.h>

/* MLA rotates the last columns of each query head and of the shared key; GQA rotates the first of
 * each head. */
Rotated rotated_rows(const Config *c, const char *name, bool their_pairs)
{
    int64_t r = c->attention_rope_dim, nope = c->attention_nope_dim, rank = c->attention_kv_rank;
    const Rotated latent = { nope + r, nope, r };
    const Rotated head = { c->attention_head_dim, 0, config_rotated(c) };
    const Rotated query = { head.group * (c->attention_gate ? 2 : 1), 0, head.rope };
    const struct {
        const char *name;
        Rotated rows;
    } table[] = {
        { ".self_attn.q_proj.", c->attention_kind == ATTENTION_MLA ? latent : query },
        { ".self_attn.q_b_proj.", latent },
        { ".self_attn.kv_a_proj_with_mqa.", { rank + r, rank, r } },
        { ".self_attn.k_proj.", head },
        { ".self_attn.q_norm.", head },
        { ".self_attn.k_norm.", head },
    };
    const bool same = their_pairs == c->attention_rope_interleaved;
    for (size_t i = 0; !same && i < sizeof table / sizeof *table; i++) {
        if (strstr(name, table[i].name) != NULL) return table[i].rows;
    }
    return (Rotated){ 1, 0, 0 };
}

int64_t rotated_row(Rotated k, bool our_pairs, int64_t r)
{
    int64_t i = r % k.group - k.first, half = k.rope / 2;
    if (i < 0 || i >= k.rope) return r;
    return r - i + (our_pairs ? i / 2 + i % 2 * half : i % half * 2 + i / half);
}
