/* Chat templates: texts are those of Jinja set up as Hugging Face does (trim_blocks, lstrip_blocks),
 * answers are found, and what is not understood is named with its line. Lines of chats become lines of
 * parts. */
#include "chat/chat.h"
#include "chat/lines.h"
#include "engine/base/file.h"
#include "harness/place.h"

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
    /* U+00E8 and U+00E9 begin with the same byte */
    const ChatMessage accents[] = { { "user", "a" }, { "assistant", "b" }, { "user", "\xC3\xA9" } };
    check_parts(&r,
                "{% for m in messages %}{{ m.content }}{% endfor %}"
                "{% if not add_generation_prompt %}\xC3\xA8{% endif %}",
                accents, 3, "[a]<b>[\xC3\xA9\xC3\xA8]");
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

/* ---- lines ---- */

typedef struct Place {
    Room room;
    char folder[64], chats[FILE_PATH_MAX], out[FILE_PATH_MAX], template[FILE_PATH_MAX];
    const char *file;
    ChatLines call;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ .folder = "/tmp/switchyard_test_XXXXXX" };
    room_open(&p->room);
    CHECK(mkdtemp(p->folder) != NULL);
    CHECK_OK(file_join(p->chats, p->folder, "a.jsonl"));
    CHECK_OK(file_join(p->out, p->folder, "out.jsonl"));
    CHECK_OK(file_join(p->template, p->folder, "chat.jinja"));
    static const char roles[] = "{% for m in messages %}{% if m.role == 'user' %}Q{{ m.content }}:"
                                "{% else %}{{ m.content }};{% endif %}{% endfor %}";
    CHECK_OK(file_write_whole(p->template, roles, sizeof roles - 1));
    p->file = p->chats;
    p->call =
        (ChatLines){ .template = p->template, .files = &p->file, .n_files = 1, .out = p->out };
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    CHECK_OK(file_remove_tree(p->folder));
    room_close(&p->room);
    return 0;
}

static Status write_lines(Place *p, const char *lines, ChatStats *s)
{
    CHECK_OK(file_write_whole(p->chats, lines, strlen(lines)));
    return chat_lines(&p->call, &p->room.arena, s);
}

static void each_chat_is_a_line_of_parts(void **state)
{
    Place *p = *state;
    ChatStats s = { 0 };
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(write_lines(p,
                         "{\"prompt\":\"x\\ty\",\"answer\":\"\xC3\xA9\"}\n\n"
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"v\"},{\"role\":"
                         "\"assistant\",\"content\":\"\\\"\\\\\"},{\"role\":\"user\","
                         "\"content\":\"k\"}]}\n",
                         &s));
    CHECK_INT(s.chats, 2);
    CHECK_INT(s.learned_bytes, 3 + 3);
    CHECK_INT(s.bytes, 8 + 9);
    CHECK_OK(file_read_all(p->out, &p->room.arena, &text, &n));
    CHECK_TEXT(text, "{\"parts\":[{\"text\":\"Qx\\ty:\",\"learned\":false},"
                     "{\"text\":\"\xC3\xA9;\",\"learned\":true}]}\n"
                     "{\"parts\":[{\"text\":\"Qv:\",\"learned\":false},"
                     "{\"text\":\"\\\"\\\\;\",\"learned\":true},"
                     "{\"text\":\"Qk:\",\"learned\":false}]}\n");
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
        { "[1]", "a.jsonl:2: no JSON object" },
        { "{\"prompt\":\"\\u0000\",\"answer\":\"b\"}", "a.jsonl:2: a NUL character" },
    };
    ChatStats s = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"prompt\":\"a\",\"answer\":\"b\"}\n%s\n", bad[i].line);
        p->call.skip_bad = false;
        CHECK_FAILS(write_lines(p, text, &s), ERR_FORMAT, bad[i].want);
        CHECK(!file_exists(p->out));
        p->call.skip_bad = true;
        CHECK_OK(write_lines(p, text, &s));
        CHECK_INT(s.chats, 1);
        CHECK_INT(s.skipped, 1);
        CHECK_OK(file_remove_tree(p->out));
    }
    CHECK_FAILS(write_lines(p, "[1]\n", &s), ERR_FORMAT, "1 files hold no chat: 1 bad lines");
    CHECK_OK(file_join(p->chats, p->folder, "a.txt"));
    CHECK_FAILS(write_lines(p, "a\n", &s), ERR_ARG, "a.txt: chats come in JSON lines");
}

static void a_models_folder_has_the_template_and_the_tokens(void **state)
{
    Place *p = *state;
    ChatTemplate t;
    char path[FILE_PATH_MAX];
    CHECK_FAILS(chat_load(p->folder, NULL, &p->room.arena, &t), ERR_FORMAT, "no chat_template");
    static const char json[] = "{\"bos_token\":{\"content\":\"<b>\"},\"eos_token\":\"<e>\","
                               "\"chat_template\":\"{{ bos_token }}\\n\"}";
    CHECK_OK(file_join(path, p->folder, "tokenizer_config.json"));
    CHECK_OK(file_write_whole(path, json, sizeof json - 1));
    CHECK_OK(chat_load(p->folder, NULL, &p->room.arena, &t));
    CHECK_TEXT(t.bos, "<b>");
    CHECK_TEXT(t.eos, "<e>");
    CHECK_TEXT(t.text, "{{ bos_token }}\n");
    CHECK_OK(file_write_whole(p->template, "{{ eos_token }}", 15));
    CHECK_OK(chat_load(p->folder, p->template, &p->room.arena, &t));
    CHECK_TEXT(t.eos, "<e>");
    CHECK_TEXT(t.text, "{{ eos_token }}");
    CHECK_OK(file_join(path, p->folder, "chat_template.jinja"));
    CHECK_OK(file_write_whole(path, "own", 3));
    CHECK_OK(chat_load(p->folder, NULL, &p->room.arena, &t));
    CHECK_TEXT(t.text, "own");
    CHECK_OK(chat_load(NULL, p->template, &p->room.arena, &t));
    CHECK(t.eos == NULL);
    static const struct {
        const char *text, *want;
        size_t n;
        Status s;
    } bad[] = {
        { "x{% y %}", "chat.jinja:1: y is not among", 8, ERR_UNSUPPORTED },
        { "x\0y", "chat.jinja has a NUL character", 3, ERR_FORMAT },
        { "x\xC3y", "chat.jinja is no UTF-8 from byte 2 of the template on", 3, ERR_FORMAT },
    };
    for (int i = 0; i < 3; i++) {
        CHECK_OK(file_write_whole(p->template, bad[i].text, bad[i].n));
        CHECK_FAILS(chat_load(p->folder, p->template, &p->room.arena, &t), bad[i].s, bad[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(texts_are_jinjas),
        TEST(what_is_not_understood_is_named_with_its_line),
        TEST(a_template_may_refuse_a_chat),
        TEST(answers_are_what_the_template_writes_behind_its_prompt),
        TEST(bad_conversations_are_errors),
        PLACE_TEST(each_chat_is_a_line_of_parts),
        PLACE_TEST(bad_lines_are_named_or_left_out),
        PLACE_TEST(a_models_folder_has_the_template_and_the_tokens),
    };
    return TEST_RUN(tests);
}
