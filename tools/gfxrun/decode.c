/* decode: instructions from llvm-objdump's text, once before a run: the row of the table, operands as
 * registers or constants, modifiers as numbers. */
#include "gfxrun/machine.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows that must not read what is undefined are `visible`; see undefined.c. */
static const struct {
    const Row *rows;
    bool visible;
} TABLES[] = {
    { control_rows, true },  { scalar_rows, false }, { integer_rows, false },
    { float_rows, false },   { compare_rows, false }, { lane_rows, false },
    { exchange_rows, false }, { memory_rows, true },  { lds_rows, true },
    { matrix_rows, false },
};

/* Names of all rows by their hash. A place that is taken sends to the next. */
enum { PLACES = 4096 };
typedef struct Names {
    const Row *row[PLACES];
    bool visible[PLACES];
} Names;

static uint32_t hash_of(const char *name, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h;
}

static Status make_names(Arena *a, Names **out)
{
    int64_t n = 0;
    TRY(ARENA_ZEROED(a, 1, out));
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const Row *r = TABLES[t].rows; r->name != NULL; r++) {
            uint32_t at = hash_of(r->name, strlen(r->name)) % PLACES;
            while ((*out)->row[at] != NULL) at = (at + 1) % PLACES;
            (*out)->row[at] = r;
            (*out)->visible[at] = TABLES[t].visible;
            assert(++n < PLACES / 2);
        }
    return OK;
}

static void find_row(const Names *names, const char *name, Op *o)
{
    static const char *const forms[] = { "_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp" };
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t m = strlen(forms[i]);
        if (n > m && strncmp(name + n - m, forms[i], m) == 0) n -= m;
    }
    for (uint32_t at = hash_of(name, n) % PLACES; names->row[at] != NULL; at = (at + 1) % PLACES) {
        if (strncmp(names->row[at]->name, name, n) != 0 || names->row[at]->name[n] != '\0') continue;
        o->row = names->row[at];
        o->visible = names->visible[at];
        return;
    }
}

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* v5, v[4:7], a0, s[0:1] */
static bool parse_numbered(const char *s, Operand *o)
{
    bool vector = *s == 'v' || *s == 'a';
    if ((!vector && *s != 's') || (s[1] != '[' && !isdigit((unsigned char)s[1]))) return false;
    char *end;
    long first = strtol(s + 1 + (s[1] == '['), &end, 10), last = first;
    if (*end == ':') last = strtol(end + 1, &end, 10);
    o->kind = vector ? OPERAND_VECTOR : OPERAND_SCALAR;
    o->reg = (int16_t)(first + (*s == 'a' ? AGPR : 0));
    o->words = (int16_t)(last - first + 1);
    return first >= 0 && last >= first && o->reg + o->words <= (vector ? VECTOR_REGS : VCC);
}

static bool parse_named(const char *s, Operand *o)
{
    static const struct {
        const char *name;
        int reg, words;
    } named[] = {
        { "vcc", VCC, 2 },          { "vcc_lo", VCC, 1 },       { "vcc_hi", VCC + 1, 1 },
        { "exec", EXEC, 2 },        { "exec_lo", EXEC, 1 },     { "m0", M0, 1 },
        { "exec_hi", EXEC + 1, 1 }, { "flat_scratch", 102, 2 },
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(s, named[i].name) != 0) continue;
        o->kind = OPERAND_SCALAR;
        o->reg = (int16_t)named[i].reg;
        o->words = (int16_t)named[i].words;
        return true;
    }
    if (strcmp(s, "off") == 0) return o->kind = OPERAND_OFF, true;
    if (strcmp(s, "scc") == 0 || strcmp(s, "src_scc") == 0) return o->kind = OPERAND_SCC, true;
    return false;
}

static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* The few floats that an instruction can hold are exact in 16 bits, but for 1 / 2 pi. */
static uint64_t float_constant(double v, char type)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    if (type == 'd' || type == 'q') return u;
    if (type != 'h' && type != 'w' && type != 'p') return f32_bits((float)v);
    if (v > 0.159 && v < 0.1592) return 0x3118;
    if (v == 0) return u >> 48;
    int exponent = (int)(u >> 52 & 2047) - 1023 + 15;
    return u >> 63 << 15 | (uint64_t)exponent << 10 | (u >> 42 & 1023);
}

/* hwreg(HW_REG_MODE, 0, 4): a register, the first bit, how many; as the machine code has them. */
static bool hwreg_of(const char *s, Operand *o)
{
    static const struct {
        const char *name;
        int id;
    } known[] = { { "MODE", HWREG_MODE }, { "HW_ID", HWREG_ID }, { "XCC_ID", HWREG_XCC } };
    char name[32] = "";
    unsigned first = 0, bits = 32;
    (void)sscanf(s, "hwreg(HW_REG_%31[A-Z_], %u, %u)", name, &first, &bits);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        o->value = (uint64_t)known[i].id | first << 6 | (bits - 1) << 11;
        return true;
    }
    return false;
}

static bool parse_constant(const char *s, Operand *o)
{
    char *end;
    o->kind = OPERAND_CONST;
    if (starts(s, "hwreg(")) return hwreg_of(s, o);
    if (strcmp(s, "src_shared_base") == 0 || strcmp(s, "src_private_base") == 0) {
        o->value = (uint64_t)(s[4] == 's' ? LDS_APERTURE : SCRATCH_APERTURE) << 32;
        return true;
    }
    if (strchr(s, '.') != NULL && !starts(s, "0x")) {
        o->value = float_constant(strtod(s, &end), o->type);
        return *end == '\0';
    }
    bool literal = starts(s, "0x");
    o->value = (uint64_t)strtoll(s, &end, 0);
    if (end == s || *end != '\0') return false;
    if (o->type == 'd' && literal) o->value <<= 32; /* a literal of an f64 is its high half */
    if (strchr("ufpmPx", o->type) != NULL) o->value &= 0xffffffff;
    if (o->type == 'h' || o->type == 'w') o->value &= 0xffff;
    return true;
}

/* -v1, |v1|, sext(v1), 1.0 */
static bool parse_operand(char *s, Operand *o)
{
    size_t n = strlen(s);
    if (*s == '-' && !isdigit((unsigned char)s[1])) {
        o->negate = true;
        s++, n--;
    }
    if (n > 2 && *s == '|' && s[n - 1] == '|') {
        o->absolute = true;
        s[n - 1] = '\0';
        s++;
    } else if (starts(s, "sext(") && s[n - 1] == ')') {
        o->sign_extend = true;
        s[n - 1] = '\0';
        s += 5;
    }
    return parse_numbered(s, o) || parse_named(s, o) || parse_constant(s, o);
}

/* offset:16 and the like: the number behind the colon. Rows of [1,0,1] become bits. */
static int64_t number_of(const char *s) { return strtoll(strchr(s, ':') + 1, NULL, 0); }

static int list_of(const char *s, int bits)
{
    int v = 0, at = 0;
    for (s = strchr(s, '[') + 1; *s != '\0' && *s != ']'; s++) {
        if (!isdigit((unsigned char)*s)) continue;
        v |= (*s - '0') << at;
        at += bits;
    }
    return v;
}

static void part_of(const char *s, int *part, int *index)
{
    s = strchr(s, ':') + 1;
    *part = starts(s, "BYTE_") ? PART_BYTE : starts(s, "WORD_") ? PART_WORD : PART_ALL;
    *index = *part == PART_ALL ? 0 : s[5] - '0';
}

static bool parse_dpp(const char *s, Modifiers *m)
{
    static const struct {
        const char *name;
        DppKind kind;
    } kinds[] = {
        { "row_shl:", DPP_ROW_SHL },           { "row_shr:", DPP_ROW_SHR },
        { "row_ror:", DPP_ROW_ROR },           { "wave_shl:", DPP_WAVE_SHL },
        { "wave_shr:", DPP_WAVE_SHR },         { "wave_rol:", DPP_WAVE_ROL },
        { "wave_ror:", DPP_WAVE_ROR },         { "row_bcast:", DPP_ROW_BCAST },
        { "row_newbcast:", DPP_ROW_NEWBCAST },
    };
    if (starts(s, "quad_perm:")) {
        m->dpp = DPP_QUAD_PERM;
        m->dpp_by = list_of(s, 2);
        return true;
    }
    if (strcmp(s, "row_mirror") == 0) return m->dpp = DPP_ROW_MIRROR, true;
    if (strcmp(s, "row_half_mirror") == 0) return m->dpp = DPP_ROW_HALF_MIRROR, true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!starts(s, kinds[i].name)) continue;
        m->dpp = kinds[i].kind;
        m->dpp_by = (int)number_of(s);
        return true;
    }
    return false;
}

static bool parse_flag(const char *s, Modifiers *m)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        { "sc0", &m->sc0 },     { "sc1", &m->sc1 },     { "offen", &m->offen },
        { "idxen", &m->idxen }, { "clamp", &m->clamp }, { "lds", &m->lds },
    };
    if (strcmp(s, "nt") == 0) return true; /* a hint for caches */
    if (starts(s, "bound_ctrl:")) return m->bound_ctrl = true;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(s, flags[i].name) == 0) return *flags[i].flag = true;
    return false;
}

/* SDWA: which parts of the operands and of the result. */
static bool parse_sdwa(const char *s, Op *o)
{
    Modifiers *m = &o->with;
    int part, index;
    if (starts(s, "dst_sel:")) return part_of(s, &m->dst_part, &m->dst_index), true;
    if (strcmp(s, "dst_unused:UNUSED_PAD") == 0) return true;
    if (strcmp(s, "dst_unused:UNUSED_PRESERVE") == 0) return m->dst_preserve = true;
    if (strcmp(s, "dst_unused:UNUSED_SEXT") == 0) return m->dst_sign_extend = true;
    if (!starts(s, "src0_sel:") && !starts(s, "src1_sel:")) return false;
    part_of(s, &part, &index);
    o->src[s[3] - '0'].part = (uint8_t)part;
    o->src[s[3] - '0'].part_index = (uint8_t)index;
    return true;
}

static bool parse_modifier(const char *s, Op *o, uint32_t encoding)
{
    Modifiers *m = &o->with;
    const struct {
        const char *name;
        int *to;
    } lists[] = { { "op_sel:", &m->op_sel },
                  { "op_sel_hi:", &m->op_sel_hi },
                  { "neg_lo:", &m->neg_lo },
                  { "neg_hi:", &m->neg_hi } };
    if (starts(s, "offset:swizzle(")) return m->offset = encoding & 0xffff, true;
    if (starts(s, "offset:") || starts(s, "offset0:")) return m->offset = number_of(s), true;
    if (starts(s, "offset1:")) return m->offset1 = number_of(s), true;
    if (starts(s, "row_mask:")) return m->row_mask = (int)number_of(s), true;
    if (starts(s, "bank_mask:")) return m->bank_mask = (int)number_of(s), true;
    if (starts(s, "mul:")) return m->omod = (int)number_of(s), true;
    if (strcmp(s, "div:2") == 0) return m->omod = -2, true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (starts(s, lists[i].name)) return *lists[i].to = list_of(s, 1), true;
    return parse_flag(s, m) || parse_dpp(s, m) || parse_sdwa(s, o);
}

/* The next piece of a line: up to a comma or a space outside brackets. */
static char *next_piece(char **rest, bool *comma)
{
    char *s = *rest, *start;
    int depth = 0;
    while (*s == ' ' || *s == '\t') s++;
    if (*s == '\0') return NULL;
    for (start = s; *s != '\0'; s++) {
        if (*s == '[' || *s == '(') depth++;
        if (*s == ']' || *s == ')') depth--;
        if (depth == 0 && (*s == ',' || *s == ' ')) break;
    }
    *comma = *s == ',';
    *rest = *s == '\0' ? s : s + 1;
    *s = '\0';
    return start;
}

static Operand *next_operand(Op *o, const char **types)
{
    if (**types == '=') ++*types;
    if (**types == '\0' || **types == 'D' || **types == 'V') return NULL;
    bool dst = strchr(*types, '=') != NULL;
    if (!dst && o->n_src >= SOURCES) return NULL;
    Operand *to = dst ? &o->dst[o->n_dst++] : &o->src[o->n_src++];
    to->type = *(*types)++;
    return to;
}

/* What the text leaves out: the old value of the result, vcc. */
static void implicit_operands(Op *o, const char *types)
{
    if (*types == '=') types++;
    for (; *types == 'D' || *types == 'V'; types++) {
        Operand *to = &o->src[o->n_src++];
        if (*types == 'D')
            *to = o->dst[0];
        else
            *to = (Operand){ .kind = OPERAND_SCALAR, .type = 'm', .reg = VCC, .words = 2 };
    }
}

static bool parse_operands(Op *o, char *s, uint32_t encoding)
{
    const char *types = o->row->types;
    bool comma = true, more;
    for (char *piece; (piece = next_piece(&s, &more)) != NULL; comma = more) {
        Operand *to = comma ? next_operand(o, &types) : NULL;
        if (to != NULL ? !parse_operand(piece, to) : !parse_modifier(piece, o, encoding))
            return false;
    }
    /* an atomic without a returned value, or a store: the table says how many there may be */
    implicit_operands(o, types);
    return true;
}

static void parse_waits(Op *o, const char *s)
{
    const char *vm = strstr(s, "vmcnt("), *lgkm = strstr(s, "lgkmcnt(");
    if (vm != NULL) o->with.vmcnt = (int)strtol(vm + 6, NULL, 10);
    if (lgkm != NULL) o->with.lgkmcnt = (int)strtol(lgkm + 8, NULL, 10);
    if (strcmp(s, "0") == 0) o->with.vmcnt = o->with.lgkmcnt = 0;
}

/* "\tv_mov_b32_e32 v1, 0   // 000000001C00: 7E020280 <name+0x8>". The part before the comment stays
 * as the instruction's text; a copy of it is cut into pieces. */
static void decode_line(CodeObject *c, const Names *names, char *s, int line, uint64_t *address)
{
    char copy[512];
    Op *o = &c->ops[c->n_ops++];
    uint32_t encoding = 0;
    char *note = strstr(s, "//");
    if (note != NULL) {
        *address = strtoull(note + 2, NULL, 16);
        char *colon = strchr(note, ':');
        if (colon != NULL) encoding = (uint32_t)strtoul(colon + 1, NULL, 16);
        *note = '\0';
    }
    for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--) s[n - 1] = '\0';
    while (isspace((unsigned char)*s)) s++;
    *o = (Op){ .line = line,
               .address = *address,
               .target = -1,
               .with = {
                   .op_sel_hi = 7, .row_mask = 15, .bank_mask = 15, .vmcnt = -1, .lgkmcnt = -1 } };
    o->text = s;
    *address += 4;
    if (strlen(s) >= sizeof copy) return;
    memcpy(copy, s, strlen(s) + 1);
    char *operands = copy + strcspn(copy, " \t");
    if (*operands != '\0') *operands++ = '\0';
    find_row(names, copy, o);
    if (o->row == NULL) return; /* an error when it is reached, not before */
    if (strcmp(copy, "s_waitcnt") == 0)
        parse_waits(o, operands);
    else if (!parse_operands(o, operands, encoding))
        o->row = NULL;
}

int op_at(const CodeObject *c, uint64_t address)
{
    int64_t low = 0, high = c->n_ops;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (c->ops[mid].address < address)
            low = mid + 1;
        else
            high = mid;
    }
    return low < c->n_ops && c->ops[low].address == address ? (int)low : -1;
}

static void find_targets(CodeObject *c)
{
    for (int64_t i = 0; i < c->n_ops; i++) {
        Op *o = &c->ops[i];
        if (o->row == NULL || strcmp(o->row->types, "=j") != 0) continue;
        o->target = op_at(c, o->address + 4 + (uint64_t)((int64_t)(int16_t)o->src[0].value * 4));
    }
}

/* Kernels whose code begins at `address` begin with the next instruction. */
static void note_entry(CodeObject *c, uint64_t address)
{
    for (int64_t k = 0; k < c->n_kernels; k++)
        if (c->kernels[k].entry == address) c->kernels[k].first = (int)c->n_ops;
}

Status decode_text(CodeObject *c, char *text)
{
    uint64_t address = 0;
    int number = 0;
    int64_t lines = 1;
    Names *names;
    for (const char *s = text; (s = strchr(s, '\n')) != NULL; s++) lines++;
    TRY(make_names(c->arena, &names));
    TRY(ARENA_NEW(c->arena, lines, &c->ops));
    for (char *next, *s = text; s != NULL; s = next) {
        next = strchr(s, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        if (isxdigit((unsigned char)*s) && strstr(s, ">:") != NULL)
            note_entry(c, address = strtoull(s, NULL, 16));
        else if ((*s == '\t' || *s == ' ') && isalpha((unsigned char)s[strspn(s, " \t")]))
            decode_line(c, names, s, number, &address);
    }
    find_targets(c);
    return OK;
}
