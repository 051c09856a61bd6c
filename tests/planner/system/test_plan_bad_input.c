/* Wrong questions to `switchyard plan`: one sentence with the thing, its value and the limit, exit code 2, nothing on
 * stdout. */
#include "harness/program.h"

#define LITE "deepseek-v2-lite train.batch=64 data.sequence=4096"
#define ON   LITE " --cluster h200:8"

/* Words are separated by blanks; "_" is an empty word. */
static const struct {
    const char *words, *says;
} wrong[] = {
    { "moe-1t", "--cluster mi355x:1024" },
    { "", "plan" },
    { "no-such-model --cluster h200:8", "no-such-model" },
    { "deepseek-v2-lit --cluster h200:8", "deepseek-v2-lite" },
    { LITE " --cluster foo:8", "a GPU foo; the GPUs are a100, b200," },
    { LITE " --cluster h20:8", "did you mean h200?" },
    { LITE " --cluster 0:", "--cluster 0:: the number of GPUs is a whole number from 1 to 1e8" },
    { LITE " --cluster :8", "--cluster :8 names no GPU" },
    { LITE " --cluster h200", "h200:8" },
    { LITE " --cluster h200:0", "--cluster h200:0" },
    { LITE " --cluster h200:-8", "from 1 to 1e8" },
    { LITE " --cluster h200:1000000000", "from 1 to 1e8" },
    { ON ".5", "not \"8.5\"" },
    { LITE " --cluster h200:nan", "not \"nan\"" },
    { LITE " --cluster h200:99999999999999999999", "from 1 to 1e8" },
    { ON " --hardware gpu.yaml", "--cluster and --hardware exclude each other" },
    { LITE " --hardware gpu.yaml", "--hardware gpu.yaml needs --gpus N" },
    { LITE " --hardware missing.yaml --gpus 8", "missing.yaml" },
    { LITE " --hardware fast.yaml --gpus 8",
      "memory.achieved_gb_s is 9000 GB/s, more than memory.gb_s 8000" },
    { LITE " --hardware gemm.yaml --gpus 8",
      "gemm.bf16 reaches 5000 TFLOP/s at 2048, more than peak.bf16 2516.6" },
    { LITE " --hardware link.yaml --gpus 8",
      "scale_up.achieved_gb_s is 900 GB/s, more than scale_up.gb_s 537.6" },
    { LITE " --hardware nan.yaml --gpus 8", "nan.yaml:3:8: memory.gib" },
    { LITE " --hardware text.yaml --gpus 8", "text.yaml" },
    { LITE " --gpus 8", "no GPUs are given" },
    { ON " --gpus 0", "--gpus is 0" },
    { ON " --stack foo", "there is no stack foo" },
    { ON " --stack switchyard,foo=2",
      "foo is neither an input nor a definition; it has reserve delta_token" },
    { LITE " --cluster mi355x:8 --stack primus,deeep=1", "did you mean deepep?" },
    { LITE " --cluster mi355x:8 --stack primus,deepep", "deepep is not NAME=NUMBER" },
    { LITE " --cluster mi355x:8 --stack primus,deepep=nan", "a decimal number is expected" },
    { LITE " --cluster mi355x:8 --stack primus,deepep=1e999", "the value is not finite" },
    { LITE " --cluster mi355x:8 --stack primus,reserve=-1e13",
      "reserve is -1e+13, it must be at least 0" },
    { LITE " --cluster mi355x:8 --stack primus,share_compute=0", "it must be above 0" },
    { ON " --stack primus", "stack primus runs on GPUs of AMD only, and h200 is made by NVIDIA" },
    { LITE " --cluster a100:8 run.compute=bf16 attention.kernel=hopper",
      "attention.kernel=hopper: it is made for compute capability 9.0, a100 has 8.0" },
    { LITE " --cluster b200:8 run.compute=bf16 fp8.recipe=block fp8.attention=true",
      "fp8.attention=true: it is made for compute capability 9.0, b200 has 10.0" },
    { ON " delta.full_every=4 mesh.tp=8", "mesh.tp 8 does not divide delta.key_heads 4" },
    { ON " delta.full_every=4 --stack megatron mesh.tp=8",
      "mesh.tp 8 does not divide delta.key_heads 4" },
    { ON " mesh.pp=3", "mesh.pp" },
    { ON " mesh.pp=16", "mesh.pp 16" },
    { ON " mesh.pp=nan", "mesh.pp" },
    { ON " mesh.ep=5", "mesh.ep 5" },
    { ON " mesh.cp=3", "mesh.cp" },
    { ON " mesh.zero=4", "mesh.zero is 4" },
    { ON " mesh.shard=3", "mesh.shard 3" },
    { ON " mesh.schedule=1f1c", "1f1b" },
    { ON " mesh.tp=3", "mesh.tp 3 does not divide attention.heads" },
    { ON " mesh.layout=Et*96,M", "^" },
    { ON " train.batch=7",
      "train.batch 7 is no multiple of 8, data-parallel ranks 8 x train.micro_batch 1; "
      "nearest: 8 above" },
    { ON " train.batch=44 train.micro_batch=4 mesh.ep=8", "nearest: 32 below and 64 above" },
    { ON " mesh.pp=4 mesh.vpp=2 mesh.schedule=interleaved train.batch=12",
      "6 micro-batches do not divide into groups of 4 stages; the nearest legal numbers are 4 "
      "and 8" },
    { ON " plan.mean_context=0.5",
      "plan.mean_context is 0.5 keys, but a query sees from 1 to 2048.5 on average with "
      "data.sequence 4096" },
    { ON " plan.mean_context=2049", "plan.mean_context is 2049 keys" },
    { ON " plan.mean_context=-1", "plan.mean_context is -1" },
    { ON " plan.mean_context=100 attention.document_mask=false",
      "with attention.document_mask=false a query sees other documents" },
    { ON " data.mean_context=100", "mean_context" },
    { ON " train.batch=1e300", "train.batch" },
    { ON " train.micro_batch=7", "train.micro_batch" },
    { ON " plan.margin=nan", "plan.margin" },
    { ON " plan.margin=1", "plan.margin" },
    { ON " plan.imbalance=1e300", "plan.imbalance" },
    { ON " model.layer=5", "model.layers" },
    { ON " model.layers", "model.layers" },
    { ON " recompute.layers=[99]", "99" },
    { ON " recompute.pieces=[norms]", "norm" },
    { LITE " --cluster mi300x:8 fp8.recipe=mx",
      "fp8.recipe=mx: mi300x has no products with scales of 1 x 32" },
    { ON " fp8.format=e2m1", "fp8.recipe" },
    { ON " --tokens 15X", "15X" },
    { ON " --tokens 1e300", "from 1 to 1e+18" },
    { ON " --tokens nan", "nan" },
    { ON " --tokens _", "--tokens is empty" },
    { ON " --scale _", "--scale is empty" },
    { ON " --scale 8,,16", "--scale 8,,16: the number of GPUs is a whole number" },
    { ON " --scale 8,x", "not \"x\"" },
    { ON " --scale 8 --csv", "--scale and --csv exclude each other" },
    { ON " --scale 8 --why peak", "--scale and --why exclude each other" },
    { ON " --why speed", "there are peak, step, comm and bubble" },
    { ON " --why peek", "did you mean peak" },
    { ON " --html x.pdf", "--html x.pdf: the name must end in .html or .svg" },
    { ON " --json --csv", "--json and --csv exclude each other" },
    { ON " --program --json", "--program and --json exclude each other" },
    { ON " --top 5", "--top needs --search" },
    { ON " --all", "--all needs --search" },
    { ON " --search --all --json", "--json and --all exclude each other" },
    { ON " --search --row 2", "--row needs --write" },
    { ON " --search --top 0", "--top is 0" },
    { ON " --row 2", "--row needs --search" },
    { ON " --search search.pp=[1] search.ep=[1] search.cp=[1] --top 3 --row 999 --write r.yaml",
      "--row 999: there are rows 1 to" },
    { ON " --search search.ep=[5]", "no combination of axes is legal" },
    { ON " --formula primus", "primus" },
    { ON " --from nemo", "there is no format nemo" },
    { "none.yaml --cluster mi355x:8 --from primus", "none.yaml" },
    { "job.toml --cluster mi355x:64 --from torchtitan",
      "its degrees are of 32 GPUs, and 64 are given" },
    { "job.toml --cluster mi355x:16 --from torchtitan mesh.zero=2",
      "of 32 GPUs, and 16 are given" },
    { "job.toml --cluster mi355x:32 --from torchtitan mesh.pp=3", "of 96 GPUs, and 32 are given" },
    { ON " --bogus", "no option --bogus" },
    /* two chunks on each rank are DualPipe's */
    { ON " mesh.pp=2 mesh.vpp=3 mesh.schedule=dualpipe", "dualpipe: 3 chunks" },
    { LITE " --cluster mi355x:8 --stack primus mesh.zero=3", "up to stage 1" },
};

/* Files whose rates contradict each other, over an MI355X. */
static const char *const files[][2] = {
    { "fast.yaml", "extends: mi355x\nmemory:\n  achieved_gb_s: 9000\n" },
    { "gemm.yaml", "extends: mi355x\ngemm:\n  bf16: [[2048, 5000]]\n" },
    { "link.yaml", "extends: mi355x\nscale_up:\n  achieved_gb_s: 900\n" },
    { "nan.yaml", "extends: mi355x\nmemory:\n  gib: nan\n" },
    { "text.yaml", "a text\n" },
    { "job.toml", "model.name = \"deepseek_v3\"\nmodel.flavor = \"16B\"\n[training]\n"
                  "global_batch_size = 512\n[parallelism]\ndata_parallel_shard_degree = 16\n"
                  "data_parallel_replicate_degree = 2\n" },
};

enum { WRONG = sizeof wrong / sizeof *wrong, WORDS = 32 };

static void each_wrong_question_is_one_sentence_and_exit_2(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "bad")));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        lab_write_text(lab, lab_path(lab, "bad/%s", files[i][0]), files[i][1]);
    CHECK(WRONG >= 60);
    for (int i = 0; i < WRONG; i++) {
        char words[512];
        const char *args[WORDS] = { "plan" };
        int n = 1;
        (void)snprintf(words, sizeof words, "%s", wrong[i].words);
        for (char *save = NULL, *w = strtok_r(words, " ", &save); w != NULL;
             w = strtok_r(NULL, " ", &save)) {
            CHECK(n < WORDS - 1);
            args[n++] = strcmp(w, "_") == 0 ? "" : w;
        }
        Outcome o = lab_run(lab, &(Launch){ .cell = "bad", .args = args });
        if (o.code != 2) fail_msg("%s: exit code %d: %s", wrong[i].words, o.code, o.err);
        if (strstr(o.err, wrong[i].says) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", wrong[i].words, wrong[i].says, o.err);
        const char *error = strstr(o.err, "error: ");
        CHECK(error != NULL && strstr(error + 1, "error: ") == NULL);
        CHECK(strstr(o.err, "\n  at ") == NULL);
        CHECK_TEXT(o.out, "");
    }
}

/* The places in the source behind a sentence come with --verbose only. */
static void places_in_the_source_come_on_request(void **state)
{
    Outcome o = RUN(*state, "bad", "plan", "--verbose", "deepseek-v2-lite", "--cluster", "foo:8");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "\n  at src/");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(each_wrong_question_is_one_sentence_and_exit_2),
        LAB_TEST(places_in_the_source_come_on_request),
    };
    return LAB_RUN_ALL(tests);
}
