/* config: every setting of a run, in one flat struct made from one table (rows.def): the YAML
 * reader, section.key=value overrides, presets, --help, docs/reference/config.md, the run's
 * config.yaml and the checkpoint's header are loops over config_rows. Later wins over earlier: the
 * fallback, the preset that the file's top-level key `preset` names, the file, then overrides from
 * left to right. A CONFIG that is no file is a preset's name.
 *
 * Errors (ERR_ARG or ERR_FORMAT) name file:line:column, what was found and what is allowed, and for
 * an unknown key the nearest name. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONFIG_LIST_MAX = 256, CONFIG_SOURCES_MAX = 64, CONFIG_DEPTHS_MAX = 4 };

typedef struct ConfigInts {
    int n;
    int64_t at[CONFIG_LIST_MAX];
} ConfigInts;

typedef struct ConfigTexts {
    int n;
    const char *at[32];
} ConfigTexts;

typedef struct ConfigSource {
    const char *name, *path;
    double weight; /* 0: the number of its tokens */
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

/* Texts live in the arena given to config_load. */
typedef struct Config {
#define ROW(section, name, TYPE, MARK, LEVEL, fallback, min, max, choices, help)                   \
    CONFIG_FIELD_##TYPE section##_##name;
#include "config/rows.def"
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

/* What changes if a resumed training has another value of a row: nothing, the mathematics, the
 * data. */
typedef enum ConfigMark { CONFIG_FREE, CONFIG_MATH, CONFIG_DATA } ConfigMark;

/* Who needs the row: a first training, most trainings, experts. */
typedef enum ConfigLevel { CONFIG_FIRST, CONFIG_COMMON, CONFIG_EXPERT, CONFIG_LEVELS } ConfigLevel;

typedef struct ConfigRow {
    const char *name; /* "section.name" */
    const char *fallback, *choices, *help;
    ConfigType type;
    ConfigMark mark;
    ConfigLevel level;
    size_t offset;
    double min, max;
} ConfigRow;

extern const ConfigRow config_rows[];
extern const int config_row_count;

/* Indexes of CHOICE rows' words, in the order of rows.def. */
enum { BIND_AUTO, BIND_NONE };
/* run.cpu_isa: CpuIsa (base/cpu.h) */
enum { COMPUTE_F32, COMPUTE_BF16 };
enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
/* attention.kernel: AttentionKernel (op/attention.h) */
enum { EXECUTOR_CAPTURED, EXECUTOR_EAGER };
enum { ATTENTION_MLA, ATTENTION_GQA };
enum { QK_NORM_NONE, QK_NORM_RMS, QK_NORM_L2, QK_NORM_WIDTH };
enum { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LLAMA3 };
enum { SCORE_SOFTMAX, SCORE_SIGMOID };
enum { ACTIVATION_SWIGLU, ACTIVATION_CLAMPED };
enum { BIAS_SIGN, BIAS_CENTRED };
enum { AUX_SEQUENCE, AUX_BATCH, AUX_GLOBAL };
enum { BUFFERS_POOLED, BUFFERS_WORST };
enum { REDUCE_F32, REDUCE_BF16 };
enum { MOMENTS_F32, MOMENTS_BF16 };
enum { BAD_LINE_FAIL, BAD_LINE_SKIP };

/* All fallbacks. */
Status config_default(Config *c, Arena *a);

/* `source` is a file or a preset's name (NULL: fallbacks only); overrides are "section.key=value".
 * What comes out has passed config_check. */
Status config_load(Config *c, Arena *a, const char *source, const char *const *overrides,
                   int n_overrides);

/* The same for a small model of the same structure (--shrink): config_shrink before the overrides. */
Status config_load_small(Config *c, Arena *a, const char *source, const char *const *overrides,
                         int n_overrides);

/* Sizes and numbers of layers, heads and experts come down to a few; which kinds of layers there are,
 * and in which pattern, how heads share keys and groups experts, and all that is no size, stays. */
void config_shrink(Config *c);

/* The same from a YAML text in memory; `name` stands in messages in place of a file name. */
Status config_parse(Config *c, Arena *a, const char *name, const char *yaml, size_t yaml_bytes);
Status config_override(Config *c, Arena *a, const char *assignment);

/* Checks that need several rows: sizes that do not divide, top_k over experts, odd rope dims ... */
Status config_check(const Config *c);

/* Columns of a head that rotary positions turn. */
int64_t config_rotated(const Config *c);

/* Has a block experts, or a dense MLP? How many blocks have. */
bool config_has_experts(const Config *c, int64_t block);
int64_t config_moe_layers(const Config *c);

/* ERR_ARG unless part divides whole, with the nearest that do. */
Status config_divides(const char *part_name, int64_t part, const char *whole_name, int64_t whole);

/* ERR_ARG unless a sequence can be cut into two pieces for each of cp ranks. */
Status config_check_cp(int64_t cp, int64_t sequence);

/* ERR_UNSUPPORTED if the settings describe what can be planned, but not run on so few ranks. */
Status config_check_ops(const Config *c, int ranks);

/* Is a number, a word in a list? */
bool config_has_int(const ConfigInts *list, int64_t value);
bool config_has_text(const ConfigTexts *list, const char *word);

/* Sets the mesh to one rank: for a rank that only reads what a mesh has trained. */
void config_alone(Config *c);

/* YAML that config_parse reads back to the same Config: sections with their rows. */
Status config_print(const Config *c, Text *out);

/* The row's value as config_print has it. */
Status config_print_value(const ConfigRow *row, const Config *c, Text *out);

/* A setting in which two configurations differ; values as config_print writes them. */
typedef struct ConfigChange {
    const ConfigRow *row;
    const char *then, *now;
    bool free; /* a resumed training may have the other value */
} ConfigChange;

/* All changes, in the table's order, in `a`. */
Status config_changes(const Config *then, const Config *now, Arena *a, const ConfigChange **out,
                      int *n);

/* ERR_ARG if a change is not free and `allowed` does not name it; the sentence begins with `what`
 * ("CKPT"), lists all such changes and says how to allow them. ERR_ARG also for an allowed name
 * that is no row's. */
Status config_check_changes(const char *what, const ConfigChange *changes, int n,
                            const char *const *allowed, int n_allowed);

/* Presets and all rows by level, as text for --settings and as docs/reference/config.md. */
Status config_help(Text *out);
Status config_markdown(Text *out);

#endif
