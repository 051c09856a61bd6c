/* foreign: writes configuration files of other trainers into a folder of their own, and imports them. */
#ifndef HARNESS_FOREIGN_H
#define HARNESS_FOREIGN_H

#include "harness/test.h"

#include "engine/base/file.h"
#include "planner/stack/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static Arena arena;
static char folder[FILE_PATH_MAX];
static Config config;
static PlanImport more;

static inline int open_all(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/import.XXXXXX");
    return arena_init(&arena, "test", MEM_HOST, (size_t)256 << 20) == OK && mkdtemp(folder) != NULL
               ? 0
               : -1;
}

static inline int close_all(void **state)
{
    (void)state;
    arena_free(&arena);
    return file_remove_tree(folder) == OK ? 0 : -1;
}

static inline const char *at(const char *name)
{
    static char path[2 * FILE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    CHECK(f != NULL);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(fclose(f), 0);
}

static inline void make_folder(const char *name) { CHECK_OK(file_make_folders(at(name))); }

/* A model that says all it must, and an experiment over it with these overrides. */
static const char shape[] = "num_layers: 12\nhidden_size: 512\nnum_attention_heads: 8\n";

static inline Status primus(const char *model, const char *overrides)
{
    char text[8192];
    put("model.yaml", model);
    (void)snprintf(text, sizeof text,
                   "exp_name: x\nmodules:\n  pre_trainer:\n    framework: megatron\n"
                   "    config: pre_trainer.yaml\n    model: model.yaml\n    overrides:\n"
                   "      micro_batch_size: 2\n      global_batch_size: 64\n%s",
                   overrides);
    put("exp.yaml", text);
    return plan_import("primus", at("exp.yaml"), &arena, &config, &more);
}

static inline Status titan(const char *toml)
{
    put("job.toml", toml);
    return plan_import("torchtitan", at("job.toml"), &arena, &config, &more);
}

static inline Status named(const char *model, const char *framework)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "modules: {pre_trainer: {framework: %s, model: %s, overrides: "
                   "{micro_batch_size: 1, global_batch_size: 8, training.local_batch_size: 1}}}",
                   framework, model);
    put("exp.yaml", text);
    return plan_import("primus", at("exp.yaml"), &arena, &config, &more);
}

static inline const char *option(const char *key)
{
    for (int i = 0; i < more.options.n; i++) {
        if (strcmp(more.options.at[i].key, key) == 0) return more.options.at[i].value;
    }
    return "(none)";
}

static inline bool is_unknown(const char *key)
{
    for (int i = 0; i < more.unknown.n; i++) {
        if (strcmp(more.unknown.at[i].key, key) == 0) return true;
    }
    return false;
}

static inline void check_layers(const char *want)
{
    char text[256] = "";
    for (int i = 0; i < config.recompute_layers.n; i++) {
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i == 0 ? "" : " ",
                       (int)config.recompute_layers.at[i]);
    }
    CHECK_TEXT(text, want);
}

#endif
