/* machine: what the files of gfxrun share: a decoded instruction, the state of a wave, and how
 * operands are read and written. */
#ifndef GFXRUN_MACHINE_H
#define GFXRUN_MACHINE_H

#include "gfxrun/gfxrun.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    LANES = 64,
    AGPR = 256, /* accumulation registers follow the vector registers */
    VECTOR_REGS = 512,
    SCALAR_REGS = 128,
    FIRST_SCALAR = VECTOR_REGS, /* in a numbering of all registers, with two more */
    REG_SCC = VECTOR_REGS + SCALAR_REGS,
    ALL_REGS,
    REG_MEMORY, /* LDS or scratch memory: only as an origin */
    VCC = 106,
    M0 = 124,
    EXEC = 126,
    SOURCES = 4,
    WAVES_MAX = 16, /* 1024 work-items */
    LDS_BYTES = 65536,
};

/* High halves of the addresses at which flat instructions see LDS and scratch memory. No address of
 * the host's programs has them. */
static const uint32_t LDS_APERTURE = 0x00100000, SCRATCH_APERTURE = 0x00200000;

typedef enum OperandKind {
    OPERAND_NONE,
    OPERAND_VECTOR,
    OPERAND_SCALAR,
    OPERAND_CONST,
    OPERAND_SCC,
    OPERAND_OFF, /* `off`: no register */
} OperandKind;

/* Which part of a register SDWA or op_sel selects. */
typedef enum Part { PART_ALL, PART_BYTE, PART_WORD } Part;

typedef struct Operand {
    uint8_t kind; /* OperandKind */
    char type;    /* a letter of Row.types */
    bool negate : 1, absolute : 1, sign_extend : 1;
    bool modified : 1; /* by these, or because of its type */
    uint8_t part : 2, part_index : 2;
    uint8_t words;
    int16_t reg;
    uint8_t type_words; /* registers that the type needs; x: 1 */
    uint8_t read_words; /* a bit for each of them that is read: of pairs, op_sel may choose one */
    uint64_t value;     /* of a constant, as this instruction sees it */
} Operand;

typedef enum DppKind {
    DPP_NONE,
    DPP_QUAD_PERM,
    DPP_ROW_SHL,
    DPP_ROW_SHR,
    DPP_ROW_ROR,
    DPP_WAVE_SHL,
    DPP_WAVE_SHR,
    DPP_WAVE_ROL,
    DPP_WAVE_ROR,
    DPP_ROW_MIRROR,
    DPP_ROW_HALF_MIRROR,
    DPP_ROW_BCAST,
    DPP_ROW_NEWBCAST,
} DppKind;

typedef struct Modifiers {
    int32_t offset, offset1;
    uint8_t dpp, dpp_by, row_mask, bank_mask;  /* dpp_by: the distance, or four lanes of two bits */
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi; /* a bit an operand */
    uint8_t dst_part, dst_index;
    int8_t omod; /* 2, 4: times; -2: half */
    bool bound_ctrl, clamp, sc0, sc1, offen, idxen, dst_preserve, dst_sign_extend, lds;
    int8_t vmcnt, lgkmcnt; /* of s_waitcnt; -1: any */
} Modifiers;

typedef struct Wave Wave;
typedef struct Op Op;

typedef bool Run(Wave *w, const Op *o);

/* What 64 lanes compute: a result, and a 0 or 1 of instructions with a second result. */
typedef struct Results {
    uint64_t d[LANES], d2[LANES];
} Results;

typedef void LaneFn(Results *restrict r, const uint64_t *restrict a, const uint64_t *restrict b,
                    const uint64_t *restrict c);
typedef uint64_t ScalarFn(uint64_t a, uint64_t b, bool *scc);

/*
 * One instruction of the tables. `types` has a letter an operand in the order of the text, results
 * before `=`:
 *   u q   integers of 32 and 64 bits              f d h   floats of 32, 64 and 16 bits
 *   w     an integer of 16 bits                   m       a mask with a bit a lane
 *   p P   pairs of 16 and of 32 bits              x       registers, as many as the text says
 *   i     a number, such as s_nop's
 *   D V   not in the text: the result's old value, vcc
 */
typedef struct Row {
    const char *name, *types;
    Run *run;
    LaneFn *lane;
    ScalarFn *scalar;
    int a, b, c; /* what run needs to know: bytes, flags, a shape */
} Row;

enum {
    KEEPS_REST = 1
}; /* Row.c: a result of 16 bits leaves the other half of the register alone */

/* Registers of s_getreg that are modelled: rounding of floats, the wave's number, the chip's part (0). */
enum { HWREG_MODE = 1, HWREG_ID = 4, HWREG_XCC = 20 };

struct Op {
    const Row *row;
    uint64_t address;
    int line;
    int target; /* of a branch: an index */
    uint8_t n_dst, n_src;
    bool visible; /* what it reads acts on more than registers: it must be defined */
    Operand dst[2], src[SOURCES];
    Modifiers with;
};

/* A word of LDS. Serials are those of the accessing wave's instructions that lgkmcnt counts. */
typedef struct LdsWord {
    uint32_t write_serial, read_serial[2];
    uint8_t writer, reader[2];
    uint8_t defined, written, read[2]; /* a bit a byte; defined: ever written */
    bool atomic;                       /* the write was one */
} LdsWord;

/* Instructions that a counter counts, by serial number from 1. Those up to `done` have finished.
 * `unordered` is the last that may finish out of order: then only a wait for 0 says anything. */
typedef struct Counter {
    uint32_t issued, done, unordered;
} Counter;

/* The addresses of an instruction's last access to LDS, and what it cost. */
typedef struct Pattern {
    uint32_t at[LANES];
    uint64_t lanes;
    int bytes, cycles;
    bool read;
} Pattern;
enum { PATTERNS = 64 };

typedef struct Launch Launch;

typedef struct Group {
    Launch *launch;
    int n_waves;
    unsigned id[3];
    uint8_t *lds;
    uint8_t *lds_undefined; /* a bit for each of LDS, from the first such store on */
    bool has_undefined;
    LdsWord *lds_words;
    unsigned lds_bytes;
    Wave *waves;
} Group;

typedef enum WaveState { WAVE_RUNS, WAVE_AT_BARRIER, WAVE_ENDED } WaveState;

/* Where undefined bits of a register come from: the instruction that first read them, of which
 * register. Line 0: from this register itself, which was not written. */
typedef struct Origin {
    int line;
    int16_t reg;
} Origin;

/* How often the instruction runs: see undefined.c. In trials undefined sources are let through. */
typedef enum Turn { TURN_ONLY, TURN_TRIAL, TURN_LAST } Turn;

struct Wave {
    uint64_t v_defined[VECTOR_REGS]; /* lanes of which all bits are */
    uint64_t v_partly[VECTOR_REGS];  /* of the others: those with v_undefined; else no bit is */
    uint32_t v_vm[VECTOR_REGS], v_lgkm[VECTOR_REGS]; /* serials of the loads that fill them */
    uint32_t s[SCALAR_REGS];
    uint32_t s_undefined[SCALAR_REGS]; /* bits */
    uint32_t s_lgkm[SCALAR_REGS];
    Origin from[ALL_REGS];
    bool scc, scc_undefined;
    Turn turn;
    int undefined_reg, undefined_lane; /* an instruction has read this; -1: all was defined */
    WaveState state;
    int at, number;
    Counter vm, lgkm;
    uint32_t
        before[WAVES_MAX]; /* each wave's last access to LDS that surely came before this wave's */
    uint8_t *scratch;      /* private memory: lane by lane */
    uint8_t *scratch_undefined;
    Group *group;
    int fault_lane; /* -1: of the whole wave */
    char fault[256];
    uint32_t v[VECTOR_REGS][LANES]; /* last: what is before is cleared for a new wave */
    uint32_t v_undefined[VECTOR_REGS][LANES];
};

/* Decoded instructions, by their addresses. */
typedef struct Program {
    Op *ops;
    int n, room;
} Program;

typedef struct Kernel {
    const char *name;
    uint64_t entry, end; /* addresses in the ELF file */
    Program program;     /* from the kernel's first run on; before there is only room */
    unsigned lds_bytes, scratch_bytes, args_bytes;
    uint32_t rsrc1, rsrc2, properties, preload;
    int first_argument, n_arguments;
} Kernel;

typedef struct Argument {
    const char *hidden; /* what the runtime adds; NULL: an argument of the launch */
    unsigned offset, bytes;
} Argument;

typedef struct Names Names;
struct CodeObject {
    Arena *arena;
    const char *text; /* of gfx_load_text; NULL: the file's */
    const char *file;
    size_t file_bytes;
    uint64_t text_from, text_to; /* addresses of all instructions */
    bool has_functions;          /* other than kernels: each kernel's program is all of the text */
    pthread_mutex_t *lock;       /* of the programs */
    Names *names;
    uint8_t *image; /* as loaded: address 0 of the file is image[0] */
    size_t image_bytes;
    Kernel *kernels;
    int64_t n_kernels, kernel_room;
    Argument *arguments;
    int64_t n_arguments, argument_room;
};

/* What a kernel may ask about its launch (HSA's hsa_kernel_dispatch_packet_t). */
typedef struct Packet {
    uint16_t header, dimensions, block[3], reserved;
    uint32_t items[3]; /* work-items of the grid */
    uint32_t scratch_bytes, lds_bytes;
    uint64_t kernel, args, reserved2, signal;
} Packet;

struct Launch {
    const CodeObject *code;
    const Kernel *kernel;
    const GfxLaunch *request;
    Arena *scratch;
    uint8_t *args;
    const GfxBuffer *buffers; /* by their addresses, none over another */
    int n_buffers;
    const GfxBuffer *last_buffer; /* the one of the last access, tried first */
    Packet packet;
    GfxBuffer own[3];           /* code object, arguments, packet: only the first is written */
    Pattern patterns[PATTERNS]; /* of instructions whose numbers end in the same bits */
    GfxCounts counts;
};

/* decode.c */
Status make_names(Arena *a, Names **out);
Status decode_text(const Names *names, const char *text, Program *p);
/* The instruction at an address; -1: there is none. */
int op_at(const Program *p, uint64_t address);

/* notes.c */
Status read_notes(CodeObject *c, const uint8_t *note, size_t bytes);

/* disassemble.c */
Status decode_kernel(const CodeObject *c, Kernel *k, Arena *scratch);
/* The instruction's text, for messages. */
void text_of(const Launch *l, const Op *o, char *to, size_t bytes);

/* load.c */
Status read_all(Arena *a, FILE *f, char **out, size_t *bytes);
Kernel *find_kernel(const CodeObject *c, const char *name);

/* operand.c. What returns bool has said why in w->fault when it is false. */
bool fault(Wave *w, int lane, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* as FAIL: it shows that fault returns false */
#define fault(...) ((void)fault(__VA_ARGS__), false)
#endif
static inline uint64_t exec_mask(const Wave *w)
{
    return w->s[EXEC] | (uint64_t)w->s[EXEC + 1] << 32;
}
bool note_undefined(Wave *w, int reg, int lane); /* false; undefined.c */
const char *vector_name(char *to, size_t bytes, int reg);
const char *scalar_name(char *to, size_t bytes, int reg);
/* vector_ready: waited for and defined. False without a fault: undefined, see undefined.c. */
bool vector_ready(Wave *w, int reg, uint64_t lanes);
bool vector_unused(Wave *w, int reg);
static inline bool scc_ready(Wave *w)
{
    return !w->scc_undefined || w->turn != TURN_ONLY || note_undefined(w, REG_SCC, -1);
}
/* See undefined.c: what a comparison gives in a trial depends on every bit. */
static inline bool compared_in_trial(uint64_t a, uint64_t b)
{
    return (a * 0x9e3779b97f4a7c15 + (b ^ b >> 29) * 0xbf58476d1ce4e5b9) >> 63;
}
bool read_scalar(Wave *w, const Operand *o, uint64_t *out);
bool scalar_word(Wave *w, int reg, uint32_t *out);
void write_scalar_reg(Wave *w, int reg, int words, uint64_t v);
bool write_scalar(Wave *w, const Operand *o, uint64_t v);
bool fetch(Wave *w, const Op *o, int i, uint64_t lanes, uint64_t out[LANES]);
void store_lanes(Wave *w, int reg, int words, uint64_t lanes, const uint64_t v[LANES]);

/* memory.c */
Status order_buffers(Launch *l, Arena *scratch);

/* Loads: flags of Row.b; see there. */
typedef enum Atomic {
    ATOMIC_ADD,
    ATOMIC_SUB,
    ATOMIC_SWAP,
    ATOMIC_CMPSWAP,
    ATOMIC_UMIN,
    ATOMIC_UMAX,
    ATOMIC_SMIN,
    ATOMIC_SMAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_INC, /* wraps to 0 at the operand */
    ATOMIC_DEC,
    ATOMIC_ADD_F,
    ATOMIC_MIN_F,
    ATOMIC_MAX_F,
    ATOMIC_PK_ADD_F16,
    ATOMIC_PK_ADD_BF16,
} Atomic;
uint64_t atomic_result(Atomic what, int bytes, uint64_t old, uint64_t data, uint64_t compare);
enum { WIDEN_SIGN = 1, HALF_LOW = 2, HALF_HIGH = 4 }; /* of loads and stores of 8 and 16 bits */
void load_part(Wave *w, int reg, int bytes, int flags, int lane, const uint8_t *from);
void store_lane(const Wave *w, const Op *o, int reg, int lane, uint8_t *to);
bool vector_words(Wave *w, const Operand *o, int words, uint64_t lanes);
/* Without the test that they are defined; `undefined` are the lanes that are not. */
bool vector_data(Wave *w, const Operand *o, int words, uint64_t lanes, uint64_t *undefined);
static inline uint32_t sign_extended(uint32_t v, int bits)
{
    return (uint32_t)((int32_t)(v << (32 - bits)) >> (32 - bits));
}

/* undefined.c */
uint32_t undefined_bits(const Wave *w, int reg, int lane);
void set_undefined(Wave *w, int reg, int lane, uint32_t bits);
/* What to do about an instruction after note_undefined: find which bits of its results are undefined, or
 * an error if it is visible. */
bool run_undefined(Wave *w, const Op *o);
bool undefined_fault(Wave *w);
void copy_undefined(Wave *w, const Op *o, int from, int to, uint64_t lanes);
void begin_undefined(Group *g); /* LDS may hold undefined bits from now on */
static inline uint8_t *lds_undefined_at(const Group *g, const uint8_t *at)
{
    return g->has_undefined ? g->lds_undefined + (at - g->lds) : NULL;
}
/* A lane's bits to memory and from it, with those that are undefined. NULL: memory that has none. */
bool store_undefined(Wave *w, const Op *o, int reg, int lane, uint8_t *to);
void load_undefined(Wave *w, const Op *o, int reg, int lane, const uint8_t *from);

/* Puts a lane's bytes into its registers. Less than a word is widened, or becomes one half. True: all
 * bits there are defined now; false: load_undefined has noted which. */
static inline bool load_lane(Wave *w, const Op *o, int reg, int lane, const uint8_t *from,
                             const uint8_t *undefined)
{
    int bytes = o->row->a, flags = o->row->b;
    if (bytes < 4) load_part(w, reg, bytes, flags, lane, from);
    for (int i = 0; i < bytes / 4; i++) memcpy(&w->v[reg + i][lane], from + 4 * (size_t)i, 4);
    bool whole = !(flags & (HALF_LOW | HALF_HIGH)) || (w->v_defined[reg] >> lane & 1);
    if (undefined == NULL && whole) return true;
    load_undefined(w, o, reg, lane, undefined);
    return false;
}

/* lds.c: the place of bytes in LDS, if this access is right. */
typedef enum LdsAccess { LDS_READ, LDS_WRITE, LDS_ATOMIC } LdsAccess;
bool lds_at(Wave *w, int lane, uint64_t address, int bytes, LdsAccess access, uint8_t **out);

/* banks.c: cycles that the bank conflicts of an access cost. */
int bank_conflicts(Pattern *last, const uint32_t at[LANES], uint64_t lanes, int bytes, bool read);

/* Tables end with a row without a name. */
extern const Row control_rows[], scalar_rows[], integer_rows[], float_rows[], compare_rows[],
    lane_rows[], exchange_rows[], memory_rows[], lds_rows[], matrix_rows[];

bool run_lanes(Wave *w, const Op *o);   /* LaneFn */
bool run_compare(Wave *w, const Op *o); /* LaneFn into a mask */

#endif
