/* What TensorBoard reads of a run besides its curves: the configuration as a text and as hyperparameters. Protocol buffers
 * are taken apart by hand here, and by the package tensorboard where Python has it. */
#include "harness/python.h"
#include "harness/run_folder.h"

typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

static uint64_t varint(Bytes *b)
{
    uint64_t v = 0;
    for (int shift = 0; b->at < b->end && shift < 64; shift += 7) {
        v |= (uint64_t)(*b->at & 0x7F) << shift;
        if ((*b->at++ & 0x80) == 0) break;
    }
    return v;
}

/* Takes the next field. *wire: its type; *number: of a varint. */
static Bytes next_field(Bytes *b, uint64_t *field, int *wire, uint64_t *number)
{
    const uint64_t key = varint(b);
    *field = key >> 3;
    *wire = (int)(key & 7);
    *number = *wire == 0 ? varint(b) : 0;
    const uint64_t n = *wire == 0 ? 0 : *wire == 1 ? 8 : *wire == 5 ? 4 : varint(b);
    CHECK(n <= (uint64_t)(b->end - b->at));
    const Bytes value = { b->at, b->at + n };
    b->at += n;
    return value;
}

/* The content of the first field `want`; empty: there is none. */
static Bytes inside(Bytes b, uint64_t want)
{
    uint64_t field = 0, number = 0;
    int wire = 0;
    while (b.at < b.end) {
        const Bytes value = next_field(&b, &field, &wire, &number);
        if (field == want) return value;
    }
    return (Bytes){ 0 };
}

static bool says(Bytes b, const char *text)
{
    return (size_t)(b.end - b.at) == strlen(text) && memcmp(b.at, text, strlen(text)) == 0;
}

/* The Value with a tag, of any event. */
static Bytes value_of(Lab *lab, const char *tag)
{
    size_t n = 0;
    Outcome o = SHELL(lab, "board", "cat run/events.out.tfevents.* >events");
    CHECK_EXIT(o, 0);
    const char *text = lab_read(lab, lab_path(lab, "board/events"), &n);
    for (size_t at = 0; at + 16 < n;) {
        uint64_t length = 0;
        memcpy(&length, text + at, sizeof length);
        const Bytes event = { (const uint8_t *)text + at + 12,
                              (const uint8_t *)text + at + 12 + length };
        const Bytes value = inside(inside(event, 5), 1);
        Bytes rest = inside(event, 5);
        uint64_t field = 0, number = 0;
        int wire = 0;
        while (value.at != NULL && rest.at < rest.end) {
            const Bytes one = next_field(&rest, &field, &wire, &number);
            if (says(inside(one, 1), tag)) return one;
        }
        at += length + 16;
    }
    fail_msg("no event has %s", tag);
    return (Bytes){ 0 };
}

/* The google.protobuf.Value of a hyperparameter. */
static Bytes setting(Bytes session, const char *name)
{
    uint64_t field = 0, number = 0;
    int wire = 0;
    while (session.at < session.end) {
        const Bytes entry = next_field(&session, &field, &wire, &number);
        if (field == 1 && says(inside(entry, 1), name)) return inside(entry, 2);
    }
    return (Bytes){ 0 };
}

static int open_with_a_run(void **state)
{
    if (lab_open(state) != 0) return -1;
    CHECK_EXIT(RUN(*state, "board", "train", "../tiny.yaml", "train.steps=2", "train.eval_every=2",
                   "run.tensorboard=true", "optimizer.lr=0.0025", "model.name=a \"b\": ü",
                   "run.guard=true"),
               0);
    return 0;
}

static void the_configuration_is_a_text(void **state)
{
    Lab *lab = *state;
    const Bytes value = value_of(lab, "configuration/text_summary");
    CHECK(says(inside(inside(inside(value, 9), 1), 1), "text"));
    const Bytes tensor = inside(value, 8), shown = inside(tensor, 8);
    uint64_t field = 0, number = 0;
    int wire = 0;
    Bytes type = tensor;
    (void)next_field(&type, &field, &wire, &number);
    CHECK(field == 1 && number == 7); /* DT_STRING */
    size_t n = 0;
    const char *yaml = lab_read(lab, lab_path(lab, "board/run/config.yaml"), &n);
    CHECK_INT(shown.end - shown.at, (long long)n + 8);
    CHECK(memcmp(shown.at, "```\n", 4) == 0 && memcmp(shown.at + 4, yaml, n) == 0);
    CHECK(memcmp(shown.end - 4, "```\n", 4) == 0);
}

static void settings_are_hyperparameters(void **state)
{
    Lab *lab = *state;
    const Bytes plugin = inside(inside(value_of(lab, "_hparams_/session_start_info"), 9), 1);
    CHECK(says(inside(plugin, 1), "hparams"));
    const Bytes session = inside(inside(plugin, 2), 3);
    double number = 0;
    const Bytes lr = inside(setting(session, "optimizer.lr"), 2);
    CHECK_INT(lr.end - lr.at, 8);
    memcpy(&number, lr.at, sizeof number);
    CHECK_NEAR(number, 0.0025, 0);
    CHECK(says(inside(setting(session, "model.name"), 3), "a \"b\": ü"));
    CHECK(says(inside(setting(session, "optimizer.kind"), 3), "adamw"));
    CHECK(setting(session, "run.guard").at != NULL);      /* not its default */
    CHECK(setting(session, "model.norm_eps").at == NULL); /* its default, for experts */
    CHECK(setting(session, "plan.lost").at == NULL);      /* of no training */
}

static void tensorboard_reads_both(void **state)
{
    static const char line[] =
        "cat >read.py <<'END'\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "from tensorboard.plugins.hparams import plugin_data_pb2\n"
        "a = EventAccumulator('run')\n"
        "a.Reload()\n"
        "text = a.Tensors('configuration/text_summary')[0].tensor_proto.string_val[0].decode()\n"
        "assert text == '```\\n' + open('run/config.yaml').read() + '```\\n', text\n"
        "assert a.SummaryMetadata('configuration/text_summary').plugin_data.plugin_name == 'text'\n"
        "content = a.SummaryMetadata('_hparams_/session_start_info').plugin_data.content\n"
        "got = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams\n"
        "assert got['optimizer.lr'].number_value == 0.0025 and got['run.guard'].bool_value\n"
        "assert got['model.name'].string_value == 'a \"b\": ü', got['model.name']\n"
        "assert a.Scalars('loss')[1].step == 2\n"
        "END\n"
        "$python read.py";
    Outcome o = with_python(*state, "board", "tensorboard", line);
    CHECK_EXIT(o, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LAB_TEST(the_configuration_is_a_text),
        LAB_TEST(settings_are_hyperparameters),
        LAB_TEST(tensorboard_reads_both),
    };
    return cmocka_run_group_tests(tests, open_with_a_run, lab_close);
}
