/* load: a code object's constants and kernel descriptors from its ELF file. disassemble.c gets the
 * instructions, notes.c the hidden arguments. */
#include "gfxrun/machine.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gfx_kernels(const CodeObject *c) { return (int)c->n_kernels; }
const char *gfx_kernel_name(const CodeObject *c, int i) { return c->kernels[i].name; }

Kernel *find_kernel(const CodeObject *c, const char *name)
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

Status read_all(Arena *a, FILE *f, char **out, size_t *bytes)
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
                   .lds_bytes = d.lds,
                   .scratch_bytes = d.scratch,
                   .args_bytes = d.args,
                   .rsrc1 = d.rsrc1,
                   .rsrc2 = d.rsrc2,
                   .properties = d.properties,
                   .preload = d.preload };
    return arena_text(c->arena, name, strlen(name) - 3, &k->name);
}

static Status find_kernels(CodeObject *c, const char *file, const Elf64_Shdr *sections, int i)
{
    const Elf64_Sym *symbols = (const void *)(file + sections[i].sh_offset);
    const char *names = file + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
        const char *name = names + symbols[k].st_name;
        size_t n = strlen(name);
        if (n > 3 && strcmp(name + n - 3, ".kd") == 0)
            TRY(add_kernel(c, name, symbols[k].st_value));
    }
    return OK;
}

/* Where kernels end, and whether there is code besides theirs. */
static void find_functions(CodeObject *c, const char *file, const Elf64_Shdr *section)
{
    const Elf64_Sym *symbols = (const void *)(file + section->sh_offset);
    for (size_t i = 0; i < section->sh_size / sizeof *symbols; i++) {
        bool is_kernel = false;
        if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC) continue;
        for (int64_t k = 0; k < c->n_kernels; k++) {
            if (c->kernels[k].entry != symbols[i].st_value) continue;
            c->kernels[k].end = symbols[i].st_value + symbols[i].st_size;
            is_kernel = true;
        }
        c->has_functions |= !is_kernel;
    }
}

/* The notes of a section, one behind the other: the lengths of name and text, a type, the name. */
static Status find_notes(CodeObject *c, const char *file, const Elf64_Shdr *section)
{
    enum { METADATA = 32 };
    for (size_t at = 0; at + 12 <= section->sh_size;) {
        uint32_t head[3];
        memcpy(head, file + section->sh_offset + at, sizeof head);
        size_t text = at + 12 + ((head[0] + 3) & ~(size_t)3), end = text + head[1];
        if (end > section->sh_size) return FAIL(ERR_FORMAT, "a note is longer than its section");
        if (head[2] == METADATA && strcmp(file + section->sh_offset + at + 12, "AMDGPU") == 0)
            TRY(read_notes(c, (const uint8_t *)file + section->sh_offset + text, head[1]));
        at = (end + 3) & ~(size_t)3;
    }
    return OK;
}

/* What is found in one pass is needed in the next. */
static Status read_section(CodeObject *c, const char *file, const Elf64_Shdr *sections, int i,
                           int pass)
{
    const Elf64_Shdr *s = &sections[i];
    if (pass == 0) {
        if (s->sh_flags & SHF_EXECINSTR) {
            c->text_from = s->sh_addr;
            c->text_to = s->sh_addr + s->sh_size;
        }
        if (s->sh_type == SHT_RELA) return relocate(c, file, s);
        return s->sh_type == SHT_DYNSYM ? find_kernels(c, file, sections, i) : OK;
    }
    if (s->sh_type == SHT_DYNSYM || s->sh_type == SHT_SYMTAB) find_functions(c, file, s);
    return s->sh_type == SHT_NOTE ? find_notes(c, file, s) : OK;
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
    for (int i = 0; i < 2 * head->e_shnum; i++)
        TRY(read_section(c, file, sections, i % head->e_shnum, i / head->e_shnum));
    c->file = file;
    c->file_bytes = bytes;
    return OK;
}

/* Room for instructions of four bytes, the shortest. It stays untouched until the kernel runs. */
static Status make_rooms(CodeObject *c)
{
    for (int64_t k = 0; k < c->n_kernels; k++) {
        Kernel *to = &c->kernels[k];
        if (c->has_functions || to->end == 0) {
            to->end = c->text_to;
            to->program.room = (int)((c->text_to - c->text_from) / 4);
        } else
            to->program.room = (int)((to->end - to->entry) / 4);
        TRY(ARENA_NEW(c->arena, to->program.room, &to->program.ops));
    }
    return OK;
}

static Status begin_code(Arena *a, CodeObject **out)
{
    CodeObject *c;
    TRY(ARENA_ZEROED(a, 1, &c));
    c->arena = a;
    TRY(make_names(a, &c->names));
    TRY(ARENA_NEW(a, 1, &c->lock));
    if (pthread_mutex_init(c->lock, NULL) != 0)
        return FAIL(ERR_MEMORY, "no lock for a code object");
    *out = c;
    return OK;
}

Status gfx_load(Arena *a, const char *path, CodeObject **out)
{
    CodeObject *c;
    TRY(begin_code(a, &c));
    TRY(read_elf(c, path));
    TRY(make_rooms(c));
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
    TRY(begin_code(a, &c));
    TRY(arena_text(a, text, strlen(text), &c->text));
    TRY(ARENA_NEW(a, 1, &c->kernels));
    c->n_kernels = c->kernel_room = 1;
    *c->kernels = (Kernel){ .name = "text",
                            .properties = KERNARG_POINTER,
                            .rsrc1 = NEAREST_WITH_SUBNORMALS,
                            .rsrc2 = GROUP_ID_X,
                            .scratch_bytes = TEXT_SCRATCH };
    Program *p = &c->kernels->program;
    p->room = 1;
    for (const char *s = text; *s != '\0'; s++) p->room += *s == '\n';
    TRY(ARENA_NEW(a, p->room, &p->ops));
    TRY(decode_text(c->names, c->text, p));
    *out = c;
    return OK;
}
