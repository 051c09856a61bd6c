/* Folders whose files contradict each other, and what to-hf writes beside the weights. */
#include "harness/hf_lab.h"

#define EIGHT "model.layers.0.mlp.up_proj.weight"

/* The golden llama with one matrix of 8 bits, all ones, whose scale is 2. Without `scale` that is left
 * out. */
static void write_eight(Lab *lab, const Golden *g, bool scale)
{
    static const float two = 2;
    SafeTensor *t = NULL;
    const void **data = NULL;
    uint8_t *ones = NULL;
    int64_t n = 0;
    CHECK_OK(ARENA_NEW(&lab->arena, g->n + 1, &t));
    CHECK_OK(ARENA_NEW(&lab->arena, g->n + 1, &data));
    for (int i = 0; i < g->n; i++) {
        if (!is_weight(&g->at[i])) continue;
        t[n] = tensor_of(&g->at[i]);
        data[n] = g->at[i].t.data;
        if (strcmp(t[n].name, EIGHT) == 0) {
            CHECK_OK(ARENA_NEW(&lab->arena, safetensors_elems(&t[n]), &ones));
            memset(ones, 0x38, (size_t)safetensors_elems(&t[n]));
            t[n].dtype = DTYPE_E4M3;
            data[n] = ones;
        }
        n++;
    }
    CHECK(ones != NULL);
    t[n] = (SafeTensor){ EIGHT "_scale_inv", NULL, DTYPE_F32, 2, { 1, 1 }, 0, 0, 0 };
    data[n] = &two;
    write_tensors(lab, t, data, n + scale);
}

/* A missing scale was read as 1. Without quantization_config transformers reads the bits as they are. */
static void eight_bits_and_their_scales_belong_together(void **state)
{
    Lab *lab = fresh(state);
    Golden g = open_model(lab, "llama");
    write_eight(lab, &g, true);
    CHECK_FAILS(from_hf(lab), ERR_FORMAT,
                EIGHT
                " has scales, but config.json has no quantization_config with quant_method fp8");
    nothing_is_left_behind(lab);
    change_config(lab, "{", "{\"quantization_config\": {\"quant_method\": \"fp8\"},");
    CHECK_OK(from_hf(lab));
    CHECK_OK(file_remove_tree(lab->checkpoint));
    write_eight(lab, &g, false);
    CHECK_FAILS(from_hf(lab), ERR_FORMAT,
                EIGHT " needs its scales, but the folder has no tensor " EIGHT "_scale_inv");
    nothing_is_left_behind(lab);
    golden_close(&g);
}

/* With tie_word_embeddings a head may stand in the file if it is the table. */
static void a_tied_head_that_is_the_table_is_left_out(void **state)
{
    Lab *lab = fresh(state);
    Golden g = open_model(lab, "llama");
    Tensor table = golden_get(&g, "weight", "model.embed_tokens.weight"),
           head = golden_get(&g, "weight", "lm_head.weight");
    change_config(lab, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    CHECK_FAILS(from_hf(lab), ERR_UNSUPPORTED,
                "lm_head.weight differs from model.embed_tokens.weight: the classes of "
                "transformers then do not follow tie_word_embeddings");
    memcpy(head.data, table.data, (size_t)(table.dim[0] * table.dim[1]) * sizeof(float));
    write_folder(lab, "llama", &g, NULL);
    change_config(lab, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    CHECK_OK(from_hf(lab));
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(eight_bits_and_their_scales_belong_together),
        TEST(a_tied_head_that_is_the_table_is_left_out),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
