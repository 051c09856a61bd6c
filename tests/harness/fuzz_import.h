/* fuzz_import: what must hold of a file of another trainer that is taken. */
#ifndef HARNESS_FUZZ_IMPORT_H
#define HARNESS_FUZZ_IMPORT_H

#include "harness/fuzz.h"
#include "planner/stack/import.h"
#include "planner/stack/stack.h"

static inline Status fuzz_import(const char *from, const char *path, const Fuzz *f)
{
    Config c;
    PlanImport *more = NULL;
    PlanStack stack;
    const char *source = NULL;
    Text notes = { 0 };
    TRY(ARENA_ZEROED(f->a, 1, &more));
    TRY(plan_import(from, path, f->a, &c, more));
    need(config_check(&c) == OK && more->gpus >= 0 && more->stack != NULL);
    need(more->unknown.n <= IMPORT_WORDS_MAX && more->notes_n <= IMPORT_NOTES_MAX);
    TRY(text_init(&notes, f->page));
    TRY(plan_import_notes(more, &notes));
    TRY(plan_import_stack(more, more->stack, f->a, &source));
    return stack_load(&stack, f->a, source);
}

#endif
