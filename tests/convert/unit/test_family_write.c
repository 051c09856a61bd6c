/* Which family a configuration is written as, what refuses it, and what becomes of each setting. */
#include "harness/arena.h"

#include "convert/family.h"
#include "engine/base/file.h"

#include <stdlib.h>

static void a_model_of_no_family_is_refused_with_what_differs(void **state)
{
    static const struct {
        const char *set[6], *says;
    } rows[] = {
        { { "attention.kind=gqa", "moe.shared=0", "attention.qk_norm=rms", "moe.bias_rate=0.001" },
          "the nearest is qwen3_moe, but its router has no bias, which moe.bias_rate 0.001" },
        { { "attention.kind=gqa", "moe.shared=0", "attention.qk_norm=rms",
            "moe.forced_balance=true" },
          "the nearest is qwen3_moe, but moe.forced_balance is true here and false there" },
        { { "attention.kind=gqa", "attention.qk_norm=rms", "moe.shared=0", "moe.activation=gelu" },
          "the nearest is qwen3_moe, but moe.activation is gelu here and swiglu there" },
        { { "attention.kind=gqa", "attention.qk_norm=width", "moe.shared=0", "model.dense_layers=0",
            "attention.head_dim=30" },
          "the nearest is qwen3_moe, but attention.qk_norm is width here and rms there" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        const Family *family = NULL;
        Json *json = NULL;
        CHECK_OK(config_default(&c, &arena));
        for (int k = 0; k < 6 && rows[i].set[k] != NULL; k++)
            CHECK_OK(config_override(&c, &arena, rows[i].set[k]));
        CHECK_FAILS(family_write(&c, NULL, &arena, &json, &family, &theirs), ERR_UNSUPPORTED,
                    rows[i].says);
        CHECK(json == NULL);
    }
}

/* Gives the row another value than c has. */
static void change_value(Config *c, const ConfigRow *row)
{
    char *field = (char *)c + row->offset;
    switch (row->type) {
    case CONFIG_INT: *(int64_t *)(void *)field += 2; break;
    case CONFIG_REAL: *(double *)(void *)field = *(double *)(void *)field / 2 + 0.125; break;
    case CONFIG_BOOL: *(bool *)(void *)field = !*(bool *)(void *)field; break;
    case CONFIG_CHOICE: {
        int n = 0;
        int *at = (int *)(void *)field;
        *at = text_word(row->choices, *at + 1, &n) == NULL ? 0 : *at + 1;
        break;
    }
    default: fail_msg("%s", row->name);
    }
}

static bool is_in(const char *const *list, const char *name)
{
    for (; *list != NULL; list++) {
        if (strcmp(*list, name) == 0) return true;
    }
    return false;
}

/* Listed by hand: settings that steer the training, or how the loss is computed, never refuse. */
static const char *const never_refuse[] = { "attention.document_mask",
                                            "moe.bias_rule",
                                            "moe.z_loss",
                                            "moe.capacity",
                                            "moe.aux_loss",
                                            "moe.aux_scope",
                                            "model.loss_chunk",
                                            "attention.rope_interleaved", /* rows are reordered */
                                            NULL };
/* These may change on the way: the step of the bias, and settings that are idle beside others. */
static const char *const may_change[] = { "moe.bias_rate",       "attention.temper_scale",
                                          "moe.limit",           "moe.top_groups",
                                          "moe.group_score_top", "rope.low_freq",
                                          "rope.high_freq",      NULL };

/* A model of each family, whose settings are changed one by one. */
static const struct {
    const char *type, *preset;
} bases[] = {
    { "llama", "llama3-8b" },         { "qwen3", "qwen3-8b" },
    { "mixtral", "mixtral-8x7b" },    { "qwen3_moe", "qwen3-30b-a3b" },
    { "olmoe", "olmoe-1b-7b" },       { "qwen2_moe", "qwen1.5-moe-a2.7b" },
    { "deepseek_v2", "deepseek-v2" }, { "deepseek_v3", "deepseek-v3" },
    { "glm4_moe", "glm-4.5-air" },    { "llama4_text", "llama4-scout" },
    { "gpt_oss", "gpt-oss-20b" },     { "qwen3_next", "qwen3-next-80b-a3b" },
};
/* These belong to one kind of attention. */
static const char *const latent[] = { "attention.q_rank",
                                      "attention.kv_rank",
                                      "attention.nope_dim",
                                      "attention.rope_dim",
                                      "attention.v_dim",
                                      "attention.latent_eps",
                                      NULL };
static const char *const grouped[] = { "attention.kv_heads", "attention.head_dim", NULL };

enum { BASES = sizeof bases / sizeof *bases };

/* What becomes of a setting that is changed alone: C carried, O carried by another family, R refused,
 * F free to change. */
static char export_with_change(int base, const ConfigRow *row)
{
    static const char *const yarn[] = { "rope.scaling=yarn", "rope.factor=4", "rope.original=16" };
    Config c, theirs;
    Text ours, other;
    const Family *family = NULL;
    Json *json = NULL;
    const bool never = is_in(never_refuse, row->name), rope = text_starts(row->name, "rope.");
    CHECK_OK(config_load(&c, &arena, bases[base].preset, yarn, rope ? 3 : 0));
    change_value(&c, row);
    Status s = family_write(&c, NULL, &arena, &json, &family, &theirs);
    if (s != OK && never) fail_msg("%s refuses: %s", row->name, status_message());
    status_clear();
    if (s != OK) return 'R';
    CHECK_OK(text_init(&ours, &arena));
    CHECK_OK(config_print_value(row, &c, &ours));
    CHECK_OK(text_init(&other, &arena));
    CHECK_OK(config_print_value(row, &theirs, &other));
    const int64_t layers = config_moe_layers(&c);
    const bool idle = text_starts(row->name, "moe.") ? layers == 0 : layers == c.model_layers;
    const bool other_kind = is_in(c.attention_kind == ATTENTION_MLA ? grouped : latent, row->name);
    const bool no_delta = c.delta_full_every == 0 && text_starts(row->name, "delta.");
    if (never || other_kind || no_delta || is_in(may_change, row->name)) return 'F';
    if (idle && (layers == 0 || strcmp(row->name, "model.ffn") == 0)) return 'F';
    if (strcmp(ours.data, other.data) != 0)
        fail_msg("%s: %s goes out and %s comes back", row->name, ours.data, other.data);
    return strcmp(family->type, bases[base].type) == 0 ? 'C' : 'O';
}

/* tests/golden/hf/settings.txt has a line for each setting of the model, so that a new one needs a decision
 * for each family. With SETTINGS=1 in the environment the test prints the lines. */
static void every_setting_is_carried_or_refused_by_every_family(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    (void)state;
    CHECK_OK(file_read_all("tests/golden/hf/settings.txt", &arena, &text, &bytes));
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        char line[256];
        bool model = text_starts(row->name, "model.") || text_starts(row->name, "moe.") ||
                     text_starts(row->name, "attention.") || text_starts(row->name, "rope.") ||
                     text_starts(row->name, "delta.");
        if (!model || row->mark != CONFIG_MATH) continue;
        int used = snprintf(line, sizeof line, "%-26s", row->name);
        for (int k = 0; k < BASES; k++) {
            ArenaMark mark = arena_mark(&arena);
            used += snprintf(line + used, sizeof line - (size_t)used, " %c",
                             export_with_change(k, row));
            arena_release(&arena, mark);
        }
        (void)snprintf(line + used, sizeof line - (size_t)used, "\n");
        if (getenv("SETTINGS") != NULL)
            printf("%s", line);
        else if (strstr(text, line) == NULL)
            fail_msg("tests/golden/hf/settings.txt has no line %s", line);
    }
}

static void one_line_names_what_the_format_cannot_carry(void **state)
{
    static const struct {
        const char *set[8], *says;
    } rows[] = {
        { { "moe.bias_rate=0.001" }, "not carried by the format: moe.bias_rate 0.001\n" },
        { { "moe.score=sigmoid", "moe.bias_rate=0.001", "moe.z_loss=0.5", "moe.aux_loss=0.25",
            "mtp.layers=1", "mtp.loss=0.5", "attention.document_mask=false" },
          "not carried by the format: attention.document_mask false, moe.bias_rate 0.001, "
          "moe.z_loss 0.5, moe.aux_loss 0.25, mtp.loss 0.5\n" },
        { { "moe.aux_loss=0.25", "mtp.loss=0.5", "model.init_std=0.5" }, "" },
        { { "attention.kind=gqa", "model.dense_layers=6", "moe.z_loss=0.5" }, "" },
        { { "attention.kind=gqa", "attention.qk_norm=rms", "moe.shared=0", "moe.capacity=2",
            "moe.aux_scope=batch", "model.loss_chunk=7" },
          "not carried by the format: moe.capacity 2, moe.aux_scope batch\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        Text said;
        const Family *family = NULL;
        Json *json = NULL;
        CHECK_OK(config_default(&c, &arena));
        for (int k = 0; k < 8 && rows[i].set[k] != NULL; k++)
            CHECK_OK(config_override(&c, &arena, rows[i].set[k]));
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_OK(text_init(&said, &arena));
        CHECK_OK(family_not_carried(&c, family, &arena, &said));
        CHECK_TEXT(said.data, rows[i].says);
    }
}

/* Settings of training say nothing, nor do those of the other kind of attention or of experts that
 * are not there. */
static void what_does_not_matter_does_not_choose_the_family(void **state)
{
    static const struct {
        const char *set[8], *type;
    } rows[] = {
        { { "model.dense_layers=6", "moe.score=sigmoid", "moe.group_score_top=2",
            "moe.normalise=true", "moe.bias_rate=0.001" },
          "deepseek_v3" },
        { { "attention.kind=gqa", "model.dense_layers=6", "attention.qk_norm=rms", "moe.shared=0",
            "moe.experts=16" },
          "qwen3_moe" },
        { { "attention.kind=gqa", "model.dense_layers=6", "moe.groups=2", "moe.scaling=3",
            "moe.aux_loss=0.5", "attention.kv_rank=7", "attention.document_mask=false" },
          "llama" },
        { { "attention.kind=gqa", "model.dense_layers=6", "attention.qk_norm=rms" }, "qwen3" },
        { { "attention.kind=gqa", "model.dense_layers=0", "moe.shared=0", "moe.normalise=true",
            "moe.ffn=1024", "attention.rope_interleaved=true" },
          "mixtral" },
        { { "attention.kind=gqa", "moe.shared=0", "attention.qk_norm=rms" }, "qwen3_moe" },
        { { "attention.head_dim=7", "attention.kv_heads=3" }, "deepseek_v2" },
        { { "moe.score=sigmoid", "moe.normalise=true", "moe.bias_rate=0.01" }, "deepseek_v3" },
        { { "moe.bias_rate=0.01", "moe.limit=3", "attention.temper_scale=3", "model.loss_chunk=5",
            "rope.mscale=2" },
          "deepseek_v2" },
        { { "attention.kind=gqa", "moe.shared=0", "attention.qk_norm=width",
            "model.dense_layers=0" },
          "olmoe" },
        { { "attention.kind=gqa", "moe.shared=3", "moe.shared_gate=true", "attention.bias=true",
            "moe.every=2" },
          "qwen2_moe" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        const Family *family = NULL;
        Json *json = NULL;
        int n = 0;
        while (n < 8 && rows[i].set[n] != NULL) n++;
        CHECK_OK(config_default(&c, &arena));
        for (int k = 0; k < n; k++) CHECK_OK(config_override(&c, &arena, rows[i].set[k]));
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_TEXT(family->type, rows[i].type);
        CHECK_TEXT(json_string(json_get(json, "model_type")), rows[i].type);
        CHECK_INT(theirs.model_hidden, c.model_hidden);
    }
}

/* What the class makes of a file without a member is not always nothing: gpt-oss' class then stretches
 * positions. YaRN's two factors count in DeepSeek's classes, both or none. */
static void rotary_positions_go_out_as_their_class_reads_them_or_not_at_all(void **state)
{
#define YARN4 "rope.scaling=yarn", "rope.factor=4", "rope.original=16"
    static const struct {
        const char *preset, *set[5], *says;
    } rows[] = {
        { "gpt-oss-20b",
          { "rope.scaling=none", "rope.factor=1" },
          "\"rope_scaling\":{\"rope_type\":\"default\"}" },
        { "gpt-oss-20b", { YARN4, "rope.truncate=false" }, "\"truncate\":false" },
        { "qwen3-30b-a3b", { YARN4 }, "\"mscale\":1.0,\"mscale_all_dim\":0.0" },
        { "qwen3-30b-a3b",
          { YARN4, "rope.mscale=0.7", "rope.mscale_all_dim=0.5" },
          "the nearest is qwen3_moe, but its config.json: mscale_all_dim is 0.5; it is supported "
          "in" },
        { "qwen3-30b-a3b",
          { YARN4, "rope.mscale=0.7" },
          "the nearest is qwen3_moe, but rope.mscale is 0.7 here and 1 there" },
        { "deepseek-v2",
          { YARN4, "rope.mscale=0.7", "rope.mscale_all_dim=0.5" },
          "\"mscale\":0.7,\"mscale_all_dim\":0.5" },
        { "deepseek-v2",
          { YARN4, "rope.mscale=0.7" },
          "the nearest is deepseek_v2, but rope.mscale is 0.7 here and 1 there" },
        { "deepseek-v2",
          { YARN4, "rope.mscale=0", "rope.mscale_all_dim=0.5" },
          "mscale_all_dim is 0.5; it is supported with rope_type yarn and an mscale that is not "
          "0" },
        { "deepseek-v2-lite",
          { "moe.every=2", "model.dense_layers=0" },
          "the nearest is deepseek_v2, but moe.every is 2 here and 1 there" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        Text text = { 0 };
        const Family *family = NULL;
        Json *json = NULL;
        int n = 0;
        while (n < 5 && rows[i].set[n] != NULL) n++;
        CHECK_OK(config_load(&c, &arena, rows[i].preset, rows[i].set, n));
        if (strstr(rows[i].says, "\":") == NULL) {
            CHECK_FAILS(family_write(&c, NULL, &arena, &json, &family, &theirs), ERR_UNSUPPORTED,
                        rows[i].says);
            continue;
        }
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_OK(text_init(&text, &arena));
        CHECK_OK(json_print(json, false, &text));
        if (strstr(text.data, rows[i].says) == NULL)
            fail_msg("no %s in %s", rows[i].says, text.data);
    }
}

/* Classes with typed members take 1.0 and not 1 for a real number. */
static void real_numbers_are_written_with_a_point(void **state)
{
    static const struct {
        const char *preset, *says[5];
    } rows[] = {
        { "deepseek-v2-lite",
          { "\"routed_scaling_factor\":1.0,", "\"rms_norm_eps\":1e-06,", "\"q_lora_rank\":null" } },
        { "olmoe-1b-7b", { "\"rope_theta\":10000.0,", "\"router_aux_loss_coef\":0.01" } },
        { "mixtral-8x7b", { "\"router_jitter_noise\":0.0", "\"rope_theta\":1000000.0," } },
        { "llama4-scout", { "\"router_jitter_noise\":0.0" } },
        { "gpt-oss-20b", { "\"swiglu_alpha\":1.702," } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config c, theirs;
        Text text = { 0 };
        const Family *family = NULL;
        Json *json = NULL;
        CHECK_OK(config_load(&c, &arena, rows[i].preset, NULL, 0));
        CHECK_OK(family_write(&c, NULL, &arena, &json, &family, &theirs));
        CHECK_OK(text_init(&text, &arena));
        CHECK_OK(json_print(json, false, &text));
        for (int k = 0; k < 5 && rows[i].says[k] != NULL; k++) {
            if (strstr(text.data, rows[i].says[k]) == NULL)
                fail_msg("%s: no %s in %s", rows[i].preset, rows[i].says[k], text.data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_of_no_family_is_refused_with_what_differs),
        TEST(every_setting_is_carried_or_refused_by_every_family),
        TEST(one_line_names_what_the_format_cannot_carry),
        TEST(what_does_not_matter_does_not_choose_the_family),
        TEST(rotary_positions_go_out_as_their_class_reads_them_or_not_at_all),
        TEST(real_numbers_are_written_with_a_point),
    };
    return ARENA_RUN(tests);
}
