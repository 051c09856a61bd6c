/* What becomes of each member of foreign files that we know (import_members.tsv): a plan reads it, refuses it by its
 * name, says that it is not followed, or leaves it out as harmless. A member that nobody knows is said, too. */
#include "harness/foreign.h"

#include "kernels/core/kinds.h"
#include "planner/stack/stack.h"

enum { LINE_BYTES = 1024 };

/* A row: format, member, value, what stands beside it ("key: value; ..."), verdict. */
typedef struct Row {
    char *format, *key, *value, *with, *verdict;
} Row;

static const char *const base[][2] = {
    { "megatron",
      "num_layers: 12\nhidden_size: 512\nnum_attention_heads: 8\nvocab_size: 32000\nswiglu: true\n"
      "normalization: RMSNorm\nposition_embedding_type: rope\ndisable_bias_linear: true\nbf16: "
      "true\n"
      "num_experts: 8\nmoe_router_topk: 2\nmoe_ffn_hidden_size: 256\nseq_length: 2048\n"
      "micro_batch_size: 2\nglobal_batch_size: 64\n" },
    { "primus", "" },
    { "torchtitan", "model.name = \"deepseek_v3\"\nmodel.flavor = \"16B\"\n" },
};

/* Appends members: "a: b; c: d", with the format's own sign between key and value. */
static void add_members(Text *t, const char *format, const char *indent, const char *list)
{
    const bool toml = strcmp(format, "torchtitan") == 0;
    while (*list != '\0') {
        const size_t n = strcspn(list, ";"), key = strcspn(list, ":");
        CHECK_OK(text_printf(t, "%s%.*s%s%.*s\n", indent, (int)key, list, toml ? " =" : ":",
                             (int)(n - key - 1), list + key + 1));
        list += n + (list[n] == ';');
        list += strspn(list, " ");
    }
}

/* Is a line's key among the members? */
static bool has_key(const char *list, const char *line)
{
    const size_t n = strcspn(line, ": ");
    for (const char *at = list; *at != '\0'; at += strcspn(at, ";"), at += strspn(at, "; ")) {
        if (strncmp(at, line, n) == 0 && at[n] == ':') return true;
    }
    return false;
}

/* Appends the lines of a format's base but those of these members. */
static void add_base(Text *t, const char *format, const char *members, const char *more_members)
{
    for (int i = 0; i < 3; i++) {
        const char *line = strcmp(base[i][0], format) == 0 ? base[i][1] : "";
        for (; *line != '\0'; line += strcspn(line, "\n") + 1) {
            if (has_key(members, line) || has_key(more_members, line)) continue;
            CHECK_OK(text_append(t, line, strcspn(line, "\n") + 1));
        }
    }
}

/* Imports the base of a format with these members. */
static Status import(const char *format, const char *members, const char *more_members)
{
    Text t;
    CHECK_OK(text_init(&t, &arena));
    const char *indent = strcmp(format, "primus") == 0 ? "      " : "";
    add_members(&t, format, indent, more_members);
    add_members(&t, format, indent, members);
    add_base(&t, format, members, more_members);
    if (*indent != '\0')
        return primus("num_layers: 12\nhidden_size: 512\nnum_attention_heads: 8\nnum_experts: 8\n"
                      "moe_router_topk: 2\nvocab_size: 32000\nseq_length: 2048\n",
                      t.data);
    put("file", t.data);
    return plan_import(format, at("file"), &arena, &config, &more);
}

/* All that an import says, as a text; the notes are not part of it. */
static const char *said(void)
{
    Text t;
    const char *stack = NULL;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(config_print(&config, &t));
    CHECK_OK(text_printf(&t, "%d %d %d %s ", (int)more.gpus, more.per_replica, (int)more.replicas,
                         more.preset));
    const char *text = t.data;
    CHECK_OK(plan_import_stack(&more, more.stack, &arena, &stack));
    Text both;
    CHECK_OK(text_init(&both, &arena));
    CHECK_OK(text_printf(&both, "%s%s", text, stack));
    return both.data;
}

/* Options, notes and unknown keys, as they are printed. */
static const char *notes(void)
{
    Text t;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(plan_import_notes(&more, &t));
    return t.data;
}

static const char *verdict_of(const Row *r)
{
    char member[LINE_BYTES];
    if (import(r->format, r->with, "") != OK) return status_message();
    const char *before = said(), *noted = notes();
    (void)snprintf(member, sizeof member, "%s: %s", r->key, r->value);
    if (import(r->format, r->with, member) != OK) {
        const bool by_name = strstr(status_message(), r->key) != NULL;
        status_clear();
        return by_name ? "refused" : "refused without its name";
    }
    if (strcmp(before, said()) != 0) return "read";
    if (is_unknown(r->key)) return "unknown";
    return strcmp(noted, notes()) != 0 ? "said" : "harmless";
}

static void each_known_member_has_its_verdict(void **state)
{
    (void)state;
    FILE *f = fopen("tests/planner/unit/import_members.tsv", "r");
    char line[LINE_BYTES];
    int rows = 0, wrong = 0;
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL) {
        char *column[5] = { line }, *end = line + strcspn(line, "\n");
        int n = 1;
        *end = '\0';
        if (*line == '#') continue;
        for (char *c = line; *c != '\0' && n < 5; c++) {
            if (*c == '\t') *c = '\0', column[n++] = c + 1;
        }
        CHECK_INT(n, 5);
        const Row r = { column[0], column[1], column[2], column[3], column[4] };
        const ArenaMark mark = arena_mark(&arena);
        const char *verdict = verdict_of(&r);
        arena_release(&arena, mark);
        rows++;
        if (strcmp(verdict, r.verdict) == 0) continue;
        wrong++;
        print_error("%s\t%s\t%s\t%s\t%s\n", r.format, r.key, r.value, r.with, verdict);
    }
    CHECK_INT(fclose(f), 0);
    CHECK(rows > 250);
    CHECK_INT(wrong, 0);
}

/* Of no member that changes layout, memory or time may nothing be said. */
static void a_member_that_nobody_knows_is_said(void **state)
{
    (void)state;
    static const char *const format[] = { "megatron", "primus", "torchtitan" };
    for (int i = 0; i < 3; i++) {
        const char *key = i == 2 ? "parallelism.quantum_degree" : "quantum_size";
        char member[64];
        (void)snprintf(member, sizeof member, "%s: 2", key);
        CHECK_OK(import(format[i], "", member));
        CHECK(is_unknown(key));
        CHECK(strstr(notes(), key) != NULL);
    }
}

/* ---- Megatron-LM's own options ---- */

static void a_command_line_is_the_same_as_its_yaml(void **state)
{
    (void)state;
    put("words",
        "# a recipe\n--num-layers 12 --hidden-size=512 \\\n--num-attention-heads 8 --swiglu\n"
        "--normalization 'RMSNorm' --position-embedding-type rope --disable-bias-linear\n"
        "--vocab-size 32000 --bf16 --num-experts 8 --moe-layer-freq '([0]*2+[1]*10)'\n"
        "--window-size 64 0 --seq-length 2048 --use-distributed-optimizer\n"
        "--moe-token-dispatcher-type flex --data-path a b");
    CHECK_OK(plan_import("megatron", at("words"), &arena, &config, &more));
    const char *words = said();
    CHECK_INT(config.model_dense_layers, 2);
    CHECK_INT(config.attention_window, 64);
    CHECK_INT(config.mesh_zero, 1);
    CHECK_INT(config.run_compute, COMPUTE_BF16);
    CHECK(config.model_tied); /* Megatron's default */
    CHECK_TEXT(more.stack, "megatron");
    CHECK_INT(more.unknown.n, 0);
    put("yaml", "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 12\n"
                "  --hidden-size: 512\n  --num-attention-heads: 8\n  --swiglu: true\n"
                "  --normalization: RMSNorm\n  --position-embedding-type: rope\n"
                "  --disable-bias-linear: true\n  --vocab-size: 32000\n  --bf16: true\n"
                "  --num-experts: 8\n  --moe-layer-freq: ([0]*2+[1]*10)\n  --window-size: [64, 0]\n"
                "  --seq-length: 2048\n  --use-distributed-optimizer: true\n"
                "  --moe-token-dispatcher-type: flex\n");
    CHECK_OK(plan_import("megatron", at("yaml"), &arena, &config, &more));
    CHECK_TEXT(said(), words);
    CHECK_INT(more.unknown.n, 0);
}

static void what_megatron_would_do_otherwise_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "--num-layers 12\n", "Megatron's defaults" },
        { "--num-layers 12\n--swiglu --normalization LayerNorm\n", "words:2:20: normalization" },
        { "num-layers 12", "must be a mapping" },
        { "--num-layers \"12\n", "words:1: not a command line" },
        { "# nothing\n", "no option of Megatron-LM" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("words", bad[i][0]);
        CHECK(plan_import("megatron", at("words"), &arena, &config, &more) != OK);
        if (strstr(status_message(), bad[i][1]) == NULL) fail_msg("%s", status_message());
        status_clear();
    }
}

static void a_vocabulary_is_padded_as_megatron_pads_it(void **state)
{
    (void)state;
    CHECK_OK(import("megatron", "vocab_size: 50257", "tensor_model_parallel_size: 2"));
    CHECK_INT(config.model_vocab, 50432); /* a multiple of 128 x 2 */
    CHECK_OK(import("megatron", "vocab_size: 50257", "make_vocab_size_divisible_by: 1"));
    CHECK_INT(config.model_vocab, 50257);
}

/* ---- replicas ---- */

static void replicas_leave_the_shards_to_the_number_of_gpus(void **state)
{
    (void)state;
    const char *replicas = "parallelism.data_parallel_replicate_degree: 2";
    CHECK_OK(import("torchtitan", replicas, "parallelism.data_parallel_shard_degree: -1"));
    CHECK_INT(more.replicas, 2);
    CHECK_OK(plan_import_cluster(&more, 8, &config));
    CHECK_INT(config.mesh_shard, 4);
    CHECK_INT(config.mesh_zero, 3);
    CHECK_INT(config.train_batch, 64); /* 8 of each of 8 ranks */
    CHECK_OK(import("torchtitan", replicas, ""));
    CHECK_INT(plan_import_cluster(&more, 9, &config), ERR_ARG);
    CHECK(strstr(status_message(), "data_parallel_replicate_degree is 2") != NULL);
    status_clear();
    CHECK_OK(plan_import_cluster(&more, 2, &config)); /* a whole copy on each */
    CHECK_INT(config.mesh_zero, 0);
    CHECK_OK(import("torchtitan", replicas, "parallelism.data_parallel_shard_degree: 4"));
    CHECK_INT(more.gpus, 8);
    CHECK_INT(config.mesh_shard, 4);
    CHECK_OK(import("megatron", "num_distributed_optimizer_instances: 2",
                    "use_distributed_optimizer: true"));
    CHECK_OK(plan_import_cluster(&more, 32, &config));
    CHECK_INT(config.mesh_shard, 16);
    CHECK_INT(config.mesh_zero, 1);
    CHECK_INT(import("torchtitan", "parallelism.data_parallel_replicate_degree: 0", ""), ERR_ARG);
    CHECK_INT(import("torchtitan", "parallelism.data_parallel_shard_degree: 0", ""), ERR_ARG);
    status_clear();
}

/* 16 experts' ranks cannot be those of 8 shards, though two replicas would have as many. */
static void experts_lie_on_the_shards_of_one_replica(void **state)
{
    (void)state;
    const char *experts = "parallelism.expert_parallel_degree: 16; "
                          "parallelism.data_parallel_replicate_degree: 2";
    CHECK_INT(import("torchtitan", experts, "parallelism.data_parallel_shard_degree: 8"), ERR_ARG);
    CHECK(strstr(status_message(), "degree 16 does not divide the 8 ranks of a replica") != NULL);
    status_clear();
    CHECK_OK(import("torchtitan", experts,
                    "parallelism.data_parallel_shard_degree: 8; "
                    "parallelism.context_parallel_degree: 2"));
    CHECK_OK(import("torchtitan", experts, ""));
    CHECK_INT(plan_import_cluster(&more, 16, &config), ERR_ARG);
    status_clear();
    CHECK_OK(plan_import_cluster(&more, 32, &config));
}

/* Python's YAML has yes, no, on and off for them; in quotes they are texts. */
static void words_for_true_and_false_are_those_of_python(void **state)
{
    (void)state;
    CHECK_OK(import("megatron", "use_distributed_optimizer: yes", ""));
    CHECK_INT(config.mesh_zero, 1);
    CHECK_OK(import("megatron", "use_distributed_optimizer: Off; use_rope_scaling: On", ""));
    CHECK_INT(config.mesh_zero, 0);
    CHECK_INT(config.rope_scaling, SCALING_LLAMA3);
    CHECK_INT(import("megatron", "tensor_model_parallel_size: 2", "sequence_parallel: no"),
              ERR_UNSUPPORTED);
    CHECK_INT(import("megatron", "use_distributed_optimizer: \"yes\"", ""), ERR_ARG);
    status_clear();
}

/* The option is --fp8-format, and the member that it sets is fp8. */
static void options_whose_member_has_another_name_count(void **state)
{
    (void)state;
    CHECK_OK(import("megatron", "--fp8-format: e4m3; --fp8-recipe: blockwise", ""));
    CHECK_INT(config.fp8_recipe, RECIPE_BLOCK);
    CHECK_OK(import("megatron", "--fp4-format: e2m1; fp4_recipe: mxfp4", ""));
    CHECK(more.fp4);
    CHECK_OK(import("megatron", "num_moe_experts: 4; layernorm_epsilon: 1e-4", "num_experts: 4"));
    CHECK_NEAR(config.model_norm_eps, 1e-4, 1e-12);
}

static void defaults_of_megatron_that_no_plan_follows_are_said(void **state)
{
    (void)state;
    const char *wide = "tensor_model_parallel_size: 2; expert_model_parallel_size: 2";
    Text notes;
    CHECK_OK(import("megatron", wide, ""));
    CHECK_OK(text_init(&notes, &arena));
    CHECK_OK(plan_import_notes(&more, &notes));
    CHECK(strstr(notes.data, "as with sequence_parallel") != NULL);
    CHECK(strstr(notes.data, "as with expert_tensor_parallel_size 1") != NULL);
    CHECK(strstr(notes.data, "and not as in allgather") != NULL);
    CHECK_OK(import("megatron", wide,
                    "sequence_parallel: true; expert_tensor_parallel_size: 1; "
                    "moe_token_dispatcher_type: alltoall"));
    CHECK_INT(more.notes_n, 0);
}

static void kernels_of_attention_reach_the_stack(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "attention_backend: unfused", ",flash=0" },
        { "attention_backend: local", ",flash=0" },
        { "attention_backend: flash", ",flash=2" },
        { "attention_backend: fused", ",flash=3" },
    };
    for (int i = 0; i < 4; i++) {
        const char *stack = NULL;
        CHECK_OK(import("megatron", cases[i][0], ""));
        CHECK_OK(plan_import_stack(&more, "megatron", &arena, &stack));
        CHECK(strstr(stack, cases[i][1]) != NULL);
    }
}

/* What Megatron-LM has off unless its file says so, whatever NeMo's recipes have. */
static void gradients_and_weights_are_as_the_file_says(void **state)
{
    (void)state;
    const char *stack = NULL;
    CHECK_OK(
        import("megatron", "grad_reduce_in_bf16: true", "fp8: hybrid; fp8_recipe: tensorwise"));
    CHECK_INT(config.mesh_reduce, REDUCE_BF16);
    CHECK_INT(config.fp8_recipe, RECIPE_TENSOR);
    CHECK_OK(plan_import_stack(&more, "megatron", &arena, &stack));
    CHECK(strstr(stack, ",fp8_params=0") != NULL);
    CHECK(strstr(stack, ",graphs=0") != NULL && strstr(stack, ",tp_overlap=0") != NULL);
    CHECK_OK(import("megatron", "fp8_param_gather: true", "fp8: hybrid; fp8_recipe: tensorwise"));
    CHECK_INT(config.mesh_reduce, REDUCE_F32);
    CHECK_OK(plan_import_stack(&more, "megatron", &arena, &stack));
    CHECK(strstr(stack, ",fp8_params=1") != NULL);
}

static void degrees_of_old_job_files_count(void **state)
{
    (void)state;
    CHECK_OK(import("torchtitan", "experimental.context_parallel_degree: 2",
                    "training.data_parallel_shard_degree: 4; training.tensor_parallel_degree: 2"));
    CHECK_INT(config.mesh_cp, 2);
    CHECK_INT(config.mesh_tp, 2);
    CHECK_INT(more.gpus, 16);
}

/* Recomputing by ops is an option of the stack, which has it. */
static void recomputing_by_ops_reaches_the_stack(void **state)
{
    (void)state;
    const char *stack = NULL;
    CHECK_OK(import("torchtitan", "activation_checkpoint.mode: \"selective\"",
                    "activation_checkpoint.selective_ac_option: \"op\""));
    CHECK_OK(plan_import_stack(&more, more.stack, &arena, &stack));
    CHECK(strstr(stack, "op_ac=2") != NULL);
    CHECK(strstr(notes(), "op_ac") == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_known_member_has_its_verdict),
        TEST(a_member_that_nobody_knows_is_said),
        TEST(a_command_line_is_the_same_as_its_yaml),
        TEST(what_megatron_would_do_otherwise_is_refused_by_name),
        TEST(a_vocabulary_is_padded_as_megatron_pads_it),
        TEST(experts_lie_on_the_shards_of_one_replica),
        TEST(words_for_true_and_false_are_those_of_python),
        TEST(options_whose_member_has_another_name_count),
        TEST(defaults_of_megatron_that_no_plan_follows_are_said),
        TEST(replicas_leave_the_shards_to_the_number_of_gpus),
        TEST(kernels_of_attention_reach_the_stack),
        TEST(gradients_and_weights_are_as_the_file_says),
        TEST(degrees_of_old_job_files_count),
        TEST(recomputing_by_ops_reaches_the_stack),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
