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
    { control_rows, true },   { scalar_rows, false },  { integer_rows, false },
    { float_rows, false },    { compare_rows, false }, { lane_rows, false },
    { exchange_rows, false }, { memory_rows, true },   { lds_rows, true },
    { matrix_rows, false },
};

/* Names of all rows by their hash. A place that is taken sends to the next. */
enum { PLACES = 4096 };
struct Names {
    const Row *row[PLACES];
    bool visible[PLACES];
};

static uint32_t hash_of(const char *name, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h;
}

Status make_names(Arena *a, Names **out)
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
        if (strncmp(names->row[at]->name, name, n) != 0 || names->row[at]->name[n] != '\0')
            continue;
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
    o->words = (uint8_t)(last - first + 1);
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
        o->words = (uint8_t)named[i].words;
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
    } known[] = {
        { "hwreg(HW_REG_MODE", HWREG_MODE },
        { "hwreg(HW_REG_HW_ID", HWREG_ID },
        { "hwreg(HW_REG_XCC_ID", HWREG_XCC },
    };
    size_t n = strcspn(s, ",)");
    char *end;
    uint64_t first = 0, bits = 32;
    if (s[n] == ',') {
        first = strtoul(s + n + 1, &end, 10);
        bits = strtoul(end + strspn(end, ", "), NULL, 10);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != n || strncmp(s, known[i].name, n) != 0) continue;
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
static int number_of(const char *s) { return (int)strtol(strchr(s, ':') + 1, NULL, 0); }

static uint8_t list_of(const char *s, int bits)
{
    int v = 0, at = 0;
    for (s = strchr(s, '[') + 1; *s != '\0' && *s != ']'; s++) {
        if (!isdigit((unsigned char)*s)) continue;
        v |= (*s - '0') << at;
        at += bits;
    }
    return (uint8_t)v;
}

static void part_of(const char *s, uint8_t *part, uint8_t *index)
{
    s = strchr(s, ':') + 1;
    *part = starts(s, "BYTE_") ? PART_BYTE : starts(s, "WORD_") ? PART_WORD : PART_ALL;
    *index = (uint8_t)(*part == PART_ALL ? 0 : s[5] - '0');
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
        m->dpp_by = (uint8_t)number_of(s);
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
    uint8_t part, index;
    if (starts(s, "dst_sel:")) return part_of(s, &m->dst_part, &m->dst_index), true;
    if (strcmp(s, "dst_unused:UNUSED_PAD") == 0) return true;
    if (strcmp(s, "dst_unused:UNUSED_PRESERVE") == 0) return m->dst_preserve = true;
    if (strcmp(s, "dst_unused:UNUSED_SEXT") == 0) return m->dst_sign_extend = true;
    if (!starts(s, "src0_sel:") && !starts(s, "src1_sel:")) return false;
    part_of(s, &part, &index);
    o->src[s[3] - '0'].part = part & 3;
    o->src[s[3] - '0'].part_index = index & 3;
    return true;
}

static bool parse_modifier(const char *s, Op *o, uint32_t encoding)
{
    Modifiers *m = &o->with;
    const struct {
        const char *name;
        uint8_t *to;
    } lists[] = { { "op_sel:", &m->op_sel },
                  { "op_sel_hi:", &m->op_sel_hi },
                  { "neg_lo:", &m->neg_lo },
                  { "neg_hi:", &m->neg_hi } };
    if (starts(s, "offset:swizzle(")) return m->offset = (int32_t)(encoding & 0xffff), true;
    if (starts(s, "offset:") || starts(s, "offset0:")) return m->offset = number_of(s), true;
    if (starts(s, "offset1:")) return m->offset1 = number_of(s), true;
    if (starts(s, "row_mask:")) return m->row_mask = (uint8_t)number_of(s), true;
    if (starts(s, "bank_mask:")) return m->bank_mask = (uint8_t)number_of(s), true;
    if (starts(s, "mul:")) return m->omod = (int8_t)number_of(s), true;
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

static void note_type(Operand *o, int op_sel, int op_sel_hi, int neg)
{
    bool pair = o->type == 'p' || o->type == 'P';
    bool moved = pair && (op_sel != 0 || op_sel_hi == 0);
    o->type_words = strchr("qdPm", o->type) != NULL ? 2 : 1;
    o->modified = o->negate || o->absolute || o->part != PART_ALL || neg != 0 || moved ||
                  o->type == 'h' || o->type == 'w';
    o->read_words = o->type_words == 2 ? 3 : 1;
    if (o->type == 'P') o->read_words = (uint8_t)(1 << op_sel | 1 << op_sel_hi);
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
    const Modifiers *m = &o->with;
    for (int i = 0; i < o->n_dst; i++) note_type(&o->dst[i], 0, 1, 0);
    for (int i = 0; i < o->n_src; i++)
        note_type(&o->src[i], m->op_sel >> i & 1, m->op_sel_hi >> i & 1,
                  (m->neg_lo | m->neg_hi) >> i & 1);
    return true;
}

static void parse_waits(Op *o, const char *s)
{
    const char *vm = strstr(s, "vmcnt("), *lgkm = strstr(s, "lgkmcnt(");
    if (vm != NULL) o->with.vmcnt = (int8_t)strtol(vm + 6, NULL, 10);
    if (lgkm != NULL) o->with.lgkmcnt = (int8_t)strtol(lgkm + 8, NULL, 10);
    if (strcmp(s, "0") == 0) o->with.vmcnt = o->with.lgkmcnt = 0;
}

/* "v_mov_b32_e32 v1, 0   // 000000001C00: 7E020280 <name+0x8>" */
static void decode_line(Op *o, const Names *names, char *s, int line, uint64_t *address)
{
    uint32_t encoding = 0;
    char *note = strstr(s, "//");
    if (note != NULL) {
        *address = strtoull(note + 2, NULL, 16);
        char *colon = strchr(note, ':');
        if (colon != NULL) encoding = (uint32_t)strtoul(colon + 1, NULL, 16);
        *note = '\0';
    }
    for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--) s[n - 1] = '\0';
    *o = (Op){ .line = line,
               .address = *address,
               .target = -1,
               .with = {
                   .op_sel_hi = 7, .row_mask = 15, .bank_mask = 15, .vmcnt = -1, .lgkmcnt = -1 } };
    *address += 4;
    char *operands = s + strcspn(s, " \t");
    if (*operands != '\0') *operands++ = '\0';
    find_row(names, s, o);
    if (o->row == NULL) return; /* an error when it is reached, not before */
    if (strcmp(s, "s_waitcnt") == 0)
        parse_waits(o, operands);
    else if (!parse_operands(o, operands, encoding))
        o->row = NULL;
}

int op_at(const Program *p, uint64_t address)
{
    int low = 0, high = p->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (p->ops[mid].address < address)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->n && p->ops[low].address == address ? low : -1;
}

static void find_targets(Program *p)
{
    for (int i = 0; i < p->n; i++) {
        Op *o = &p->ops[i];
        if (o->row == NULL || strcmp(o->row->types, "=j") != 0) continue;
        o->target = op_at(p, o->address + 4 + (uint64_t)((int64_t)(int16_t)o->src[0].value * 4));
    }
}

Status decode_text(const Names *names, const char *text, Program *p)
{
    uint64_t address = 0;
    int number = 0;
    p->n = 0;
    for (const char *next, *s = text; s != NULL; s = next) {
        char line[512];
        next = strchr(s, '\n');
        size_t n = next != NULL ? (size_t)(next - s) : strlen(s);
        if (next != NULL) next++;
        number++;
        if (n >= sizeof line) n = sizeof line - 1; /* a long name behind a branch */
        memcpy(line, s, n);
        line[n] = '\0';
        if (isxdigit((unsigned char)*line) && strstr(line, ">:") != NULL) {
            address = strtoull(line, NULL, 16);
            continue;
        }
        char *start = line + strspn(line, " \t");
        if (start == line || !isalpha((unsigned char)*start)) continue;
        if (p->n == p->room)
            return FAIL(ERR_FORMAT, "the text has more than the %d instructions expected", p->room);
        decode_line(&p->ops[p->n++], names, start, number, &address);
    }
    find_targets(p);
    return OK;
}
