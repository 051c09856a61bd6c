/* disassemble: the instructions of a kernel as text, from llvm-objdump, when it runs for the first time.
 * Loading many code objects of which few kernels run costs little. */
#include "gfxrun/machine.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in memory with the code object as it was loaded: the one on disk may be another by now. */
static Status open_copy(const CodeObject *c, int *out)
{
    int fd = memfd_create("gfxrun", MFD_CLOEXEC);
    if (fd < 0) return FAIL(ERR_IO, "cannot make a file in memory");
    for (size_t done = 0; done < c->file_bytes;) {
        ssize_t n = write(fd, c->file + done, c->file_bytes - done);
        if (n <= 0) {
            (void)close(fd);
            return FAIL(ERR_IO, "cannot write a file in memory");
        }
        done += (size_t)n;
    }
    *out = fd;
    return OK;
}

static Status read_command(Arena *a, const char *command, char **out)
{
    size_t bytes;
    FILE *f = popen(command, "r");
    if (f == NULL) return FAIL(ERR_IO, "cannot run %s", command);
    Status s = read_all(a, f, out, &bytes);
    int rc = pclose(f);
    TRY(s);
    if (rc != 0) return FAIL(ERR_IO, "this failed: %s", command);
    return OK;
}

/* One kernel's text; NULL: all of it. */
static Status disassemble(const CodeObject *c, const Kernel *k, Arena *a, char **out)
{
    char command[256], range[96] = "";
    int fd = -1;
    if (k != NULL && !c->has_functions)
        (void)snprintf(range, sizeof range, "--start-address=0x%llx --stop-address=0x%llx",
                       (unsigned long long)k->entry, (unsigned long long)k->end);
    TRY(open_copy(c, &fd));
    (void)snprintf(command, sizeof command,
                   "llvm-objdump-19 -d --mcpu=gfx942 %s /proc/%d/fd/%d 2>/dev/null", range,
                   (int)getpid(), fd);
    Status s = read_command(a, command, out);
    (void)close(fd);
    return s;
}

static Status decode_locked(const CodeObject *c, Kernel *k, Arena *scratch)
{
    char *text;
    if (k->program.n > 0) return OK;
    TRY(disassemble(c, k, scratch, &text));
    TRY(decode_text(c->names, text, &k->program));
    if (op_at(&k->program, k->entry) < 0)
        return FAIL(ERR_FORMAT, "%s: no instruction where it begins", k->name);
    return OK;
}

Status decode_kernel(const CodeObject *c, Kernel *k, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    (void)pthread_mutex_lock(c->lock);
    Status s = decode_locked(c, k, scratch);
    (void)pthread_mutex_unlock(c->lock);
    arena_release(scratch, mark);
    return s;
}

/* A line without blanks at its ends and without what is behind the instruction. */
static void copy_line(const char *text, int line, char *to, size_t bytes)
{
    for (int i = 1; i < line && text != NULL; i++) {
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    *to = '\0';
    if (text == NULL) return;
    text += strspn(text, " \t");
    size_t n = strcspn(text, "\n");
    const char *note = strstr(text, "//");
    if (note != NULL && (size_t)(note - text) < n) n = (size_t)(note - text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
    (void)snprintf(to, bytes, "%.*s", (int)n, text);
}

void text_of(const Launch *l, const Op *o, char *to, size_t bytes)
{
    ArenaMark mark = arena_mark(l->scratch);
    char *text;
    *to = '\0';
    if (l->code->text != NULL)
        copy_line(l->code->text, o->line, to, bytes);
    else if (disassemble(l->code, l->kernel, l->scratch, &text) == OK)
        copy_line(text, o->line, to, bytes);
    arena_release(l->scratch, mark);
}

static Status check_program(const Program *p, const char *text)
{
    const Op *first = NULL;
    char what[160];
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->ops[i].row != NULL) continue;
        if (n++ == 0) first = &p->ops[i];
    }
    if (first == NULL) return OK;
    copy_line(text, first->line, what, sizeof what);
    return FAIL(ERR_UNSUPPORTED, "`%s` in line %d is not known, nor are %d more instructions", what,
                first->line, n - 1);
}

static Status check_file(const CodeObject *c)
{
    char *text;
    Program p = { .room = (int)((c->text_to - c->text_from) / 4) };
    if (c->n_kernels == 0) return OK;
    TRY(ARENA_NEW(c->arena, p.room, &p.ops));
    TRY(disassemble(c, NULL, c->arena, &text));
    TRY(decode_text(c->names, text, &p));
    return check_program(&p, text);
}

Status gfx_check(const CodeObject *c)
{
    if (c->text != NULL) return check_program(&c->kernels->program, c->text);
    ArenaMark mark = arena_mark(c->arena);
    Status s = check_file(c);
    arena_release(c->arena, mark);
    return s;
}
