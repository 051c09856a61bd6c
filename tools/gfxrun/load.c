/* load: a code object's constants and kernel descriptors from its ELF file, its instructions and its
 * hidden arguments from the tools of LLVM. */
#include "gfxrun/machine.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gfx_kernels(const CodeObject *c) { return (int)c->n_kernels; }
const char *gfx_kernel_name(const CodeObject *c, int i) { return c->kernels[i].name; }

Status gfx_check(const CodeObject *c)
{
    const Op *first = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_ops; i++) {
        if (c->ops[i].row != NULL) continue;
        if (n++ == 0) first = &c->ops[i];
    }
    if (first == NULL) return OK;
    return FAIL(ERR_UNSUPPORTED, "`%s` in line %d is not known, nor are %lld more instructions",
                first->text, first->line, (long long)(n - 1));
}

const Kernel *find_kernel(const CodeObject *c, const char *name)
{
    for (int64_t k = 0; k < c->n_kernels; k++)
        if (strcmp(c->kernels[k].name, name) == 0) return &c->kernels[k];
    return NULL;
}

Status gfx_pack(const CodeObject *c, const char *kernel, void *const *arguments, Arena *a,
                void **out, size_t *out_bytes)
{
    const Kernel *k = find_kernel(c, kernel);
    char *packed;
    int given = 0;
    if (k == NULL) return FAIL(ERR_ARG, "the code object has no kernel %s", kernel);
    TRY(ARENA_ZEROED(a, k->args_bytes + 1, &packed));
    for (int i = 0; i < k->n_arguments; i++) {
        const Argument *v = &c->arguments[k->first_argument + i];
        if (v->hidden != NULL) continue;
        if (v->offset + v->bytes > k->args_bytes)
            return FAIL(ERR_FORMAT, "%s: an argument lies outside", kernel);
        memcpy(packed + v->offset, arguments[given++], v->bytes);
    }
    *out = packed;
    *out_bytes = k->args_bytes;
    return OK;
}

static Status read_all(Arena *a, FILE *f, char **out, size_t *bytes)
{
    int64_t room = 0, n = 0;
    char *text = NULL;
    for (size_t got = 1; got > 0; n += (int64_t)got) {
        TRY(ARENA_GROW(a, n + 65536, &room, &text));
        got = fread(text + n, 1, 65535, f);
    }
    text[n] = '\0';
    *out = text;
    *bytes = (size_t)n;
    return OK;
}

static Status output_of(Arena *a, const char *command, const char *path, char **out)
{
    char line[4200];
    size_t bytes;
    (void)snprintf(line, sizeof line, "%s '%s' 2>/dev/null", command, path);
    FILE *f = popen(line, "r");
    if (f == NULL) return FAIL(ERR_IO, "cannot run %s", command);
    Status s = read_all(a, f, out, &bytes);
    int rc = pclose(f);
    TRY(s);
    if (rc != 0) return FAIL(ERR_IO, "%s failed on %s", command, path);
    return OK;
}

/* Segments stand in memory as the file's addresses say, one behind the other. */
static Status load_image(CodeObject *c, const char *file, const Elf64_Ehdr *head)
{
    const Elf64_Phdr *parts = (const void *)(file + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++) {
        size_t end = parts[i].p_vaddr + parts[i].p_memsz;
        if (parts[i].p_type == PT_LOAD && end > c->image_bytes) c->image_bytes = end;
    }
    TRY(ARENA_ZEROED(c->arena, c->image_bytes + 1, &c->image));
    for (int i = 0; i < head->e_phnum; i++)
        if (parts[i].p_type == PT_LOAD)
            memcpy(c->image + parts[i].p_vaddr, file + parts[i].p_offset, parts[i].p_filesz);
    return OK;
}

/* Addresses inside the image that the file leaves open, such as those of global variables. */
static Status relocate(CodeObject *c, const char *file, const Elf64_Shdr *section)
{
    enum { ABS64 = 3, RELATIVE64 = 13 };
    const Elf64_Rela *r = (const void *)(file + section->sh_offset);
    const Elf64_Sym *symbols = NULL;
    const Elf64_Ehdr *head = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    symbols = (const void *)(file + sections[section->sh_link].sh_offset);
    for (size_t i = 0; i < section->sh_size / sizeof *r; i++) {
        uint64_t type = ELF64_R_TYPE(r[i].r_info);
        uint64_t to = (uint64_t)(uintptr_t)c->image + (uint64_t)r[i].r_addend;
        if (type != ABS64 && type != RELATIVE64)
            return FAIL(ERR_UNSUPPORTED, "relocation %llu is not known", (unsigned long long)type);
        if (type == ABS64) to += symbols[ELF64_R_SYM(r[i].r_info)].st_value;
        memcpy(c->image + r[i].r_offset, &to, sizeof to);
    }
    return OK;
}

/* The 64 bytes of NAME.kd (LLVM's AMDGPU usage guide, "Kernel Descriptor"). */
static Status add_kernel(CodeObject *c, const char *name, uint64_t at)
{
    struct {
        uint32_t lds, scratch, args, zero;
        int64_t entry;
        uint32_t zeros[5], rsrc3, rsrc1, rsrc2;
        uint16_t properties, preload;
        uint32_t rest;
    } d;
    _Static_assert(sizeof d == 64, "as in the file");
    if (at + sizeof d > c->image_bytes) return FAIL(ERR_FORMAT, "%s lies outside the file", name);
    memcpy(&d, c->image + at, sizeof d);
    TRY(ARENA_GROW(c->arena, c->n_kernels + 1, &c->kernel_room, &c->kernels));
    Kernel *k = &c->kernels[c->n_kernels++];
    *k = (Kernel){ .entry = at + (uint64_t)d.entry,
                   .first = -1,
                   .lds_bytes = d.lds,
                   .scratch_bytes = d.scratch,
                   .args_bytes = d.args,
                   .rsrc1 = d.rsrc1,
                   .rsrc2 = d.rsrc2,
                   .properties = d.properties,
                   .preload = d.preload };
    return arena_text(c->arena, name, strlen(name) - 3, &k->name);
}

static Status read_section(CodeObject *c, const char *file, const Elf64_Shdr *sections, int i)
{
    const Elf64_Shdr *section = &sections[i];
    if (section->sh_type == SHT_RELA) return relocate(c, file, section);
    if (section->sh_type != SHT_DYNSYM) return OK;
    const Elf64_Sym *symbols = (const void *)(file + section->sh_offset);
    const char *names = file + sections[section->sh_link].sh_offset;
    for (size_t k = 0; k < section->sh_size / sizeof *symbols; k++) {
        const char *name = names + symbols[k].st_name;
        size_t n = strlen(name);
        if (n > 3 && strcmp(name + n - 3, ".kd") == 0)
            TRY(add_kernel(c, name, symbols[k].st_value));
    }
    return OK;
}

/* The low byte of e_flags names the GPU. gfx950 has another kind of 8-bit floats. */
enum { EF_GFX942 = 0x4c };

static Status read_elf(CodeObject *c, const char *path)
{
    char *file;
    size_t bytes;
    FILE *f = fopen(path, "rb");
    if (f == NULL) return FAIL(ERR_IO, "cannot open %s", path);
    Status s = read_all(c->arena, f, &file, &bytes);
    (void)fclose(f);
    TRY(s);
    const Elf64_Ehdr *head = (const void *)file;
    if (bytes < sizeof *head || memcmp(file, ELFMAG, SELFMAG) != 0 ||
        head->e_machine != EM_AMDGPU ||
        head->e_shoff + (size_t)head->e_shnum * sizeof(Elf64_Shdr) > bytes)
        return FAIL(ERR_FORMAT, "%s is no code object of an AMD GPU", path);
    if ((head->e_flags & 0xff) != EF_GFX942)
        return FAIL(ERR_UNSUPPORTED, "%s is for another GPU than gfx942 (number 0x%x)", path,
                    head->e_flags & 0xff);
    TRY(load_image(c, file, head));
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) TRY(read_section(c, file, sections, i));
    return OK;
}

static Kernel *kernel_named(CodeObject *c, const char *name)
{
    for (int64_t k = 0; k < c->n_kernels; k++)
        if (strcmp(c->kernels[k].name, name) == 0) return &c->kernels[k];
    return NULL;
}

/* What one kernel's list of arguments says so far. */
typedef struct NoteState {
    unsigned offset, bytes;
    int first; /* argument of this kernel */
} NoteState;

static bool note_number(const char *s, const char *name, unsigned *out)
{
    size_t n = strlen(name);
    if (strncmp(s, name, n) != 0) return false;
    *out = (unsigned)strtoul(s + n, NULL, 10);
    return true;
}

/* "        .offset:         16", one fact a line; .name of the kernel follows its arguments. */
static Status read_note(CodeObject *c, NoteState *n, const char *line)
{
    char what[64];
    const char *s = line + strspn(line, " -");
    if (note_number(s, ".offset:", &n->offset) || note_number(s, ".size:", &n->bytes)) return OK;
    if (sscanf(s, ".value_kind: %63s", what) == 1) {
        TRY(ARENA_GROW(c->arena, c->n_arguments + 1, &c->argument_room, &c->arguments));
        Argument *v = &c->arguments[c->n_arguments++];
        *v = (Argument){ .offset = n->offset, .bytes = n->bytes };
        if (strncmp(what, "hidden_", 7) != 0) return OK;
        return arena_text(c->arena, what + 7, strlen(what) - 7, &v->hidden);
    }
    if (strncmp(line, "    .symbol:", 12) != 0) return OK;
    char name[1024] = "";
    (void)sscanf(s, ".symbol: %1023s", name);
    char *end = strstr(name, ".kd");
    if (end != NULL) *end = '\0';
    Kernel *k = kernel_named(c, name + (*name == '\''));
    if (k != NULL) k->first_argument = n->first, k->n_arguments = (int)c->n_arguments - n->first;
    n->first = (int)c->n_arguments;
    return OK;
}

static Status read_notes(CodeObject *c, char *text)
{
    NoteState n = { 0 };
    for (char *next, *s = text; s != NULL; s = next) {
        next = strchr(s, '\n');
        if (next != NULL) *next++ = '\0';
        TRY(read_note(c, &n, s));
    }
    return OK;
}

Status gfx_load(Arena *a, const char *path, CodeObject **out)
{
    CodeObject *c;
    char *text;
    TRY(ARENA_ZEROED(a, 1, &c));
    c->arena = a;
    TRY(read_elf(c, path));
    TRY(output_of(a, "llvm-readelf-19 --notes", path, &text));
    TRY(read_notes(c, text));
    TRY(output_of(a, "llvm-objdump-19 -d --mcpu=gfx942", path, &text));
    TRY(decode_text(c, text));
    *out = c;
    return OK;
}

Status gfx_load_text(Arena *a, const char *text, CodeObject **out)
{
    enum {
        KERNARG_POINTER = 8,
        GROUP_ID_X = 1 << 7,
        NEAREST_WITH_SUBNORMALS = 15 << 16,
        TEXT_SCRATCH = 16
    };
    CodeObject *c;
    char *lines;
    TRY(ARENA_ZEROED(a, 1, &c));
    c->arena = a;
    TRY(ARENA_NEW(a, 1, &c->kernels));
    c->n_kernels = c->kernel_room = 1;
    *c->kernels = (Kernel){ .name = "text",
                            .properties = KERNARG_POINTER,
                            .rsrc1 = NEAREST_WITH_SUBNORMALS,
                            .rsrc2 = GROUP_ID_X,
                            .scratch_bytes = TEXT_SCRATCH };
    TRY(ARENA_NEW(a, strlen(text) + 1, &lines));
    memcpy(lines, text, strlen(text) + 1);
    TRY(decode_text(c, lines));
    *out = c;
    return OK;
}
