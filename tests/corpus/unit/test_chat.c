/* Chat templates: texts are those of Jinja set up as Hugging Face does (trim_blocks, lstrip_blocks),
 * answers are found, and what is not understood is named with its line. */
#include "corpus/prepare/prepare.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/shard.h"
#include "corpus/tokenizer/chat.h"
#include "corpus/tokenizer/tokenizer.h"
#include "harness/place.h"
#include "tokenizer/train.h"

#include <stdlib.h>

static const ChatMessage talk[] = {
    { "system", " be brief " }, { "user", "1+1?\n" }, { "assistant", "2" }, { "user", "" }
};
enum { TALK = sizeof talk / sizeof *talk };

/* By jinja2 3.1 of `talk`, with bos_token "<s>" and eos_token "</s>". */
static const struct {
    const char *text;
    bool prompt;
    const char *want;
} rendered[] = {
    { "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|im_start|>assistant\\n' }}{% endif %}",
      false,
      "<|im_start|>system\n be brief "
      "<|im_end|>\n<|im_start|>user\n1+1?\n<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_"
      "start|>user\n<|im_end|>\n" },
    { "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|im_start|>assistant\\n' }}{% endif %}",
      true,
      "<|im_start|>system\n be brief "
      "<|im_end|>\n<|im_start|>user\n1+1?\n<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_"
      "start|>user\n<|im_end|>\n<|im_start|>assistant\n" },
    { "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
      "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
      "'<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' "
      "%}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if "
      "loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
      false,
      "<|system|>\n be brief </s>\n<|user|>\n1+1?\n</s>\n<|assistant|>\n2</s>\n<|user|>\n</s>\n" },
    { "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
      "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
      "'<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' "
      "%}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if "
      "loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
      true,
      "<|system|>\n be brief "
      "</s>\n<|user|>\n1+1?\n</s>\n<|assistant|>\n2</s>\n<|user|>\n</s>\n<|assistant|>\n" },
    { "{# a #}\n  {{- bos_token -}}\n\n{%- for m in messages -%}\n    {%- if not loop.first %}  |  "
      "{% endif -%}\n   [{{ m.role | trim }}]  {{ m.content|trim ~ '!' }}\n  {% if m.role != "
      "\"user\" and (loop.last or false) %}\nlast\n  {%- else %}  x{% endif %}  y\n\t{% endfor "
      "%}\nend  {{ true }}{{ bos_token == '' }}\n",
      false,
      "<s>[system]  be brief!\n  x  y\n  |  [user]  1+1?!\n  x  y\n  |  [assistant]  2!\n  x  y\n  "
      "|  [user]  !\n  x  y\nend  TrueFalse" },
    { "{# a #}\n  {{- bos_token -}}\n\n{%- for m in messages -%}\n    {%- if not loop.first %}  |  "
      "{% endif -%}\n   [{{ m.role | trim }}]  {{ m.content|trim ~ '!' }}\n  {% if m.role != "
      "\"user\" and (loop.last or false) %}\nlast\n  {%- else %}  x{% endif %}  y\n\t{% endfor "
      "%}\nend  {{ true }}{{ bos_token == '' }}\n",
      true,
      "<s>[system]  be brief!\n  x  y\n  |  [user]  1+1?!\n  x  y\n  |  [assistant]  2!\n  x  y\n  "
      "|  [user]  !\n  x  y\nend  TrueFalse" },
    { "{% for m in messages %}{{ \"a\\\"b\\\\c'\\t\" ~ 'it\\'s' }}{{ m.content or 'none' }}{{ '' "
      "or m.role and 'r' }}{% endfor %}\n\n",
      false, "a\"b\\c'\tit's be brief ra\"b\\c'\tit's1+1?\nra\"b\\c'\tit's2ra\"b\\c'\tit'snoner" },
    { "{% for m in messages %}{{ \"a\\\"b\\\\c'\\t\" ~ 'it\\'s' }}{{ m.content or 'none' }}{{ '' "
      "or m.role and 'r' }}{% endfor %}\n\n",
      true, "a\"b\\c'\tit's be brief ra\"b\\c'\tit's1+1?\nra\"b\\c'\tit's2ra\"b\\c'\tit'snoner" },
    { "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'S:none\\n' }}{% endif %}{{ m.role ~ ':' ~ m['content'] ~ ';' }}{% endfor %}",
      false, "system: be brief ;user:1+1?\n;assistant:2;user:;" },
    { "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = "
      "messages[0]['content'] %}{% else %}{% set rest = messages %}{% set sys = false %}{% endif "
      "%}{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ "
      "raise_exception('turns do not alternate') }}{% endif %}{% if loop.first and sys != false "
      "%}{% set content = '<<' + sys + '>>' + m.content %}{% else %}{% set content = m.content "
      "%}{% endif %}{{ content | trim }}{% if loop.last %}.{% endif %}|{% endfor %}",
      true, "<< be brief >>1+1?|2|.|" },
    { "{% set tail = '!' %}\n{% set many = messages %}\n{% for m in many %}\n{% set text = m.role "
      "+ tail %}\n{% if loop.index0 == 0 %}\n{% set text = bos_token + text %}\n{% endif %}\n{{ "
      "text }}{{ loop.index0 }}{{ 17 % 5 }}\n{% endfor %}\n{{ tail }}{{ many[2].content }}{{ "
      "messages[1:][0].role }}{% if not messages[4:] %}none{% endif %}",
      false, "<s>system!02\nuser!12\nassistant!22\nuser!32\n!2usernone" },
    { "{% if false %}{% set l = messages %}{% set t = 'a' %}{% for m in l %}{{ m.role }}{% endfor "
      "%}{% endif %}{% for m in messages[2:] %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{% "
      "set x = 'b' %}{{ x }}{% endfor %}",
      false, "0TrueFalseb1FalseTrueb" },
    { "{% set a = 'x' %}{% for m in messages %}{% set a = a + m.role %}{{ a }}{% endfor %}{{ a }}",
      false, "xsystemxuserxassistantxuserx" },
};

typedef struct Room {
    Arena arena, scratch;
} Room;

static void room_open(Room *r)
{
    CHECK_OK(arena_init(&r->arena, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&r->scratch, "scratch", MEM_HOST, (size_t)1 << 30));
}

static void room_close(Room *r)
{
    arena_free(&r->arena);
    arena_free(&r->scratch);
}

static ChatTemplate template_of(const char *text)
{
    return (ChatTemplate){ .name = "chat.jinja", .text = text, .bos = "<s>", .eos = "</s>" };
}

static void texts_are_jinjas(void **state)
{
    (void)state;
    Room r;
    room_open(&r);
    for (size_t i = 0; i < sizeof rendered / sizeof *rendered; i++) {
        ChatTemplate t = template_of(rendered[i].text);
        Text out = { 0 };
        CHECK_OK(chat_check(&t, &r.scratch));
        CHECK_OK(text_init(&out, &r.arena));
        CHECK_OK(chat_render(&t, talk, TALK, rendered[i].prompt, &r.scratch, &out));
        CHECK_TEXT(out.data, rendered[i].want);
    }
    room_close(&r);
}

/* Each with the line and the word that the error names. */
static const struct {
    const char *text, *want;
} refused[] = {
    { "\n{% macro x() %}", "chat.jinja:2: macro is not among" },
    { "\n{% set ns.x = 1 %}", "chat.jinja:2: ns. is not among" },
    { "{% set x %}", "x % is not among" },
    { "{{ x }}{% set x = 1 %}", "x is not among" },
    { "{% for m in messages %}{% set x = 1 %}{% endfor %}{{ x }}", "x is not among" },
    { "{% set x = 1 %}{% for m in x %}{% endfor %}", "for m in x  is not among" },
    { "{{ messages }}", "a list that is printed" },
    { "{{ messages[0] }}", "messages[0]" },
    { "{{ messages[-1].role }}", "messages[- is not among" },
    { "{{ messages[0.role }}", "is not among" },
    { "{{ messages[0:2] }}", "a bracket that does not close" },
    { "{{ 1 % 0 }}", "a rest of what is no number, or by 0" },
    { "{{ 'a' % 2 }}", "a rest of what is no number" },
    { "{{ 12345678 }}", "a number above 1000000" },
    { "{{ raise_exception }}", "raise_exception is not among" },
    { "{{ raise_exception(1) }}", "raise_exception without a text" },
    { "{% set a=1 %}{% set b=1 %}{% set c=1 %}{% set d=1 %}{% set e=1 %}{% set f=1 %}{% set g=1 "
      "%}{% set h=1 %}"
      "{% set i=1 %}{% set j=1 %}{% set k=1 %}{% set l=1 %}{% set m=1 %}{% set n=1 %}{% set o=1 "
      "%}{% set p=1 %}"
      "{% set q=1 %}",
      "more than 16 variables" },
    { "{% for m in messages %}\n\n{{ m.tools }}{% endfor %}",
      "chat.jinja:3: m.tools is not among" },
    { "{% for m in tools %}{% endfor %}", "chat.jinja:1: tools is not among" },
    { "{{ 'a' | upper }}", "upper is not among" },
    { "{{ loop.first }}", "loop is not among" },
    { "{% for m in messages %}{{ loop.index }}{% endfor %}", "loop.index is not among" },
    { "{{ 'a' if true }}", "if is not among" },
    { "{{ 1.5 }}", ". is not among" },
    { "{% for m in messages %}{{ m.content.strip() }}{% endfor %}", ".strip() is not among" },
    { "{% for m in messages %}", "a for without its endfor" },
    { "{% if true %}", "an if without its endif" },
    { "{% if true %}{% else %}{% elif true %}{% endif %}", "an if without its endif" },
    { "\n\n{% endif %}", "chat.jinja:3: an end without its beginning" },
    { "{{ 'a", "a string that does not end" },
    { "{{ ('a' }}", "a parenthesis that does not close" },
    { "{# a", "a comment that does not end" },
    { "{{ }}", "misses a value" },
    { "{{ 'a' + true }}", "a sum of what is no text" },
    { "{% for a in messages %}{% for b in messages %}{% endfor %}{% endfor %}",
      "a for inside a for" },
    { "{{ ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((( }}",
      "32 deep" },
};

static void what_is_not_understood_is_named_with_its_line(void **state)
{
    (void)state;
    Room r;
    room_open(&r);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ChatTemplate t = template_of(refused[i].text);
        Status s = chat_check(&t, &r.scratch);
        if (s != ERR_FORMAT && s != ERR_UNSUPPORTED) fail_msg("%s is taken", t.text);
        if (strstr(status_message(), refused[i].want) == NULL)
            fail_msg("%s: \"%s\", wanted \"%s\"", t.text, status_message(), refused[i].want);
    }
    room_close(&r);
}

/* Where a template comes to it, and there alone. */
static void a_template_may_refuse_a_chat(void **state)
{
    (void)state;
    Room r;
    Text out = { 0 };
    room_open(&r);
    ChatTemplate t = template_of("{% if messages[0].role == 'tool' %}{{ raise_exception('no ' + "
                                 "messages[0].role) }}{% endif %}x");
    const ChatMessage tool = { "tool", "" };
    CHECK_OK(chat_check(&t, &r.scratch));
    CHECK_OK(text_init(&out, &r.arena));
    CHECK_OK(chat_render(&t, talk, TALK, false, &r.scratch, &out));
    CHECK_OK(chat_render(&t, talk, 0, false, &r.scratch, &out));
    CHECK_TEXT(out.data, "xx");
    CHECK_FAILS(chat_render(&t, &tool, 1, false, &r.scratch, &out), ERR_FORMAT,
                "chat.jinja refuses the chat: no tool");
    room_close(&r);
}

#define ROLES                                                                                      \
    "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}\n{% elif m.role == "        \
    "'assistant' %}A:{{ m.content + eos_token }}\n{% endif %}{% endfor %}"

/* Parts in brackets, answers in angles. */
static void check_parts(Room *r, const char *text, const ChatMessage *m, int n, const char *want)
{
    ChatTemplate t = template_of(text);
    ChatPart *part = NULL;
    char got[512] = "";
    int parts = 0;
    CHECK_OK(chat_parts(&t, m, n, &r->arena, &r->scratch, &part, &parts));
    for (int i = 0; i < parts; i++) {
        size_t used = strlen(got);
        snprintf(got + used, sizeof got - used, part[i].loss ? "<%.*s>" : "[%.*s]", (int)part[i].n,
                 part[i].text);
    }
    CHECK_TEXT(got, want);
}

static void answers_are_what_the_template_writes_behind_its_prompt(void **state)
{
    (void)state;
    static const ChatMessage two[] = {
        { "user", "a" }, { "assistant", "b" }, { "user", "c" }, { "assistant", "d" }
    };
    Room r;
    room_open(&r);
    check_parts(&r, ROLES "{% if add_generation_prompt %}A:{% endif %}", two, 4,
                "[U:a\nA:]<b</s>\n>[U:c\nA:]<d</s>\n>");
    check_parts(&r, ROLES "{% if add_generation_prompt %}A:{% endif %}", two, 3,
                "[U:a\nA:]<b</s>\n>[U:c\n]");
    check_parts(&r, ROLES, two, 2, "[U:a\n]<A:b</s>\n>"); /* no prompt: the mark is learned, too */
    check_parts(&r, ROLES "{% if add_generation_prompt %}A:{% else %}!{% endif %}", two, 4,
                "[U:a\nA:]<b</s>\n>[U:c\nA:]<d</s>\n!>");
    room_close(&r);
}

static void bad_conversations_are_errors(void **state)
{
    (void)state;
    Room r;
    ChatPart *part = NULL;
    int parts = 0;
    ChatTemplate t = template_of(ROLES);
    room_open(&r);
    CHECK_FAILS(
        chat_parts(&t, &(ChatMessage){ "user", "a" }, 1, &r.arena, &r.scratch, &part, &parts),
        ERR_FORMAT, "a chat of 1 messages without an answer");
    const ChatMessage tool[] = { { "user", "a" }, { "tool", "b" }, { "assistant", "c" } };
    CHECK_FAILS(chat_parts(&t, tool, 3, &r.arena, &r.scratch, &part, &parts), ERR_FORMAT,
                "message 2 has the role tool, which chat.jinja writes nothing for");
    t = template_of(ROLES "{% if add_generation_prompt %}B:{% endif %}");
    CHECK_FAILS(chat_parts(&t, talk + 1, 2, &r.arena, &r.scratch, &part, &parts), ERR_FORMAT,
                "chat.jinja does not tell where message 2");
    t = template_of("{{ bos_token }}" ROLES);
    t.bos = NULL;
    CHECK_FAILS(chat_parts(&t, talk + 1, 2, &r.arena, &r.scratch, &part, &parts), ERR_FORMAT,
                "chat.jinja asks for bos_token");
    room_close(&r);
}

/* ---- from lines to batches ---- */

enum { PACK = 32, VOCAB = 300 };

typedef struct Place {
    Room room;
    char folder[64], tokenizer[FILE_PATH_MAX], out[FILE_PATH_MAX], lines[FILE_PATH_MAX],
        chat[FILE_PATH_MAX];
    const char *file;
    PrepareConfig config;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ .folder = "/tmp/switchyard_test_XXXXXX" };
    room_open(&p->room);
    CHECK(mkdtemp(p->folder) != NULL);
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(p->out, p->folder, "out"));
    CHECK_OK(file_join(p->lines, p->folder, "a.jsonl"));
    CHECK_OK(file_join(p->chat, p->folder, "chat.jinja"));
    static const char text[] = "{\"text\":\"the cat sat on the mat and the rat on the hat\"}\n";
    CHECK_OK(file_write_whole(p->lines, text, sizeof text - 1));
    p->file = p->lines;
    CHECK_OK(tokenizer_train(
        &(TokenizerTraining){
            .files = &p->file, .n_files = 1, .vocab = 260, .out_path = p->tokenizer },
        &p->room.arena));
    static const char roles[] = "{% for m in messages %}{% if m.role == 'user' %}Q{{ m.content }}:"
                                "{% else %}{{ m.content }};{% endif %}{% endfor %}";
    CHECK_OK(file_write_whole(p->chat, roles, sizeof roles - 1));
    p->config = (PrepareConfig){ .tokenizer = p->tokenizer,
                                 .out = p->out,
                                 .files = &p->file,
                                 .n_files = 1,
                                 .chat = p->chat,
                                 .sequence = PACK,
                                 .documents.field = "text" };
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    CHECK_OK(file_remove_tree(p->folder));
    room_close(&p->room);
    return 0;
}

static void prepare_lines(Place *p, const char *text, PrepareStats *stats)
{
    CHECK_OK(file_write_whole(p->lines, text, strlen(text)));
    CHECK_OK(prepare_run(&p->config, stats));
}

static void chats_are_packed_whole_and_their_answers_are_learned(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    Shard s = { 0 };
    /* letters are ids of one byte: Qxy:z; and the end are 6, a chat of 30 does not fit behind two */
    prepare_lines(p,
                  "{\"prompt\":\"xy\",\"answer\":\"z\"}\n"
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"v\"},{\"role\":\"assistant\","
                  "\"content\":\"w\"},{\"role\":\"user\",\"content\":\"k\"}]}\n"
                  "{\"prompt\":\"xxxxxxxxxxxxxxxxxxxxxxxx\",\"answer\":\"zz\"}\n",
                  &stats);
    CHECK_INT(stats.documents, 3);
    CHECK_INT(stats.learned, 3 + 2 + 4);
    CHECK_OK(shard_open(&s, p->out));
    CHECK_INT(s.pack, PACK);
    CHECK_INT(s.documents, 2);
    CHECK_INT(s.tokens, 2 * PACK);
    CHECK_INT(s.sequences, 5); /* and the padding of both packs */
    static const char want[2 * PACK + 1] = "....zzz...zz...................."
                                           "..........................zzzz..";
    for (int64_t i = 0; i < s.tokens; i++) {
        /* the second chat is Qv:w;Qk: and an end that is not learned */
        CHECK_INT(shard_learns(&s, i), want[i] == 'z' || (want[i] == 'w'));
    }
    int64_t end = 0;
    CHECK_INT(shard_chat(&s, 8, &end), 7);
    CHECK_INT(end, 16);
    shard_close(&s);
}

/* A bad line is no document, so the same line again is bad, too. */
static void a_chat_that_came_before_is_not_encoded(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    p->config.dedup = true;
    p->config.documents.skip_bad = true;
    prepare_lines(p,
                  "{\"prompt\":\"xy\",\"answer\":\"z\"}\n"
                  "{\"prompt\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"answer\":\"zz\"}\n"
                  "{\"prompt\":\"xy\",\"answer\":\"z\"}\n"
                  "{\"prompt\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"answer\":\"zz\"}\n",
                  &stats);
    CHECK_INT(stats.documents, 1);
    CHECK_INT(stats.encoded, 1);
    CHECK_INT(stats.duplicates, 1);
    CHECK_INT(stats.skipped, 2);
}

/* Rank 1 of 2 and the lone rank count the same targets; -1 is what the mask says; chats do not see each
 * other. */
static void batches_have_targets_where_answers_are(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    char lines[4096] = "";
    for (int i = 0; i < 40; i++) {
        size_t used = strlen(lines);
        snprintf(lines + used, sizeof lines - used, "{\"prompt\":\"%.*s\",\"answer\":\"%.*s\"}\n",
                 1 + i % 7, "xyxyxyxy", 1 + i % 3, "zzz");
    }
    prepare_lines(p, lines, &stats);
    LoaderSource source = { .name = "chats", .path = p->out };
    LoaderConfig c = { .sources = &source,
                       .n_sources = 1,
                       .sequence = PACK,
                       .batch = 4,
                       .own = 4,
                       .vocab = VOCAB,
                       .seed = 3,
                       .shuffle = true,
                       .validation = 0.2,
                       .depths = 1 };
    Loader *all = NULL, *half = NULL;
    const Batch *b = NULL, *h = NULL;
    CHECK_OK(loader_open(&c, &p->room.arena, &all));
    c.first = c.own = 2;
    CHECK_OK(loader_open(&c, &p->room.arena, &half));
    for (int step = 0; step < 5; step++) {
        int64_t targets = 0, next = 0;
        CHECK_OK(loader_next(all, &b));
        CHECK_OK(loader_next(half, &h));
        const int32_t *id = b->id.data, *target = b->target.data, *doc = b->doc.data;
        for (int64_t i = 0; i < 4 * PACK; i++) {
            int64_t t = i % PACK;
            targets += target[i] >= 0;
            CHECK(t > 0 || doc[i] == 0); /* a row starts with a pack */
            int32_t second = ((int32_t *)b->next[0].target.data)[i];
            bool same = t + 2 < PACK && doc[i + 2] <= t, learned = same && target[i + 1] >= 0;
            if (t + 2 < PACK) CHECK_INT(second, learned ? id[i + 2] : -1);
            next += second >= 0;
            bool starts = id[i] == 'Q' - '!' || doc[i] == t;
            CHECK(doc[i] == t || doc[i] == doc[i - 1]);
            CHECK(starts == (doc[i] == t));
            if (t + 1 == PACK) continue;
            CHECK(target[i] == -1 || target[i] == id[i + 1]);
            if (id[i] == ':' - '!') CHECK(target[i] == id[i + 1]);
            if (id[i + 1] == 'x' - '!' || id[i + 1] == ':' - '!') CHECK_INT(target[i], -1);
        }
        CHECK_INT(b->targets, targets);
        CHECK_INT(h->targets, targets);
        CHECK_INT(b->next[0].targets, next);
        CHECK_INT(h->next[0].targets, next);
        CHECK(targets > 10 && next > 5);
    }
    loader_close(all);
    loader_close(half);
    c = (LoaderConfig){
        .sources = &source, .n_sources = 1, .sequence = 48, .batch = 1, .vocab = VOCAB
    };
    CHECK_FAILS(loader_open(&c, &p->room.arena, &all), ERR_ARG,
                "packed for sequences of 32 tokens");
}

static void bad_lines_are_named_or_left_out(void **state)
{
    Place *p = *state;
    static const struct {
        const char *line, *want;
    } bad[] = {
        { "{\"prompt\":\"a\"}", "a.jsonl:2: a chat without an answer: the field \"answer\"" },
        { "{\"text\":\"a\"}", "a.jsonl:2: no list \"messages\"" },
        { "{\"messages\":[{\"role\":\"user\"}]}", "message 1 has no text \"content\"" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "without an answer" },
        { "{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"answer\":\"b\"}",
          "--sequence has room for 32" },
        { "[1]", "no JSON object" },
    };
    PrepareStats stats = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"prompt\":\"a\",\"answer\":\"b\"}\n%s\n", bad[i].line);
        CHECK_OK(file_write_whole(p->lines, text, strlen(text)));
        p->config.documents.skip_bad = false;
        CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, bad[i].want);
        char left[FILE_PATH_MAX];
        CHECK_OK(file_join(left, p->folder, "out.bin"));
        CHECK(!file_exists(left));
    }
    p->config.documents.skip_bad = true;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.documents, 1);
    CHECK_INT(stats.skipped, 1);
}

/* A shard without a mask takes the place of one with it; a mask of other tokens is refused. */
static void a_mask_belongs_to_its_shard(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    PrepareStats stats = { 0 };
    char mask[FILE_PATH_MAX];
    CHECK_OK(file_join(mask, p->folder, "out.mask"));
    prepare_lines(p, "{\"prompt\":\"a\",\"answer\":\"b\",\"text\":\"abc\"}\n", &stats);
    CHECK(file_exists(mask));
    CHECK_OK(file_write_whole(mask, "SWMASK\0\0aaaaaaaaaaaaaaaa1234", 28));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT, "out.mask has 28 bytes");
    CHECK_OK(file_write_whole(mask, "SWMASK\0\0aaaa", 12));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT,
                "out.mask has 12 bytes, its header alone has 24");
    CHECK_OK(file_write_whole(mask, "SHMASK\0\0aaaaaaaaaaaaaaaa1234", 28));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT, "it is no mask");
    p->config.chat = NULL;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK(!file_exists(mask));
    CHECK_OK(shard_open(&s, p->out));
    CHECK(s.learned == NULL && shard_learns(&s, 0));
    shard_close(&s);
}

static void a_tokenizers_folder_has_the_template_and_the_tokens(void **state)
{
    Place *p = *state;
    ChatTemplate t;
    char path[FILE_PATH_MAX];
    CHECK_OK(file_remove_tree(p->chat));
    CHECK_FAILS(chat_load("tokenizer", p->tokenizer, &p->room.arena, &t), ERR_FORMAT,
                "no chat_template");
    static const char json[] = "{\"bos_token\":{\"content\":\"<b>\"},\"eos_token\":\"<e>\","
                               "\"chat_template\":\"{{ bos_token }}\\n\"}";
    CHECK_OK(file_join(path, p->folder, "tokenizer_config.json"));
    CHECK_OK(file_write_whole(path, json, sizeof json - 1));
    CHECK_OK(chat_load("tokenizer", p->tokenizer, &p->room.arena, &t));
    CHECK_TEXT(t.bos, "<b>");
    CHECK_TEXT(t.eos, "<e>");
    CHECK_TEXT(t.text, "{{ bos_token }}\n");
    CHECK_OK(file_write_whole(p->chat, "x{% y %}", 8));
    CHECK_FAILS(chat_load(p->chat, p->tokenizer, &p->room.arena, &t), ERR_UNSUPPORTED,
                "chat.jinja:1: y is not among");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(texts_are_jinjas),
        TEST(what_is_not_understood_is_named_with_its_line),
        TEST(a_template_may_refuse_a_chat),
        TEST(answers_are_what_the_template_writes_behind_its_prompt),
        TEST(bad_conversations_are_errors),
        PLACE_TEST(chats_are_packed_whole_and_their_answers_are_learned),
        PLACE_TEST(a_chat_that_came_before_is_not_encoded),
        PLACE_TEST(batches_have_targets_where_answers_are),
        PLACE_TEST(bad_lines_are_named_or_left_out),
        PLACE_TEST(a_mask_belongs_to_its_shard),
        PLACE_TEST(a_tokenizers_folder_has_the_template_and_the_tokens),
    };
    return TEST_RUN(tests);
}
