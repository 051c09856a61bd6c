/* Any bytes as metrics.jsonl: refused with a sentence, or figures that a table, JSON and a page of two runs show. Up to a
 * line of %% is config.yaml. */
#include "harness/fuzz.h"
#include "report/compare.h"

static Status look(Fuzz *f)
{
    Compare c = { 0 };
    Text text = { 0 };
    const FuzzPart config = fuzz_part(f, "\n%%\n");
    (void)fuzz_file("run/config.yaml", config.data, config.bytes);
    (void)fuzz_file("run/metrics.jsonl", f->data, f->bytes);
    char path[FILE_PATH_MAX];
    TRY(file_join(path, fuzz_folder(), "run"));
    char *const runs[] = { path, path };
    TRY(compare_load(runs, 2, f->bytes % 2 == 0, f->a, &c));
    need(c.run[0]->sum.steps > 0 || c.run[0]->evals > 0);
    need(c.run[0]->first_step <= c.run[0]->last_step && c.rows >= COMPARE_FIGURES);
    TRY(text_init(&text, f->page));
    TRY(compare_text(&text, &c));
    TRY(compare_json(&text, &c));
    return compare_page(&text, &c);
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1 << 15 };
