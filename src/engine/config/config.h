/* config: every setting of a run, in one flat struct that is generated from one table (rows.def). The
 * YAML reader, section.key=value overrides, presets, --settings, docs/reference/config.md, the run's
 * config.yaml and the checkpoint's header are loops over config_rows.
 *
 * Order of precedence, later wins: the default (`fallback`), the preset that the file's top-level key
 * `preset` names, the file, then overrides from left to right. A CONFIG that is not a file is the name
 * of a preset. Command-line flags that are no settings are in app/options/options.h.
 *
 * Errors (ERR_ARG or ERR_FORMAT) name file:line:column, what was found and what is allowed. For an
 * unknown key they suggest the nearest name. */
#ifndef ENGINE_CONFIG_CONFIG_H
#define ENGINE_CONFIG_CONFIG_H

#include "engine/base/arena.h"
#include "engine/base/dtype.h"
#include "engine/base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONFIG_LIST_MAX = 256, CONFIG_TEXTS_MAX = 32 };
enum { CONFIG_SOURCES_MAX = 64, CONFIG_DEPTHS_MAX = 4, CONFIG_VOCAB_MAX = 4000000 };

/* Lists have a fixed size, so that a Config is one struct that can be copied by assignment. */
typedef struct ConfigInts {
    int n;
    int64_t at[CONFIG_LIST_MAX];
} ConfigInts;

typedef struct ConfigTexts {
    int n;
    const char *at[CONFIG_TEXTS_MAX];
} ConfigTexts;

/* A source of training text: a shard's prefix under a name. */
typedef struct ConfigSource {
    const char *name, *path;
    double weight; /* relative to the other sources; 0: its number of tokens, */
    double epochs; /* times this; 0: 1 */
} ConfigSource;

typedef struct ConfigSources {
    int n;
    ConfigSource at[CONFIG_SOURCES_MAX];
} ConfigSources;

#define CONFIG_FIELD_INT     int64_t
#define CONFIG_FIELD_REAL    double
#define CONFIG_FIELD_BOOL    bool
#define CONFIG_FIELD_TEXT    const char *
#define CONFIG_FIELD_CHOICE  int
#define CONFIG_FIELD_INTS    ConfigInts
#define CONFIG_FIELD_TEXTS   ConfigTexts
#define CONFIG_FIELD_SOURCES ConfigSources

/* Texts live in the arena given to config_load. Lists start with their length (config_print_value). */
typedef struct Config {
#define ROW(section, name, TYPE, MARK, LEVEL, fallback, min, max, choices, help)                   \
    CONFIG_FIELD_##TYPE section##_##name;
#include "engine/config/rows.def"
#undef ROW
} Config;

typedef enum ConfigType {
    CONFIG_INT,
    CONFIG_REAL,
    CONFIG_BOOL,
    CONFIG_TEXT,
    CONFIG_CHOICE,
    CONFIG_INTS,
    CONFIG_TEXTS,
    CONFIG_SOURCES
} ConfigType;

/* What changes if a training is resumed with another value: nothing, the mathematics, or the data. */
typedef enum ConfigMark { CONFIG_FREE, CONFIG_MATH, CONFIG_DATA } ConfigMark;

/* Who needs the setting: a first training, most trainings, or expert users. CONFIG_PLAN: no setting of a
 * training, but an argument of `switchyard plan`. A run's config.yaml and checkpoints do not have it. */
typedef enum ConfigLevel { CONFIG_FIRST, CONFIG_COMMON, CONFIG_EXPERT, CONFIG_PLAN } ConfigLevel;

/* A row of rows.def, as loops see it. */
typedef struct ConfigRow {
    const char *name; /* "section.name" */
    const char *fallback, *choices, *help;
    ConfigType type;
    ConfigMark mark;
    ConfigLevel level;
    size_t offset;   /* of the field in Config */
    double min, max; /* bounds of numbers, inclusive */
} ConfigRow;

extern const ConfigRow config_rows[];
extern const int config_row_count;

/* Words of a setting that arguments of plan or its reports have, too. */
#define CONFIG_COMPUTE_WORDS "f32|bf16|f16"
#define CONFIG_BUFFERS_WORDS "pooled|worst"
#define CONFIG_RECIPE_WORDS  "none|tensor|row|block|mx"
#define CONFIG_FORMAT_WORDS  "e4m3|hybrid|e2m1|e2m3|e3m2"
#define CONFIG_BOOL_WORDS    "false|true"

/* The values of CHOICE rows: indexes into their words, in the order of rows.def. */
enum { BIND_AUTO, BIND_NONE };
/* run.cpu_isa: CpuIsa (engine/host/cpu.h) */
enum { COMPUTE_F32, COMPUTE_BF16, COMPUTE_F16 };
enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_GPU, DEVICE_CUDA, DEVICE_HIP };
/* attention.kernel: AttentionKernel (kernels/attention/attention.h) */
enum { EXECUTOR_CAPTURED, EXECUTOR_EAGER };
enum { ATTENTION_MLA, ATTENTION_GQA };
enum { QK_NORM_NONE, QK_NORM_RMS, QK_NORM_L2, QK_NORM_WIDTH };
enum { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LLAMA3 };
enum { SCORE_SOFTMAX, SCORE_SIGMOID };
enum { ACTIVATION_SWIGLU, ACTIVATION_CLAMPED, ACTIVATION_GELU };
enum { BIAS_SIGN, BIAS_CENTRED, BIAS_QUANTILE };
enum { AUX_SEQUENCE, AUX_BATCH, AUX_GLOBAL };
enum { BUFFERS_POOLED, BUFFERS_WORST };
enum { REDUCE_F32, REDUCE_BF16 };
enum { MOMENTS_F32, MOMENTS_BF16 };
enum { OPTIMIZER_ADAMW, OPTIMIZER_MUON };
enum { RATE_COSINE, RATE_LINEAR, RATE_CONSTANT, RATE_WSD };
enum { DECAY_LINEAR, DECAY_COSINE, DECAY_SQRT };
enum { MUON_MATCH_RMS_ADAMW, MUON_SPECTRAL, MUON_SHAPE_SCALING, MUON_UNIT_RMS_NORM };
enum { KEPT_FP8, KEPT_PLAIN };
enum { PRODUCTS_ALL, PRODUCTS_DENSE, PRODUCTS_GROUPED };
enum { FORMAT_E4M3, FORMAT_HYBRID, FORMAT_E2M1, FORMAT_E2M3, FORMAT_E3M2 };
enum { SCALES_AUTO, SCALES_EXACT, SCALES_POW2 };
enum { DISPATCH_AUTO, DISPATCH_BF16, DISPATCH_FP8 };
enum { WGRAD_FP8, WGRAD_BF16 };

/* Sets every row to its default. */
Status config_default(Config *c, Arena *a);

/* `source` is a file or a preset's name (NULL: only defaults); overrides are "section.key=value". The
 * result has passed config_check. */
Status config_load(Config *c, Arena *a, const char *source, const char *const *overrides,
                   int n_overrides);

/* Flags of config_load_as. CONFIG_SMALL (--shrink): config_shrink runs before the overrides. CONFIG_RUN, for a training:
 * arguments of plan are refused, and skipped in a config.yaml of an older version, which had them all. */
enum { CONFIG_SMALL = 1, CONFIG_RUN = 2 };
Status config_load_as(Config *c, Arena *a, int flags, const char *source,
                      const char *const *overrides, int n_overrides);

/* Reduces sizes and the numbers of layers, heads and experts to small ones. The structure stays: the
 * kinds and pattern of layers, how query heads share keys, and how experts are grouped. */
void config_shrink(Config *c);

/* Reads a YAML text in memory, over the defaults, without config_check. Messages use `name` as file
 * name. config_override changes one setting. */
Status config_parse(Config *c, Arena *a, const char *name, const char *yaml, size_t yaml_bytes);
Status config_override(Config *c, Arena *a, const char *assignment);

/* Ranks of an EP group: mesh.ep sets of experts, each of whose experts mesh.etp ranks share. */
static inline int64_t config_expert_ranks(const Config *c) { return c->mesh_ep * c->mesh_etp; }

/* Checks rules that involve several rows: sizes that must divide, top_k against experts, and so on. */
Status config_check(const Config *c);
/* Entry i of data.curriculum: after `step` steps the sources have these weights. ERR_ARG: it is malformed,
 * or names an unknown source. */
Status config_curriculum(const Config *c, int i, int64_t *step, double weight[CONFIG_SOURCES_MAX]);

/* run.compute as a type. */
static inline Dtype compute_type(int64_t compute)
{
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    return types[compute];
}

static inline Dtype config_type(const Config *c) { return compute_type(c->run_compute); }

/* Columns of a head that rotary position embedding rotates. */
int64_t config_rotated(const Config *c);

/* Does a block have experts (true) or a dense MLP? config_moe_layers counts the blocks with experts. */
bool config_has_experts(const Config *c, int64_t block);
int64_t config_moe_layers(const Config *c);

/* Does a block have a gated delta net (true) or attention? */
bool config_has_delta(const Config *c, int64_t block);

/* ERR_ARG unless part divides whole; the error names the nearest divisors. */
Status config_divides(const char *part_name, int64_t part, const char *whole_name, int64_t whole);

/* ERR_ARG unless a sequence can be cut into two pieces for each of cp ranks. */
Status config_check_cp(const Config *c, int64_t cp);
/* ERR_ARG unless tp ranks can share heads, MLPs, and the tokens of a sequence on each of cp ranks. */
Status config_check_tp(const Config *c, int64_t tp, int64_t cp);

/* The settings that can be planned but not run by this program's engine, as "mesh.tp=2, ...". "": there are none. */
enum { CONFIG_PLANNED_BYTES = 96 };
const char *config_planned_only(const Config *c, char out[CONFIG_PLANNED_BYTES]);

/* ERR_ARG if the axes of the mesh need more ranks. The error says how many, and how to start them. */
Status config_check_ranks(const Config *c, int64_t ranks);

/* ERR_UNSUPPORTED if the engine cannot run a setting, which can be planned; else config_check_ranks. */
Status config_check_ops(const Config *c, int ranks);

/* Does the list contain the number, or the word? */
bool config_has_int(const ConfigInts *list, int64_t value);
bool config_has_text(const ConfigTexts *list, const char *word);

/* Sets the mesh to one rank, for commands that read a checkpoint of any mesh on one rank. */
void config_alone(Config *c);

/* YAML that config_parse reads back to the same Config: sections with their rows, but for arguments of plan. */
Status config_print(const Config *c, Text *out);

/* Appends one row's value, as config_print writes it. */
Status config_print_value(const ConfigRow *row, const Config *c, Text *out);

/* A setting in which two configurations differ; values as config_print writes them. */
typedef struct ConfigChange {
    const ConfigRow *row;
    const char *then, *now;
    bool free; /* a resumed training may have the other value */
} ConfigChange;

/* All changes, in the order of the table. The array and its texts live in `a`. */
Status config_changes(const Config *then, const Config *now, Arena *a, const ConfigChange **out,
                      int *n);

/* ERR_ARG if a change is not free and `allowed` does not name it. The error begins with `what`
 * ("CKPT"), lists all such changes and says how to allow them. ERR_ARG also if `allowed` names an
 * unknown setting. */
Status config_check_changes(const char *what, const ConfigChange *changes, int n,
                            const char *const *allowed, int n_allowed);

/* What the levels are called, and what is in them. */
typedef struct ConfigLevelText {
    const char *title, *what;
} ConfigLevelText;
extern const ConfigLevelText config_levels[];

/* Does the row begin a section, if `last` is the row before it? Rows of a section are adjacent. */
bool config_opens_section(const ConfigRow *row, const ConfigRow *last);

/* Rows by level, as text: the presets and all settings or, with `plan`, the arguments of plan. */
Status config_help(bool plan, Text *out);

/* Appends "BEFORE name BETWEEN name ...". */
Status config_print_presets(Text *out, const char *before, const char *between);

#endif
