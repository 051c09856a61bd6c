/* data chat: writes conversations as documents of parts, with a model's chat template. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "chat/lines.h"
#include "engine/base/log.h"

/* The targets of the options. */
typedef struct Call {
    ChatLines lines;
    int on_bad_line;
} Call;

static Status write_lines(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Call *call = state;
    ChatLines *c = &call->lines;
    ChatStats s = { 0 };
    char chats[32], bytes[32], learned[32];
    if (c->folder == NULL && c->template == NULL)
        return FAIL(ERR_ARG, "data chat needs a template: the folder of a model with --model, or a "
                             "file with --template");
    c->files = (const char *const *)arguments;
    c->n_files = n;
    c->skip_bad = call->on_bad_line == 1;
    TRY(chat_lines(c, a, &s));
    if (s.skipped > 0) log_warn("%lld bad lines were left out", (long long)s.skipped);
    return text_printf(out, "%s: %s chats, answers are %s of %s\n", c->out,
                       text_thousands(chats, s.chats), text_bytes(learned, (double)s.learned_bytes),
                       text_bytes(bytes, (double)s.bytes));
}

Status beside_run(int argc, char **argv)
{
    Call call = { 0 };
    const Option table[] = {
        { "--model", OPTION_TEXT, &call.lines.folder, "FOLDER",
          .help = "its template, bos_token and eos_token: chat_template.jinja and "
                  "tokenizer_config.json" },
        { "--template", OPTION_TEXT, &call.lines.template, "FILE",
          .help = "a Jinja file, in place of the model's template" },
        { "--out", OPTION_TEXT, &call.lines.out, "FILE", .help = "the .jsonl file to write",
          .required = true },
        { "--on-bad-line", OPTION_CHOICE, &call.on_bad_line, "fail|skip",
          .help = "what to do with a broken line, or a chat that the template refuses" },
    };
    const Command command = {
        .name = "switchyard data chat",
        .arguments = "FILE|FOLDER|PATTERN...",
        .what =
            "Write chats as the texts that a model's template makes of them, with whether each "
            "is learned: answers are. A line of a .jsonl file is {\"messages\": [{\"role\", "
            "\"content\"}, ...]} or {\"prompt\", \"answer\"}. `switchyard data prepare --parts` "
            "reads what this writes.",
        .example = "switchyard data chat --model models/qwen3 --out runs/chats.jsonl chats.jsonl",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, write_lines, &call);
}
