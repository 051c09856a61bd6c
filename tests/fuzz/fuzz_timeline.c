/* fuzz_timeline: a line as config.json and the rest as pp_rank_0.json either fail with a message or
 * give a timeline of finite sums that can be drawn. */
#include "harness/fuzz.h"
#include "planner/page/pipeline_page.h"
#include "viz/timeline_file.h"

#include <math.h>

static Status look(Fuzz *f)
{
    Timeline t;
    Text page = { 0 };
    const PipelineView v = { .timeline = &t, .timelines = 1 };
    const FuzzPart line = fuzz_part(f, "\n");
    (void)fuzz_file("config.json", line.data, line.bytes);
    (void)fuzz_file("pp_rank_0.json", f->data, f->bytes);
    TRY(timeline_read(fuzz_folder(), -1, f->a, &t));
    need(t.step_s > 0 && isfinite(t.rank[0].bubble) && t.rank[0].bubble <= 1);
    TRY(text_init(&page, f->page));
    need(pipeline_html(&page, &v) == OK);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
