/* Stock configurations of Primus: each is planned, or refused with the one reason that its row names; and what their
 * keys become. */
#include "harness/foreign.h"

#include "kernels/core/kinds.h"
#include "planner/answer.h"
#include "planner/stack/stack.h"

static void products_in_8_bits_become_a_recipe(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      fp8: hybrid\n"));
    CHECK_INT(config.fp8_recipe, RECIPE_TENSOR);
    CHECK_INT(config.fp8_format, FORMAT_HYBRID);
    CHECK_INT(config.fp8_products, PRODUCTS_ALL);
    CHECK_OK(primus(shape, "      num_experts: 8\n      moe_router_topk: 2\n      fp8: e4m3\n"
                           "      fp8_recipe: blockwise\n      moe_use_legacy_grouped_gemm: true\n"
                           "      first_last_layers_bf16: true\n"
                           "      num_layers_at_end_in_bf16: 2\n"));
    CHECK_INT(config.fp8_recipe, RECIPE_BLOCK);
    CHECK_INT(config.fp8_products, PRODUCTS_DENSE);
    CHECK_INT(config.fp8_layers.n, 9);
    CHECK(config.fp8_layers.at[0] == 1 && config.fp8_layers.at[8] == 9);
    CHECK_OK(titan("[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n"
                   "converters = [\"float8\"]\n[quantize.linear.float8]\n"
                   "recipe_name = \"rowwise\"\n"));
    CHECK_INT(config.fp8_recipe, RECIPE_ROW);
    CHECK_INT(config.fp8_products, PRODUCTS_DENSE);
    CHECK_OK(titan("[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n[primus_turbo]\n"
                   "use_turbo_float8_linear = true\nuse_moe_fp8 = true\n"));
    CHECK_INT(config.fp8_recipe, RECIPE_TENSOR);
    CHECK_INT(config.fp8_products, PRODUCTS_ALL);
}

static void ranks_at_the_ends_have_layers_of_their_own(void **state)
{
    (void)state;
    CHECK_OK(primus(shape, "      pipeline_model_parallel_size: 4\n"
                           "      decoder_first_pipeline_num_layers: 2\n"
                           "      decoder_last_pipeline_num_layers: 4\n"));
    CHECK_TEXT(config.mesh_layout, "Et*2|t*3|t*3|t*4,L");
    CHECK_OK(primus(shape, "      pipeline_model_parallel_size: 2\n"
                           "      virtual_pipeline_model_parallel_size: 2\n"
                           "      decoder_last_pipeline_num_layers: 4\n"));
    CHECK_TEXT(config.mesh_layout, "Et*4|t*2|t*4|t*2,L");
    CHECK_OK(primus(shape, "      decoder_last_pipeline_num_layers: 4\n"));
    CHECK_TEXT(config.mesh_layout, "");
}

static void windows_lists_and_sharded_weights_are_carried(void **state)
{
    (void)state;
    const char *stack = NULL;
    CHECK_OK(primus(shape, "      use_sink_attention: true\n      sink_sliding_window: 128\n"
                           "      sink_window_even_layers_only: true\n"));
    CHECK(config.attention_sinks);
    CHECK_INT(config.attention_window, 128);
    CHECK_INT(config.attention_full_every, 2);
    CHECK_OK(primus(shape, "      window_size: [64, 0]\n      window_attn_skip_freq: 4\n"));
    CHECK_INT(config.attention_window, 64);
    CHECK_INT(config.attention_full_every, 4);
    CHECK_OK(primus(shape, "      recompute_granularity: full\n"
                           "      recompute_layer_ids: \"0,3,4\"\n"));
    check_layers("0 3 4");
    CHECK_OK(primus(shape, "      recompute_granularity: selective\n"));
    CHECK_INT(config.recompute_layers.n, config.model_layers);
    CHECK_TEXT(config.recompute_pieces.at[0], "core_attn");
    CHECK_OK(primus(shape, "      use_torch_fsdp2: true\n"
                           "      use_precision_aware_optimizer: true\n"
                           "      main_grads_dtype: bf16\n      exp_avg_dtype: bf16\n"
                           "      exp_avg_sq_dtype: fp8\n"));
    CHECK_INT(config.mesh_zero, 3);
    CHECK_TEXT(config.model_name, "model");
    CHECK_OK(plan_import_stack(&more, "primus", &arena, &stack));
    CHECK_TEXT(stack, "primus,zero_most=3,grad_size=2,moment_size=3");
    CHECK_TEXT(more.stack, "primus");
}

/* ---- stock files ---- */

enum { COLUMNS = 7, MODEL_NAME = 1, MODEL_SET };
enum { FILE_NAME = 1, FILE_FRAMEWORK, FILE_MODEL, FILE_GPUS, FILE_WANT, FILE_SET };

/* Splits a line at its tabs. */
static int columns(char *line, char *col[COLUMNS])
{
    int n = 0;
    for (char *save = NULL, *one = strtok_r(line, "\t\n", &save); one != NULL && n < COLUMNS;
         one = strtok_r(NULL, "\t\n", &save))
        col[n++] = one;
    return n;
}

/* "key=value key=value" as lines of YAML. */
static void add_settings(FILE *f, const char *indent, char *list)
{
    for (char *save = NULL, *word = strtok_r(list, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        CHECK(equals != NULL);
        *equals = '\0';
        CHECK(fprintf(f, "%s%s: %s\n", indent, word, equals + 1) > 0);
    }
}

static void put_model(char *const col[COLUMNS])
{
    char name[256];
    (void)snprintf(name, sizeof name, "models/megatron/%s.yaml", col[MODEL_NAME]);
    FILE *f = fopen(at(name), "w");
    CHECK(f != NULL);
    add_settings(f, "", col[MODEL_SET]);
    CHECK_INT(fclose(f), 0);
}

static void put_experiment(char *const col[COLUMNS])
{
    FILE *f = fopen(at("exp.yaml"), "w");
    CHECK(f != NULL);
    CHECK(fprintf(f,
                  "modules:\n  pre_trainer:\n    framework: %s\n    model: %s.yaml\n"
                  "    overrides:\n",
                  col[FILE_FRAMEWORK], col[FILE_MODEL]) > 0);
    add_settings(f, "      ", col[FILE_SET]);
    CHECK_INT(fclose(f), 0);
}

/* Plans the experiment as the command does. */
static Status plan_experiment(char *const col[COLUMNS], Arena *a, PlanAnswer *out)
{
    static Hardware hardware;
    static PlanStack sheet;
    const char *stack = NULL, *gpu = text_starts(col[FILE_NAME], "MI300X/") ? "mi300x" : "mi355x";
    const int64_t gpus = strtoll(col[FILE_GPUS], NULL, 10);
    TRY(plan_import("primus", at("exp.yaml"), a, &config, &more));
    TRY(plan_import_stack(&more, more.stack, a, &stack));
    TRY(stack_load(&sheet, a, stack));
    TRY(hardware_load(&hardware, a, gpu));
    if (more.per_replica) config.train_batch *= gpus / (config.mesh_pp * config.mesh_cp);
    const PlanQuestion q = { .request = { &config, &hardware, &sheet, gpus }, .top = 1 };
    return plan_answer(&q, a, out);
}

/* A reason is part of the sentence; the sentence has the file's key or our setting, so that a user can act. */
static void check_file(char *const col[COLUMNS], int *planned)
{
    Arena own = { 0 };
    PlanAnswer answer = { 0 };
    char says[1024] = "";
    CHECK_OK(arena_init(&own, "file", MEM_HOST, (size_t)4 << 30));
    put_experiment(col);
    Status s = plan_experiment(col, &own, &answer);
    bool want = strcmp(col[FILE_WANT], "planned") == 0;
    if (s != OK) status_sentence(says, sizeof says);
    if ((s == OK) != want || (!want && strstr(says, col[FILE_WANT]) == NULL))
        fail_msg("%s (%s): wanted %s, got %s", col[FILE_NAME], col[FILE_FRAMEWORK], col[FILE_WANT],
                 s == OK ? "planned" : says);
    if (s == OK) CHECK(answer.price.step_s > 0 && answer.price.peak_bytes > 0);
    *planned += s == OK;
    plan_answer_free(&answer);
    arena_free(&own);
    status_clear();
}

static void each_stock_file_is_planned_or_refused_with_one_reason(void **state)
{
    (void)state;
    char line[4096], *col[COLUMNS];
    int files = 0, planned = 0;
    FILE *f = fopen("tests/planner/unit/primus_files.tsv", "r");
    CHECK(f != NULL);
    make_folder("models/megatron");
    while (fgets(line, sizeof line, f) != NULL) {
        if (*line == '#') continue;
        const int n = columns(line, col);
        if (strcmp(col[0], "model") == 0) {
            CHECK_INT(n, MODEL_SET + 1);
            put_model(col);
            continue;
        }
        CHECK_INT(n, FILE_SET + 1);
        check_file(col, &planned);
        files++;
    }
    CHECK_INT(fclose(f), 0);
    CHECK(files >= 46 && planned >= 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(products_in_8_bits_become_a_recipe),
        TEST(ranks_at_the_ends_have_layers_of_their_own),
        TEST(windows_lists_and_sharded_weights_are_carried),
        TEST(each_stock_file_is_planned_or_refused_with_one_reason),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
