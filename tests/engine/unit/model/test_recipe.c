/* Recipes of 8-bit products: which matrices they quantise, what --dry-run prints of them, and which GPUs and
 * widths are refused. */
#include "harness/arena.h"

#include "engine/model/recipe.h"
#include "engine/model/recipe_text.h"

#include <string.h>

typedef struct Model {
    Config c;
    ModelSpec spec;
    ParamTable table;
} Model;

static void build(const char *preset, const char *const *set, int n, Model *m)
{
    CHECK_OK(config_load(&m->c, &arena, preset, set, n));
    CHECK_OK(spec_build(&m->c, &arena, &m->spec));
    CHECK_OK(params_build(&m->spec, 0, NULL, &arena, &m->table));
}

static int64_t quantised(const Model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->table.n; i++) {
        const Param *p = &m->table.at[i];
        if (recipe_quantises(&m->spec, &m->spec.layers[p->layer], p->role)) n += param_elems(p);
    }
    return n;
}

/* Of DeepSeek-V3 all but embedding, head, routers and norms: 99.7 %. */
static void a_recipe_quantises_the_products_of_its_layers(void **state)
{
    (void)state;
    const char *all[] = { "fp8.recipe=block" }, *some[] = { "fp8.recipe=row", "fp8.layers=[0, 2]" };
    Model m, two;
    build("deepseek-v3", all, 1, &m);
    int64_t vectors = 2 * 129280 * 7168;
    for (int i = 0; i < m.table.n; i++) {
        const Param *p = &m.table.at[i];
        bool router = p->role == ROLE_ROUTER || p->role == ROLE_ROUTER_BIAS;
        if (p->rank == 1 || router) vectors += p->bucket < 0 ? 0 : param_elems(p);
    }
    CHECK_INT(quantised(&m), m.table.total - vectors);
    build("quickstart", some, 2, &two);
    for (int i = 0; i < two.table.n; i++) {
        const Param *p = &two.table.at[i];
        const LayerSpec *l = &two.spec.layers[p->layer];
        bool fits = l->block == 0 || l->block == 2;
        CHECK(fits || !recipe_quantises(&two.spec, l, p->role));
        if (p->role == ROLE_O) CHECK_INT(recipe_quantises(&two.spec, l, p->role), fits);
    }
    build("quickstart", NULL, 0, &two);
    CHECK_INT(quantised(&two), 0);
}

/* Routed experts' matrices or all others; together they are what `all` has. */
static void products_of_one_kind_can_be_chosen(void **state)
{
    (void)state;
    const char *set[3][2] = { { "fp8.recipe=block", "fp8.products=all" },
                              { "fp8.recipe=block", "fp8.products=dense" },
                              { "fp8.recipe=block", "fp8.products=grouped" } };
    Model m[3];
    int64_t routed = 0;
    for (int i = 0; i < 3; i++) build("deepseek-v3", set[i], 2, &m[i]);
    for (int i = 0; i < m[0].table.n; i++)
        routed += m[0].table.at[i].expert >= 0 ? param_elems(&m[0].table.at[i]) : 0;
    CHECK_INT(quantised(&m[2]), routed);
    CHECK_INT(quantised(&m[1]), quantised(&m[0]) - routed);
}

/* Pre-activations wait in 8 bits if each condition holds. */
static void pre_activations_wait_in_8_bits_under_conditions(void **state)
{
    (void)state;
    static const struct {
        const char *set[3];
        bool narrow;
    } cases[] = {
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.scales=exact" }, true },
        { { "fp8.recipe=row", "moe.ffn=256", "fp8.kept=fp8" }, false },
        { { "fp8.recipe=block", "moe.ffn=192", "fp8.kept=fp8" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.kept=plain" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.wgrad=bf16" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.format=hybrid" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.layers=[1, 2]" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "fp8.products=dense" }, false },
        { { "fp8.recipe=block", "moe.ffn=256", "moe.expert_bias=true" }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model m;
        build("quickstart", cases[i].set, 3, &m);
        for (int l = 0; l < m.spec.n_layers; l++) {
            if (m.spec.layers[l].kind == LAYER_MOE)
                CHECK_INT(recipe_narrow(&m.spec, &m.spec.layers[l]), cases[i].narrow);
        }
    }
}

/* What --dry-run prints; valid until the next call. */
static const char *printed(const char *preset, const char *const *set, int n)
{
    static Arena texts;
    Config c;
    Text out;
    arena_free(&texts);
    CHECK_OK(arena_init(&texts, "texts", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(config_load(&c, &arena, preset, set, n));
    CHECK_OK(text_init(&out, &texts));
    CHECK_OK(text_append(&out, "", 0));
    CHECK_OK(recipe_print(&c, &arena, &out));
    return out.data;
}

/* However many experts and layers there are, each kind of parameter is one line. */
static void a_dry_run_shows_the_table_and_each_kind_of_parameter_once(void **state)
{
    (void)state;
    const char *set[] = { "fp8.recipe=block", "fp8.format=hybrid", "fp8.layers=[3, 4]" };
    const char *wide[] = { "fp8.recipe=row", "fp8.wgrad=bf16" };
    const char *text = printed("deepseek-v3", set, 3), travel[] = "rows go to experts in 8 bits";
    CHECK(strstr(text, travel) != NULL);
    CHECK(strstr(text, "fp8.recipe=block, scales are powers of two") != NULL);
    CHECK(strstr(text, "gradients, for weight gradients  tokens   128 x 1") != NULL);
    CHECK(strstr(text, "e5m2") != NULL);
    CHECK(strstr(text, "    512  model.layers.*.mlp.experts.*.gate_proj.weight\n") != NULL);
    CHECK(strstr(text, "      2  model.layers.*.self_attn.q_b_proj.weight\n") != NULL);
    CHECK(strstr(text, "experts.0") == NULL && strstr(text, "embed_tokens") == NULL);
    CHECK(strlen(text) < 3000);
    CHECK(strstr(text, "pre-activations") == NULL); /* some layers, two types */
    text = printed("deepseek-v3", set, 1);
    CHECK(strstr(text, "experts' pre-activations wait for backward in 8 bits") != NULL);
    CHECK(strstr(text, "e4m3  until backward\n") != NULL);
    text = printed("quickstart", wide, 2);
    CHECK(strstr(text, "weight gradients are products in f32 (fp8.wgrad)") != NULL);
    CHECK(strstr(text, "tokens ") == NULL && strstr(text, travel) == NULL);
    CHECK_TEXT(printed("quickstart", NULL, 0), "");
    const char *attention[] = { "fp8.attention=true", "fp8.recipe=row" };
    CHECK(strstr(printed("quickstart", attention, 2), "attention itself") == NULL);
    text = printed("quickstart", attention, 1);
    CHECK(strstr(text, "8-bit       fp8.attention: forward multiplies in e4m3") == text);
    CHECK(strstr(text, "fp8.recipe") == NULL);
}

/* The head alone is added, however its layer's number stands to fp8.layers. */
static void the_head_is_quantised_if_it_is_asked_for(void **state)
{
    (void)state;
    const char *set[] = { "fp8.recipe=block", "fp8.layers=[0]", "fp8.head=true",
                          "fp8.products=grouped" };
    Model without, with;
    for (int n = 2; n <= 4; n += 2) {
        const char *plain[] = { set[0], set[1], n == 4 ? set[3] : "fp8.products=all" };
        build("deepseek-v3", plain, 3, &without);
        build("deepseek-v3", set, n == 4 ? 4 : 3, &with);
        CHECK_INT(quantised(&with), quantised(&without) + (int64_t)129280 * 7168);
    }
    const char *text = printed("deepseek-v3", set, 4);
    CHECK(strstr(text, "not quantised: embedding, router,") != NULL);
    CHECK(strstr(text, "      1  lm_head.weight\n") != NULL);
    CHECK(strstr(printed("deepseek-v3", set, 2), "embedding, head, router,") != NULL);
    RecipeGpu gpu = { "GPU 0 (NVIDIA H200)", 90, VENDOR_NVIDIA, NULL };
    with.spec.ranks.tp = 1;
    for (int i = 0; i < with.table.n_matrices; i++)
        if (with.table.matrix[i].role == ROLE_HEAD) with.table.matrix[i].dim[0] = 129280 / 16 + 1;
    CHECK_FAILS(recipe_check_gpu(&with.spec, &with.table, &gpu, 2048), ERR_ARG,
                "lm_head.weight is in a matrix of 8081 x 7168: 8-bit products on a GPU need "
                "multiples of 16 on both sides; change the width, set fp8.head=false, or");
}

static void an_8_bit_head_needs_blocks_and_a_matrix_that_fits(void **state)
{
    (void)state;
    static const struct {
        const char *overrides[3], *part;
    } cases[] = {
        { { "fp8.head=true" }, "none has none: set fp8.recipe=block, or leave fp8.head out" },
        { { "fp8.head=true", "fp8.recipe=row" }, "fp8.head has scales of 1 x 128: set fp8.recipe" },
        { { "fp8.head=true", "fp8.recipe=block", "model.tied=true" },
          "fp8.head needs a matrix of its own, and model.tied=true shares the embedding's" },
        { { "fp8.head=true", "fp8.recipe=block", "model.vocab=4100" },
          "model.vocab 4100 is not a multiple of 16, as rows of 8-bit numbers must be; 4112 is" },
        { { "fp8.head=true", "fp8.recipe=block", "model.loss_chunk=192" },
          "model.loss_chunk 192 is not a multiple of 128, tokens that share a scale of fp8.head" },
    };
    Config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        while (n < 3 && cases[i].overrides[n] != NULL) n++;
        CHECK_FAILS(config_load(&c, &arena, NULL, cases[i].overrides, n), ERR_ARG, cases[i].part);
    }
    const char *fits[] = { "fp8.head=true", "fp8.recipe=block", "model.loss_chunk=256" };
    CHECK_OK(config_load(&c, &arena, NULL, fits, 3));
}

static void a_gpu_without_8_bit_products_is_refused_with_what_it_has_and_needs(void **state)
{
    (void)state;
    const char *set[] = { "fp8.recipe=tensor" };
    Model m;
    RecipeGpu old = { "GPU 1 (NVIDIA A100)", 80, VENDOR_NVIDIA, NULL },
              ada = { "GPU 0 (NVIDIA L40S)", 89, VENDOR_NVIDIA, NULL };
    build("quickstart", set, 1, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &old, 2048), ERR_UNSUPPORTED,
                "fp8.recipe=tensor: GPU 1 (NVIDIA A100) has compute capability 8.0, 8-bit products "
                "need 8.9; run.device=cpu emulates them");
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &ada, 2048));
    const char *block[] = { "fp8.recipe=block", "fp8.kept=fp8" };
    build("quickstart", block, 2, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &ada, 2048), ERR_UNSUPPORTED,
                "fp8.kept=fp8: GPU 0 (NVIDIA L40S) has compute capability 8.9");
    RecipeGpu translated = { "GPU 0 (NVIDIA H200)", 90, VENDOR_NVIDIA, "no code of sm_90a" };
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &translated, 2048), ERR_UNSUPPORTED,
                "fp8.kept=fp8: GPU 0 (NVIDIA H200): no code of sm_90a; or set fp8.kept=plain");
    block[1] = "fp8.kept=plain";
    build("quickstart", block, 2, &m);
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &ada, 2048));
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &translated, 2048));
    build("quickstart", NULL, 0, &m);
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &old, 2048));
}

static void a_gpu_without_a_kernel_for_8_bit_attention_is_refused(void **state)
{
    (void)state;
    const char *set[] = { "fp8.attention=true", "run.compute=bf16" };
    Model m;
    RecipeGpu ada = { "GPU 0 (NVIDIA L40S)", 89, VENDOR_NVIDIA, NULL },
              hopper = { "GPU 0 (NVIDIA H200)", 90, VENDOR_NVIDIA, NULL };
    build("deepseek-v2-lite", set, 2, &m);
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &hopper, 2048));
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &ada, 2048), ERR_UNSUPPORTED,
                "fp8.attention: GPU 0 (NVIDIA L40S) has no kernel for attention of layer 0 (mla): "
                "compute capability is 8.9, 9.0 is the least; run.device=cpu emulates it");
    hopper.lacks_code = "no code of sm_90a";
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &hopper, 2048), ERR_UNSUPPORTED,
                "layer 0 (mla): no code of sm_90a; run.device=cpu emulates it");
    hopper.lacks_code = NULL;
    build("quickstart", set, 2, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &hopper, 2048), ERR_UNSUPPORTED,
                "(mla): heads are 48 and 32 wide, it takes 192 or 128 and 128");
    const char *wide[] = { "fp8.attention=true", "run.compute=f32" };
    build("deepseek-v2-lite", wide, 2, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &hopper, 2048), ERR_UNSUPPORTED,
                "tensors are f32, it takes bf16");
}

static void scales_of_1x32_are_refused_on_every_gpu(void **state)
{
    (void)state;
    const char *set[] = { "fp8.recipe=mx", "fp8.format=e2m1" };
    Model m;
    RecipeGpu old = { "GPU 0 (NVIDIA H200)", 90, VENDOR_NVIDIA, NULL },
              new = { "GPU 2 (NVIDIA B200)", 100, VENDOR_NVIDIA, NULL };
    build("quickstart", set, 2, &m);
    CHECK_FAILS(
        recipe_check_gpu(&m.spec, &m.table, &old, 2048), ERR_UNSUPPORTED,
        "fp8.recipe=mx (e2m1) has no kernel on a GPU: hardware has it from compute capability "
        "10.0 on, GPU 0 (NVIDIA H200) has 9.0; run.device=cpu emulates it");
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &new, 2048), ERR_UNSUPPORTED, "no kernel");
    const char *text = printed("quickstart", set, 2);
    CHECK(strstr(text, "4-bit       fp8.recipe=mx, scales are powers of two") != NULL);
    CHECK(strstr(text, "inputs, for weight gradients     tokens   32 x 1") != NULL);
}

static void a_width_that_no_kernel_takes_names_the_parameter(void **state)
{
    (void)state;
    const char *odd[] = { "fp8.recipe=row", "moe.ffn=200" };
    const char *head[] = { "fp8.recipe=row", "attention.v_dim=33", "fp8.layers=[2]" };
    const char *wide[] = { "fp8.recipe=row", "fp8.wgrad=bf16" };
    Model m;
    RecipeGpu gpu = { "GPU 0 (NVIDIA H200)", 90, VENDOR_NVIDIA, NULL };
    build("quickstart", odd, 2, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &gpu, 2048), ERR_ARG,
                "mlp.shared_experts.down_proj.weight is in a matrix of 256 x 200: 8-bit products");
    build("quickstart", head, 3, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &gpu, 2048), ERR_ARG,
                "model.layers.2.self_attn");
    build("quickstart", wide, 1, &m);
    CHECK_FAILS(recipe_check_gpu(&m.spec, &m.table, &gpu, 2040), ERR_ARG,
                "a micro-batch has 2040 tokens on a rank");
    build("quickstart", wide, 2, &m);
    CHECK_OK(recipe_check_gpu(&m.spec, &m.table, &gpu, 2040));
}

/* Columns are made from rows that were rounded once. With exact scales they would be rounded twice. */
static void rows_go_to_experts_in_8_bits_if_a_power_of_two_moves_them(void **state)
{
    (void)state;
    static const struct {
        const char *set[3];
        bool dispatch;
    } cases[] = {
        { { "fp8.recipe=block", "fp8.dispatch=auto", "fp8.scales=auto" }, true },
        { { "fp8.recipe=block", "fp8.dispatch=fp8", "fp8.scales=pow2" }, true },
        { { "fp8.recipe=block", "fp8.dispatch=bf16", "fp8.scales=auto" }, false },
        { { "fp8.recipe=block", "fp8.dispatch=auto", "fp8.scales=exact" }, false },
        { { "fp8.recipe=row", "fp8.dispatch=auto", "fp8.scales=pow2" }, false },
        { { "fp8.recipe=none", "fp8.dispatch=auto", "fp8.scales=auto" }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model m;
        build("quickstart", cases[i].set, 3, &m);
        CHECK_INT(m.spec.recipe.dispatch, cases[i].dispatch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_recipe_quantises_the_products_of_its_layers),
        TEST(products_of_one_kind_can_be_chosen),
        TEST(pre_activations_wait_in_8_bits_under_conditions),
        TEST(a_dry_run_shows_the_table_and_each_kind_of_parameter_once),
        TEST(rows_go_to_experts_in_8_bits_if_a_power_of_two_moves_them),
        TEST(an_8_bit_head_needs_blocks_and_a_matrix_that_fits),
        TEST(the_head_is_quantised_if_it_is_asked_for),
        TEST(a_gpu_without_8_bit_products_is_refused_with_what_it_has_and_needs),
        TEST(a_gpu_without_a_kernel_for_8_bit_attention_is_refused),
        TEST(scales_of_1x32_are_refused_on_every_gpu),
        TEST(a_width_that_no_kernel_takes_names_the_parameter),
    };
    return ARENA_RUN(tests);
}
