# make              the release build: build/switchyard
# ./test.sh         what finds most in a short time: tests, what parses under sanitizers, lints, GPU code as PTX
# ./test.sh more    the rest of what a change must pass; .ci/run runs both
# make test-long    what takes longer: before an issue is closed
# make test         unit, op, schedule, mesh, GPU and system tests in release; last line: N passed, M failed, K skipped
# make CONFIG=asan PARSE=1 test-parse test-parse-fuzz  what parses, under address+undefined; a quarter of the build
# make asan | tsan  unit, op, schedule and mesh tests under address+undefined | comm and mesh tests under thread
# make hostile      unit, op, schedule and mesh tests with small limits and failing allocations
# make ISA=v3 test  the same with AVX2 alone, in a build that has no other CPU ops
# make test-native  products, trajectories and meshes with the best instruction set of this processor, if it has more than
#                   AVX2; the guides
# make test-mpi     ranks as processes of mpirun and srun, on one host and two
# make test-tcp     ranks as processes that meet over TCP, on one host and two, and of srun without PMIx
# make failing-calls BOUND=25 fails library calls one by one, 2 x BOUND of each kind in each command
# make kills N=1000 SIGKILL at random moments of supervised runs; CUDA=1: on two GPUs, SIGSTOP too: N passed, M failed, K skipped
# make test-HOUSE   the tests of one house: engine, kernels, corpus, hardware, traces, pages, planner, bench, convert, library, app
# make ptx          the GPU code as PTX, which says whether it compiles; without ptxas
# make houses       links each part of src/ against those that src/houses lets it use
# make HOUSES="engine kernels corpus app"  a trainer without the other houses
# make lint         format, layers, sizes, globals, dropped Statuses, clang-tidy, cppcheck
# make fuzz MINUTES=10  fuzzers look for new inputs on all cores; make test-fuzz: over their committed corpora
# make mutants      plants the bugs of tools/mutants.txt one by one: N killed, M alive
# make gfxrun       runs kernels for AMD's gfx942 without a GPU (tools/gfxrun), and HIP's runtime over it
# make lib          build/lib/libswitchyard.so and .a: for other programs and Python (include/switchyard.h)
# make install      program, library, man pages, completions to PREFIX=/usr/local under DESTDIR; make uninstall
# make deb          build/switchyard_VERSION_ARCH.deb for processors as the release is (packaging/)
# make test-gfxrun  tests of ops and of a step with kernels for gfx942, interpreted; LONG=1: all of their cases
# make gfx          kernels for AMD's GPUs as code objects, by clang 19 alone (docs/amd.md)
# make docs         docs/reference/ and docs/explain/: the pages that the program writes; outputs that README and guides print
# make convergence  docs/convergence.md: trainings beside PyTorch, kept in build/convergence; PYTHON needs torch
# make reproduce    docs/reference/planning.md: the planner beside published figures; reproduce-PART: a section of it
# make scoreboard   errors of the planner on published runs (tests/published/)
# make bench        switchyard bench ops and bench step quickstart
# make check-deps   which libraries are missing or too old, under each system's name, and what installs them
# make compilers    src/ and tools/ by each gcc and clang that is installed; keeps no object
# make CC=aarch64-linux-gnu-gcc  for another processor, in build/release-aarch64/; make test-aarch64 tests that under qemu
# WERROR=1: a warning is an error, as in tests and lints. V=1: commands in place of short lines; -s: neither.
# PREFIX_LIBS=FOLDER: libraries of a prefix, as $CONDA_PREFIX
# CUDA=1 (NVIDIA's GPUs), HIP=1 (AMD's), MPI=1 and ISA=v3 switch files in and out. Configurations share no objects; of one configuration the
# builds with CUDA and MPI take those of the plain one ($O), but for what they change ($B).

CONFIG ?= release
CUDA   ?= 0
HIP    ?= 0
MPI    ?= 0
LONG   ?= 0
ISA    ?= all
BUILD  ?= build
WERROR ?= 0
V      ?= 0
# $(call say,WORD,WHAT) begins a recipe's line: a short line instead of the command, which V=1 prints; -s prints neither.
say = $(if $(filter 1,$V),,$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,$(info $1 $2))@)
Q  := $(if $(filter 1,$V),,@)
CC.release := gcc
CC.debug   := gcc
CC.asan    := gcc
CC.hostile := gcc
CC.tsan    := clang-14
CC.fuzz    := clang-14
# The compiler says which machine it compiles for. CROSS is its name where that is not this one: such a build has a
# folder of its own, and its programs run under an emulator.
machine_of = $(firstword $(subst -, ,$(shell $1 -dumpmachine 2>/dev/null)))
ifeq ($(origin CC),default)
CC      := $(CC.$(CONFIG))
MACHINE := $(call machine_of,$(CC))
else
MACHINE := $(call machine_of,$(CC))
CROSS   := $(filter-out $(or $(call machine_of,gcc),$(MACHINE)),$(MACHINE))
endif
ifneq ($(CROSS),)
AR       := $(shell $(CC) -print-prog-name=ar)
OBJCOPY  := $(shell $(CC) -print-prog-name=objcopy)
EMULATOR ?= qemu-$(CROSS)
export EMULATOR
endif
OBJCOPY ?= objcopy
# HOUSES="engine kernels corpus app": a trainer without the rest. Houses that others need come along (src/houses); the
# commands of those that are absent say so (src/app/NAME_off.c).
OPTIONAL := hardware traces pages planner bench convert serve
ifneq ($(origin HOUSES),undefined)
override HOUSES := $(sort $(shell tools/houses_needed $(HOUSES)))
endif
HOUSES ?= engine kernels corpus app $(OPTIONAL)
ABSENT := $(filter-out $(HOUSES),$(OPTIONAL))
ifneq ($(filter-out engine kernels kernels-amd corpus app $(OPTIONAL),$(HOUSES)),)
$(error HOUSES: there is no house $(filter-out engine kernels corpus app $(OPTIONAL),$(HOUSES)): $(OPTIONAL))
endif
O      := $(BUILD)/$(CONFIG)$(if $(filter 1-asan 1-tsan,$(LONG)-$(CONFIG)),-long)$(CROSS:%=-%)
PARSE  ?= 0
ASSEMBLE ?= 1
B      := $O$(if $(filter 1,$(PARSE)),-parse)$(if $(filter 1,$(CUDA)),-cuda)$(if $(filter 0,$(ASSEMBLE)),-ptx)$(if $(filter 1,$(HIP)),-hip)$(if $(filter 1,$(MPI)),-mpi)$(if $(filter v3,$(ISA)),-v3)$(if $(ABSENT),-part)
PROGRAM := $(if $(filter release-all-,$(CONFIG)-$(ISA)-$(CROSS)),$(BUILD)/switchyard,$B/switchyard)
BESIDE  := data-batches data-chat data-ngram data-pack data-parquet data-tokenizer $(if $(filter pages,$(HOUSES)),report) $(if $(filter serve,$(HOUSES)),serve) $(if $(filter traces,$(HOUSES)),trace-compat trace-diff trace-replay) $(if $(filter planner,$(HOUSES)),plan-calibrate supervise) $(if $(filter bench,$(HOUSES)),doctor) \
           $(if $(ABSENT),,bench-comm bench-contention bench-ladder bench-shapes bench-trace bench-why convert-from-dcp convert-to-hf data-inspect plan-study viz why-spike)

NVCC   ?= nvcc
# ASSEMBLE=0: kernels stay PTX that nobody optimised, so that what takes minutes to assemble is linked in one.
ifeq ($(ASSEMBLE),0)
GPU_ARCH := -gencode=arch=compute_90a,code=compute_90a -Xcicc -O0
endif
# For the GPUs of this machine; all: for a package, with PTX that drivers translate for later GPUs; 8.9 10.0: for those;
# or nvcc's own options
GPU_ARCH ?=
ifneq ($(filter-out -%,$(GPU_ARCH))$(if $(GPU_ARCH),,none),)
ifeq ($(CUDA),1)
override GPU_ARCH := $(shell NVCC=$(NVCC) tools/gpu_arch $(GPU_ARCH))
ifeq ($(GPU_ARCH),)
$(error GPU_ARCH: see above)
endif
endif
endif
COMMA := ,
GPU_CODES = $(strip $(subst $(COMMA), ,$(subst [,,$(subst ],,$(foreach a,$(GPU_ARCH),$(if $(findstring code=,$a),$(lastword $(subst code=, ,$a))))))))
# What one compilation is for. x86-64: the release's runs on processors with AVX2 or more, and takes more from its SETS;
# sanitizers run where they were made, and one set is enough to look at memory and threads. aarch64: processors of
# armv8.2-a, as Graviton 2 and later, Ampere Altra, Grace; loops become NEON's instructions.
CPU_ARCH.x86_64  := -march=x86-64-v3
CPU_ARCH.aarch64 := -march=armv8.2-a
CPU_ARCH.release := $(or $(CPU_ARCH.$(MACHINE)),-march=native)
CPU_ARCH.asan    := -march=native
CPU_ARCH.tsan    := -march=native
CPU_ARCH ?= $(CPU_ARCH.$(CONFIG))

# WERROR=1, which tests and lints set: a compiler that is newer than theirs may warn of more, and must not end a user's build.
ERRORS := $(if $(filter 1,$(WERROR)),-Werror)
WARN := -Wall -Wextra -Wpedantic $(ERRORS) -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wundef -Wcast-qual -Wwrite-strings -Wpointer-arith -Wdouble-promotion \
        -Wimplicit-fallthrough
# of a .cu; CUDA's own headers do not bear more of the host compiler's
CU_WARN := $(if $(ERRORS),-Werror=all-warnings -Xcompiler=-Werror) -Xcompiler=-Wall,-Wextra,-Wshadow,-Wvla,-Wcast-qual,-Wwrite-strings,-Wpointer-arith,-Wdouble-promotion,-Wimplicit-fallthrough
# gcc checks this one; clang 14 also minds NAN and INFINITY, which are floats by definition
CLANG_WARN := -Wno-double-promotion -Wno-string-concatenation
# contract and no-errno let the compiler use fused multiply-adds and vector square roots; nothing
# here changes the order of a sum (that takes an explicit `omp simd reduction`)
FP   := -ffp-contract=fast -fno-math-errno -fno-trapping-math
SHORT := $(if $(filter 1,$(LONG)),,-DSHORT_RUNS=1)
CFLAGS.release := -O3 $(CPU_ARCH) -g1 -DARENA_POISON=0   # asserts stay: the hot loops are kernels
TESTS.release  := -O1
TESTS_THAT_COMPUTE.release := -O3
CFLAGS.debug   := -O1 -g3
CFLAGS.asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all $(SHORT)
CFLAGS.tsan    := -O1 -g1 -fsanitize=thread $(SHORT)
CFLAGS.hostile := -O1 -g -DHOSTILE=1 -DARENA_SKEW=64 -DARENA_FAIL_NTH=1
# clang 14 lacks gcc's name of its sanitizer, by which arenas guard what is not allocated; small steps of growth (HOSTILE) find more and touch fewer pages
CFLAGS.fuzz    := -O1 -g -fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link -fno-sanitize-recover=all -Wno-pass-failed -D__SANITIZE_ADDRESS__=1 -DHOSTILE=1
CFLAGS  := -std=c17 -D_GNU_SOURCE -Isrc -Itests -Iinclude -fopenmp $(FP) $(WARN) $(if $(findstring clang,$(CC)),$(CLANG_WARN)) \
           $(CFLAGS.$(CONFIG)) $(EXTRA) -MMD -MP
# what tests under the sanitizers spend their time in: loops that are not vectorised take seven times as long
FAST.asan := -O2 $(CPU_ARCH)
FAST.tsan := -O2 $(CPU_ARCH)
FAST      := engine kernels corpus planner
# libomp's own code is not instrumented; its races are shown to TSan by libarcher instead
export TSAN_OPTIONS ?= ignore_noninstrumented_modules=1
LDLIBS  := -lyaml -lpcre2-8 -lutf8proc -lhwloc -lz -lzstd -lm -ldl
LDFLAGS := $(filter -fsanitize=address% -fsanitize=thread,$(CFLAGS)) -fopenmp
# PREFIX_LIBS=$CONDA_PREFIX: the libraries are there, for who may not install them in the system
CFLAGS  += $(PREFIX_LIBS:%=-isystem %/include)
LDFLAGS += $(PREFIX_LIBS:%=-L%/lib) $(PREFIX_LIBS:%=-Wl,-rpath,%/lib)

# Sets of CPU ops beside the one that is compiled like all else (kernels/core/cpu_set.h). bf16 and AMX: the compiler
# takes these instructions where they are called by name alone, behind a look at the processor.
SETS := $(if $(filter release-all-x86_64,$(CONFIG)-$(ISA)-$(MACHINE)),v4)
ARCH.v4 := -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16 -mamx-tile -mamx-bf16
SET_SRC := src/engine/base/dtype.c $(filter-out %/op.c %/op_table.c %/cpu_sets.c %/names.c %/choices.c %/tuner.c %/product_algo.c %/kernels.c %_kernels.c %/libraries.c %_off.c src/kernels/exchange/%,$(wildcard src/kernels/*/*.c))

# What begins the program; what begins the library lies in src/library.
FRONTS := src/app/main.c
# x_on.c / x_off.c: two files for one interface, a build takes one.
SRC := $(filter-out $(FRONTS) %_on.c %_off.c src/engine/comm/mpi.c src/engine/comm/nccl.c,$(wildcard $(foreach h,$(HOUSES),src/$h/*.c src/$h/*/*.c src/$h/*/*/*.c)))
SRC += $(ABSENT:%=src/app/%_off.c)
ifeq ($(MPI),1)
SRC += src/engine/comm/mpi.c
MPI_CFLAGS := $(patsubst -I%,-isystem%,$(shell pkg-config --cflags ompi-c))
$O/src/engine/comm/mpi.c.o: CFLAGS += $(MPI_CFLAGS)
LDLIBS += $(shell pkg-config --libs ompi-c)
else
SRC += src/engine/comm/mpi_off.c
endif
# A vendor's libraries are found when the program starts; rpath is where dlopen looks.
OWN := src/kernels/core/op_table.c $(wildcard src/kernels/*/*_kernels.c) # tables that name the functions of GPUs
ifeq ($(CUDA),1)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC))))
CU  := $(wildcard src/engine/gpu/*.cu src/engine/gpu/nv/*.cu src/kernels/*/*.cu src/kernels/*/nv/*.cu)
SRC += src/engine/comm/nccl.c
NCCL_CFLAGS := -isystem $(CUDA_HOME)/include
LDLIBS += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread -lstdc++
else ifeq ($(HIP),1)
CU  := $(wildcard src/engine/gpu/*.cu src/kernels/*/*.cu src/kernels-amd/*.cu)
SRC += src/engine/comm/nccl.c
NCCL_CFLAGS := -Isrc/kernels-amd
LDLIBS += -lpthread -lstdc++
else
OWN :=
SRC += src/engine/gpu/gpu_off.c src/kernels/core/libraries_off.c src/engine/comm/nccl_off.c
endif
$(OWN:%=$B/%.o): CFLAGS += -DHAVE_$(if $(filter 1,$(HIP)),HIP,CUDA)=1
OWN += $(filter src/engine/comm/nccl.c,$(SRC)) # its header is the vendor's
OWN += $(if $(filter v3,$(ISA)),src/kernels/core/cpu_sets.c)
OBJ := $(OWN:%=$B/%.o) $(SETS:%=$O/set_%.o) $(patsubst %,$O/%.o,$(filter-out $(OWN),$(SRC))) $(CU:%=$B/%.o) \
       $O/gen/presets.c.o $(if $(filter hardware,$(HOUSES)),$O/gen/hardware.c.o) \
       $(if $(filter pages,$(HOUSES)),$O/gen/page.c.o) $O/gen/charset.c.o $O/gen/names.c.o $O/gen/number.c.o
# PARSE=1: what reads files and text, and what it calls, without the ops and the engine over them. Sanitizers look at it
# in a quarter of the time (test-parse); a test that needs more does not link, and belongs to test-rest.
PARSE_SRC := $(addprefix src/,corpus/% traces/% pages/% convert/% hardware/% engine/base/% engine/host/% app/options/% \
             engine/config/% engine/trace/% planner/stack/% planner/page/% \
             engine/schedule/% engine/comm/comm.c engine/comm/launch.c engine/comm/mpi_off.c engine/checkpoint/checkpoint_folder.c engine/train/heartbeat.c \
             engine/model/figure.c engine/model/matrix.c engine/model/params.c engine/model/piece.c kernels/core/names.c kernels/core/choices.c)
NOT_PARSED := # of programs beside
ifeq ($(PARSE),1)
NOT_PARSED := $(addprefix tools/supervise/,mesh.c supervise.c) $(addprefix tools/doctor/,doctor.c gpu.c host.c pairs.c text.c)
OBJ := $(filter $(PARSE_SRC:%=$O/%.o) $O/gen/%,$(OBJ))
endif
LIB := $B/libswitchyard.a
PRESETS  := $(wildcard share/presets/*.yaml)
HARDWARE := $(wildcard share/hardware/*.yaml)
PAGE     := $(wildcard src/pages/page/*)

test_of = $(patsubst tests/%.c,$B/tests/%,$(wildcard $(1)))
UNIT   := $(call test_of,tests/*/unit/test_*.c tests/*/unit/*/test_*.c tests/tools/*/test_*.c)
OPS    := $(call test_of,tests/kernels/op/test_*.c)
# kernels for NVIDIA's GPUs, compiled for the CPU (tests/kernels/warp/warp.cuh)
WARP   := $(patsubst tests/%.cu,$B/tests/%,$(wildcard tests/kernels/warp/test_*.cu))
COMM   := $(call test_of,tests/engine/unit/comm/test_*.c tests/bench/unit/test_null_comm.c)
MESH   := $(call test_of,tests/engine/mesh/test_*.c)
# SHARE=N: one test of N, which the commit draws, of those under the thread sanitizer, test-rest and test-gfxrun
SHARE ?= 1
share_of = $(if $(filter-out 1,$(SHARE)),$(shell tools/drawn $(SHARE) $(1)),$(1))
THREADED := $(call share_of,$(COMM) $(MESH))
SCHEDULE := $(call test_of,tests/engine/schedule/test_*.c)
GPU    := $(call test_of,tests/engine/gpu/test_*.c)
SYSTEM := $(call test_of,tests/*/system/test_*.c)
MPI_TESTS := $(patsubst %.c,$(BUILD)/$(CONFIG)-mpi/%,$(wildcard tests/engine/mpi/test_*.c))
NATIVE := kernels/unit/test_cpu_set kernels/op/test_golden_ops kernels/op/test_quant app/system/test_gpu_report app/system/test_reference
# what computes otherwise than the tests of ISA=v3, where the processor has more than AVX2
ifneq ($(shell grep -m 1 -c avx512f /proc/cpuinfo),0)
NATIVE += engine/mesh/test_same_loss engine/mesh/test_trajectory_mesh engine/mesh/test_steps_mesh engine/unit/train/test_trajectory \
          kernels/op/test_gemm kernels/op/test_attention kernels/op/test_linear kernels/op/test_moe kernels/op/test_scale \
          app/system/test_bad_input
endif
NATIVE := $(NATIVE:%=$B/tests/%)
FUZZ   := $(call test_of,tests/fuzz/fuzz_*.c)

# What ./test.sh runs and what it leaves to ./test.sh more: test-parse, test-first and test-rest.
# In release, tests that take long or wait, tests of GPUs and of their interpreter come later; the longest of the
# rest are short (RUNS of harness/test.h, as under sanitizers), and whole in test-whole.
LATER   := $(GPU) $(WARP) $(filter $B/tests/tools/gfxrun/%,$(UNIT)) $(addprefix $B/tests/,engine/system/test_kill engine/system/test_reliability \
           engine/system/test_resume app/system/test_failing_calls app/system/test_gpu_report app/system/test_gpu_table app/system/test_gpu_peers app/system/test_install \
           app/system/test_wiring app/system/test_build engine/system/test_tcp_train engine/system/test_memory app/system/test_doctor app/system/test_supervise \
           planner/system/test_scoreboard planner/system/test_plan_verify planner/system/test_plan_page planner/unit/test_bound \
           planner/unit/test_search_narrow planner/unit/test_write kernels/op/test_moe_bias engine/unit/train/test_recipe_steps \
           tools/shapes/test_bench_shapes)
SHORTER := $(addprefix engine/mesh/test_,same_loss checkpoint_mesh layouts drawn steps_mesh pool drawn_checkpoint recipe retry) \
           $(addprefix engine/schedule/test_,random estimate) $(addprefix planner/unit/test_,monotone import goodput price tensor flows)
SHORT_TESTS := $(SHORTER:%=$B/short/tests/%)
WHOLE_TESTS := $(SHORTER:%=$B/tests/%)
# Under the address sanitizer, what parses comes first. These read through the engine or the ops:
PARSE_LATER := $(addprefix $B/tests/,convert/unit/test_convert convert/unit/test_family convert/unit/test_folders \
               pages/unit/test_plan_page $(addprefix fuzz/fuzz_,calibrate hardware manifest peer pickle request words))
PARSE_TESTS := $(filter-out $(PARSE_LATER),$(call test_of,$(addprefix tests/,engine/unit/base/test_*.c app/unit/options/test_*.c \
               engine/unit/config/test_*.c corpus/unit/test_*.c tools/chat/test_*.c tools/parquet/test_*.c tools/tokenizer/test_*.c convert/unit/test_*.c traces/unit/test_*.c library/unit/test_trace_library.c hardware/unit/test_*.c \
               pages/unit/test_*.c tools/report/test_*.c tools/diff/test_*.c planner/unit/test_stack.c planner/unit/test_import.c planner/unit/test_members.c \
               planner/unit/test_formula.c tools/supervise/test_supervise_hosts.c tools/supervise/test_heartbeat.c tools/doctor/test_doctor_rules.c)))
PARSE_FUZZ  := $(filter-out $(PARSE_LATER),$(FUZZ))
FIRST        := $(filter-out $(LATER) $(WHOLE_TESTS),$(SYSTEM) $(MESH) $(SCHEDULE) $(OPS) $(UNIT))
REST.release := $(LATER)
REST.asan    := $(call share_of,$(filter-out $(PARSE_TESTS),$(MESH) $(SCHEDULE) $(OPS) $(UNIT)))

# The library: what its functions need of the program, as one object in which only they are visible.
LIBRARY_OBJ := $(patsubst %,$O/%.o,$(wildcard src/library/*.c) $(filter-out %/main.c %/diff.c %/diff_rules.c,$(wildcard tools/compat/*.c)))
LIBRARY_SO  := libswitchyard.so.$(shell sed -n 's/^.define SWITCHYARD_VERSION //p' include/switchyard.h)
LIBRARY     := $(if $(ABSENT),,$(addprefix $B/lib/,libswitchyard.a $(LIBRARY_SO) libswitchyard.so))
LIBRARY_LDLIBS = $(LDLIBS) -lgomp -lpthread
EXAMPLES := $(if $(ABSENT),,$B/examples/trace_summary)

all: $(PROGRAM)
.SECONDARY:

$(FAST:%=$O/src/%/%.c.o): CFLAGS += $(FAST.$(CONFIG))

$O/tests/%.c.o $O/short/tests/%.c.o $O/tools/%.c.o $O/pic/tools/%.c.o: CFLAGS += -Itools
# A test's own code runs once: at -O3 compiling it takes twice as long and running it no less, but for what computes.
$O/tests/%.c.o: CFLAGS += $(TESTS.$(CONFIG))
$O/tests/kernels/op/%.c.o $O/tests/engine/mesh/%.c.o: CFLAGS += $(TESTS_THAT_COMPUTE.$(CONFIG))

# Before the first object, so that a missing library is not a compiler's error.
DEPS := $O/deps$(if $(filter 1,$(MPI)),-mpi)
ASK_DEPS := CC='$(CC)' CROSS='$(CROSS)' MPI=$(MPI) PREFIX_LIBS='$(PREFIX_LIBS)' tools/packages check
$(DEPS): tools/packages
	@mkdir -p $(@D)
	@$(ASK_DEPS) quiet
	@touch $@
check-deps:
	@$(ASK_DEPS)

$O/%.c.o: %.c | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -c $< -o $@

$(OWN:%=$B/%.o): $B/%.o: % | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -c $< -o $@

# before a processor is known to have more
$O/src/app/main.c.o $O/src/engine/host/cpu.c.o: CFLAGS := $(filter-out -march=%,$(CFLAGS))

$(SETS:%=$O/src/kernels/core/cpu_sets.c.o): CFLAGS += -DHAVE_V4=1
$O/src/kernels/core/cpu_sets.c.o: $O/sets

# changes when SETS does: quickstart.sh leaves out what its processor cannot run, and a later make adds it
$O/sets: always
	@mkdir -p $(@D)
	@echo '$(SETS)' | cmp -s - $@ || echo '$(SETS)' >$@

# the same for HOUSES: builds of some houses share $B
$B/houses: always
	@mkdir -p $(@D)
	@echo '$(HOUSES)' | cmp -s - $@ || echo '$(HOUSES)' >$@

# one object of a set, in which its table alone is visible
$O/v4/%.c.o: %.c | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC v4,$<)$(CC) $(filter-out $(CPU_ARCH),$(CFLAGS)) $(ARCH.v4) -DOP_SET=op_set_v4 -c $< -o $@

$O/set_v4.o: $(SET_SRC:%=$O/v4/%.o)
	$(call say,LD,$@)$(CC) -r -nostdlib -o $@ $^
	$Q$(OBJCOPY) --keep-global-symbol=op_set_v4 $@

$B/src/engine/comm/nccl.c.o: CFLAGS += $(NCCL_CFLAGS)

$O/gen/presets.c: tools/embed_presets Makefile $(PRESETS)
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/embed_presets config_presets engine/config/config_private.h $(PRESETS) >$@

$O/gen/hardware.c: tools/embed_presets Makefile $(HARDWARE)
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/embed_presets hardware_presets hardware/presets.h $(HARDWARE) >$@

$O/gen/page.c: tools/embed_presets Makefile $(PAGE)
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/embed_presets page_files pages/charts/page.h $(PAGE) >$@

# a line is a string
$O/gen/charset.c: share/unicode16.txt Makefile
	@mkdir -p $(@D)
	@{ printf '#include "corpus/tokenizer/charset_table.h"\nconst char *const charset_table[] = {\n'; sed 's/.*/"&",/' $<; \
	    printf '};\nconst int charset_table_n = sizeof charset_table / sizeof *charset_table;\n'; } >$@

# the version's number alone: the library knows it, and stays as it is from commit to commit
$O/gen/number.c: VERSION Makefile
	@mkdir -p $(@D)
	@printf '#include "app/options/cli.h"\nconst char version_number[] = "%s";\n' "$$(cat VERSION)" >$@

$O/gen/names.c: share/names.tsv tools/names Makefile
	@mkdir -p $(@D)
	tools/names c >$@

$O/gen/%.c.o: $O/gen/%.c | $(DEPS)
	$(call say,CC,$<)$(CC) $(CFLAGS) -c $< -o $@

# Kernels for AMD's GPUs as code objects, build/gfx942/src/kernels/moe/NAME.cu.o, for each of HIP_ARCH.
HIPCC    ?= clang-19
HIP_ARCH ?= gfx942
HIP_BUNDLER ?= $(patsubst clang%,clang-offload-bundler%,$(HIPCC))
HIP_HOST := src/engine/gpu/gpu_runtime.cu src/kernels-amd/hip.cu src/kernels-amd/libraries.cu src/kernels-amd/blas.cu # without kernels
HIP_CU   := $(filter-out $(HIP_HOST),$(wildcard src/engine/gpu/*.cu src/kernels/*/*.cu src/kernels-amd/*.cu))
HIP_OBJ  := $(foreach a,$(HIP_ARCH),$(HIP_CU:%=$(BUILD)/$a/%.o))
# gcc checks the rest in the CUDA build. A loop that is not unrolled, or fewer waves than hoped for, is no error.
HIP_WARN := -Wall -Wextra $(ERRORS) -Wcast-qual -Wpointer-arith -Wdouble-promotion -Wimplicit-fallthrough \
            -Wno-missing-field-initializers -Wno-return-type-c-linkage -Wno-unused-function \
            -Wno-unneeded-internal-declaration -Wno-pass-failed
HIP_FLAGS := -x hip -std=c++17 -O3 -nogpuinc -nogpulib -Isrc -include kernels-amd/hip.cuh $(HIP_WARN)
# -MMD is not for device code alone in newer versions
define gfx_rule
$(BUILD)/$1/%.cu.o: %.cu
	@mkdir -p $$(@D)
	$$(call say,HIP,$$<)$(HIPCC) $(HIP_FLAGS) --cuda-device-only --no-gpu-bundle-output --offload-arch=$1 \
	    $$(addprefix -Xclang ,-dependency-file $$(@:.o=.d) -MT $$@ -MP) -c $$< -o $$@
endef
$(foreach a,$(HIP_ARCH),$(eval $(call gfx_rule,$a)))
gfx: $(HIP_OBJ)

# The GPU code as text of its assembler, which takes no time to optimise and calls no ptxas: does it compile?
PTX := $(patsubst %,$(BUILD)/ptx/%.ptx,$(wildcard src/engine/gpu/*.cu src/engine/gpu/nv/*.cu src/kernels/*/*.cu src/kernels/*/nv/*.cu))
$(BUILD)/ptx/%.cu.ptx: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) -ptx -std=c++17 -Xcicc -O0 -arch=compute_90a $(GPU_DEFINES) -Isrc $(CU_WARN) -MMD -MP -MF $(@:.ptx=.d) $< -o $@
$(BUILD)/ptx/src/engine/gpu/gpu_runtime.cu.ptx: GPU_DEFINES = -DGPU_CODES='"compute_90a"'
ptx: $(PTX)

ifeq ($(HIP),1)
# Launchers, with the code objects of all chips beside them.
$B/%.cu.bundle: $(foreach a,$(HIP_ARCH),$(BUILD)/$a/%.cu.o)
	@mkdir -p $(@D)
	$(call say,HIP,$@)$(HIP_BUNDLER) -type=o -bundle-align=4096 -input=/dev/null $(^:%=-input=%) -output=$@ \
	    -targets=host-$(MACHINE)-unknown-linux-gnu$(subst $(eval) ,,$(HIP_ARCH:%=,hipv4-amdgcn-amd-amdhsa--%))

HIP_HOST_FLAGS = $(HIP_FLAGS) --cuda-host-only -fPIC -Xclang -cuid=$(subst /,_,$(basename $<)) -DHIP_ARCHES='" $(HIP_ARCH)"' -MMD -MP -MF $(@:.o=.d)
$(HIP_HOST:%=$B/%.o): $B/%.o: %
	@mkdir -p $(@D)
	$(call say,HIP,$<)$(HIPCC) $(HIP_HOST_FLAGS) -c $< -o $@

$B/%.cu.o: %.cu $B/%.cu.bundle
	$(call say,HIP,$<)$(HIPCC) $(HIP_HOST_FLAGS) -Xclang -fcuda-include-gpubinary -Xclang $B/$*.cu.bundle -c $< -o $@
else
$B/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) -std=c++17 -O3 $(GPU_ARCH) $(GPU_DEFINES) -Isrc -Xcompiler=-fPIC $(CU_WARN) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$B/src/engine/gpu/gpu_runtime.cu.o: GPU_DEFINES = -DGPU_CODES='"$(GPU_CODES)"'
endif

$(LIB): $(OBJ) $O/sets $B/houses
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $(filter %.o,$^)

# not in the library, so that a commit links no test anew
$O/gen/version.c: always
	@mkdir -p $(@D)
	@tools/embed_version $@

$B/switchyard: $O/src/app/main.c.o $O/gen/version.c.o $(LIB)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

# build/switchyard is the release program that was made last, with CUDA and MPI or without
ifneq ($(PROGRAM),$B/switchyard)
$(PROGRAM): $B/switchyard always
	@cmp -s $< $@ || cp $< $@
	@for name in $(BESIDE); do cmp -s $<-$$name $@-$$name || cp $<-$$name $@-$$name; done
endif

# Compiled once for program and library. No one replaces a function of theirs, so calls are inlined as in the rest.
PIC := $(filter-out $O/set_%,$(OBJ)) $(LIBRARY_OBJ) $(foreach s,$(SETS),$(SET_SRC:%=$O/$s/%.o))
$(PIC): CFLAGS += -fPIC -fno-semantic-interposition
# objects of before they were position independent are older
$(PIC): $O/independent
$O/independent: always
	@mkdir -p $(@D)
	@[ -e $@ ] || touch $@

$B/lib/library.o: $(LIBRARY_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -r -nostdlib -Wl,-d -o $@ $^
	$Q$(OBJCOPY) --wildcard --keep-global-symbol='switchyard_*' $@

$B/lib/libswitchyard.a: $B/lib/library.o
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $^

$B/lib/$(LIBRARY_SO): $B/lib/library.o
	$(call say,LINK,$@)$(CC) -shared $(LDFLAGS) -Wl,-z,defs -Wl,-soname,$(@F) $^ $(LIBRARY_LDLIBS) -o $@

$B/lib/libswitchyard.so: $B/lib/$(LIBRARY_SO)
	$Qln -sf $(<F) $@

# as a user's program, with the header and the library alone
$B/examples/%: examples/%.c include/switchyard_trace.h $B/lib/libswitchyard.so
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=c17 -O2 $(WARN) -Iinclude $< -L$B/lib -Wl,-rpath,'$$ORIGIN/../lib' -lswitchyard -o $@

lib: $(LIBRARY) $(EXAMPLES)
	$(if $(filter release-all-,$(CONFIG)-$(ISA)-$(CROSS)),@mkdir -p $(BUILD)/lib && for f in $(LIBRARY); do cmp -s $$f $(BUILD)/lib/$${f##*/} || cp -P --remove-destination $$f $(BUILD)/lib/; done)

$B/tests/library/system/test_library: | $(LIBRARY) $(EXAMPLES)
$B/tests/app/system/test_install: | build-install

# a clock that is late, for LD_PRELOAD
$B/tests/engine/mpi/late_clock.so: tests/engine/mpi/late_clock.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -shared -fPIC $< -o $@
$B/tests/engine/mpi/test_mpi_doctor: | $B/tests/engine/mpi/late_clock.so

# a logarithm that is wrong now and then, for LD_PRELOAD
$B/tests/engine/system/faulty_log.so: tests/engine/system/faulty_log.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=c17 -D_GNU_SOURCE $(WARN) -shared -fPIC $< -o $@
$B/tests/engine/system/test_verify: | $B/tests/engine/system/faulty_log.so

# library calls that fail, for LD_PRELOAD
$B/tests/app/system/failing_calls.so: tests/app/system/failing_calls.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=c17 -D_GNU_SOURCE $(if $(filter asan,$(CONFIG)),-DKEEP_MALLOC) -O1 $(WARN) -shared -fPIC \
	    -fvisibility=hidden $< -o $@
$B/tests/app/system/test_failing_calls: | $B/tests/app/system/failing_calls.so

# Kernels are run with the rounding that the instructions have: no product is fused that is not in the text.
GFXRUN := $(patsubst %,$O/%.o,$(wildcard tools/gfxrun/*.c))
GFXRUN_TESTS := $(call test_of,tests/tools/gfxrun/test_*.c)
$(GFXRUN) $(GFXRUN_TESTS:$B/%=$O/%.c.o): CFLAGS += -ffp-contract=off
$O/gfxrun.a: $(GFXRUN)
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $^
$(GFXRUN_TESTS): $B/tests/%: $O/tests/%.c.o $O/gfxrun.a $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
# HIP's runtime over it, under the name of AMD's: LD_LIBRARY_PATH=build/release/gfxrun
$O/pic/%.c.o: %.c | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@
GFXRUN_PIC := $(patsubst %,$O/pic/%.o,$(wildcard tools/gfxrun/*.c) tools/gfxrun/hip/runtime.c)
GFXRUN_BLAS_PIC := $O/pic/tools/gfxrun/hip/blaslt.c.o
$(GFXRUN_PIC) $(GFXRUN_BLAS_PIC): CFLAGS += -ffp-contract=off
GFXRUN_HIP := $O/gfxrun/libamdhip64.so.6
$(GFXRUN_HIP): $(GFXRUN_PIC) $(patsubst %,$O/%.o,$(wildcard src/engine/base/*.c src/engine/host/*.c)) $O/gen/names.c.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) -shared $(LDFLAGS) -Wl,-z,defs -Wl,-Bsymbolic -Wl,-soname,$(@F) $^ -lz -lyaml -lgomp -lm -lpthread -ldl -o $@
# In a folder of its own, so that a run chooses between the library of products and our own kernels.
GFXRUN_BLAS := $O/gfxrun-blas/libhipblaslt.so.0
$(GFXRUN_BLAS): $(GFXRUN_BLAS_PIC) $O/src/engine/base/dtype.c.o $(GFXRUN_HIP)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) -shared $(LDFLAGS) -Wl,-z,defs -Wl,-Bsymbolic -Wl,-soname,$(@F) $^ -lm -o $@
gfxrun: $O/gfxrun.a $(GFXRUN_TESTS) $(GFXRUN_HIP) $(GFXRUN_BLAS)

# Programs beside switchyard (tools/beside): switchyard-$(1) is made of tools/$(2), its tests are tests/tools/$(2).
define BESIDE_RULES
BESIDE_OBJ.$(2) := $$(patsubst %,$O/%.o,$$(filter-out %/main.c $(NOT_PARSED),$$(wildcard tools/$(2)/*.c)))
BESIDE_TESTS.$(2) := $$(call test_of,tests/tools/$(2)/test_*.c)
$$(BESIDE_TESTS.$(2)): $$(BESIDE_OBJ.$(2))
$B/switchyard-$(1): $O/tools/beside/main.c.o $O/tools/$(2)/main.c.o $$(BESIDE_OBJ.$(2)) $(LIB)
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)$$(CC) $$(LDFLAGS) $$(filter %.o,$$^) $(LIB) $$(LDLIBS) -o $$@
endef
$(foreach name,$(BESIDE),$(eval $(call BESIDE_RULES,$(name),$(lastword $(subst -, ,$(name))))))
$B/switchyard: | $(BESIDE:%=$B/switchyard-%)
$B/switchyard-bench-contention $(BESIDE_TESTS.contention) $B/tests/engine/gpu/test_gpu_bench: $(BESIDE_OBJ.shapes)
$B/switchyard-doctor: $O/gen/version.c.o
$B/tests/engine/gpu/test_gpu_doctor: $(BESIDE_OBJ.doctor)
$B/tests/engine/gpu/test_gpu_bench: $(BESIDE_OBJ.contention) $(BESIDE_OBJ.comm)
$B/tests/fuzz/fuzz_sheets: $(BESIDE_OBJ.replay)
$B/tests/fuzz/fuzz_metrics: $(BESIDE_OBJ.report)
$B/tests/fuzz/fuzz_request: $(BESIDE_OBJ.serve)
$(addprefix $B/tests/,fuzz/fuzz_beats fuzz/fuzz_launch engine/mpi/test_mpi_kill): $(BESIDE_OBJ.supervise)
$(addprefix $B/tests/,fuzz/fuzz_calibrate bench/unit/test_bench_ops planner/unit/test_interval): $(BESIDE_OBJ.calibrate)
COMPAT_TESTS := fuzz/fuzz_sheets fuzz/fuzz_collectives fuzz/fuzz_diff engine/system/test_recording $(addprefix traces/unit/test_,collectives perf report) library/unit/test_trace_library
$(COMPAT_TESTS:%=$B/tests/%) $(BESIDE_TESTS.diff): $(BESIDE_OBJ.compat)
$(COMPAT_TESTS:%=$B/tests/%) $B/switchyard-trace-compat: $(BESIDE_OBJ.diff)
$(addprefix $B/tests/,library/unit/test_trace_library engine/system/test_recording): $(addprefix $O/src/library/,trace.c.o result.c.o)
$B/tests/library/unit/test_library: $(LIBRARY_OBJ)
# learn a tokenizer (tests/harness/texts.h), or read a .tiktoken file
LEARNERS := $(call test_of,tests/fuzz/fuzz_tiktoken.c tests/corpus/unit/test_*.c tests/tools/inspect/test_*.c tests/tools/ngram/test_*.c)
$(LEARNERS): $(BESIDE_OBJ.tokenizer)
$(addprefix $B/tests/fuzz/fuzz_,chat template): $(BESIDE_OBJ.chat)
$B/tests/fuzz/fuzz_parquet: $(BESIDE_OBJ.parquet)
$B/tests/fuzz/fuzz_pickle: $(BESIDE_OBJ.dcp)
$(addprefix $B/tests/convert/unit/test_,convert folders): $(BESIDE_OBJ.hf)
$(addprefix $B/tests/,fuzz/fuzz_timeline fuzz/fuzz_scaling engine/mesh/test_pipeline pages/unit/test_timeline): $(BESIDE_OBJ.viz)

# under CONFIG=fuzz with libFuzzer, else with a main that replays a corpus
$(FUZZ): $B/tests/fuzz/%: $O/tests/fuzz/%.c.o $(addprefix $O/tests/harness/,fuzz.c.o fuzz_maps.c.o) $(if $(filter fuzz,$(CONFIG)),,$O/tests/harness/replay.c.o) $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -Wl,--wrap=mmap,--wrap=munmap $(if $(filter fuzz,$(CONFIG)),-fsanitize=fuzzer) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@

$B/tests/%: $O/tests/%.c.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) $(filter %.o,$^) $(LIB) $(LDLIBS) -lcmocka -lcjson -o $@

$O/short/%.c.o: %.c | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -DSHORT_RUNS=1 -c $< -o $@

$B/short/tests/%: $O/short/tests/%.c.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) $(filter %.o,$^) $(LIB) $(LDLIBS) -lcmocka -lcjson -o $@

CLANGXX ?= clang++-14
WARP_WARN := -Wall -Wextra $(ERRORS) -Wshadow -Wno-pass-failed -Wno-unknown-pragmas
$B/tests/kernels/warp/%: tests/kernels/warp/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(CLANGXX) -x c++ -std=c++17 -O3 -Isrc -Itests $(WARP_WARN) -MMD -MP -MF $@.d $< -lcmocka -o $@

# make test-HOUSE: the tests of one house alone
define HOUSE_RULES
HOUSE_TESTS.$(1) := $$(filter-out $B/tests/$(1)/mpi/% $B/tests/$(1)/tcp/%,$$(call test_of,tests/$(1)/*/test_*.c tests/$(1)/*/*/test_*.c)) $$(filter $B/tests/$(1)/%,$(WARP))
build-test-$(1): $$(HOUSE_TESTS.$(1)) $(PROGRAM)
test-$(1): build-test-$(1)
	$Qtools/run_tests $$(HOUSE_TESTS.$(1))
.PHONY: build-test-$(1) test-$(1)
endef
$(foreach house,engine kernels corpus hardware traces pages planner bench convert library app,$(eval $(call HOUSE_RULES,$(house))))

# build-X only builds what X then runs and counts; what takes longest begins first
build-unit: $(UNIT)
build-op: $(OPS)
build-schedule: $(SCHEDULE)
build-gpu: $(GPU)
build-test-mesh: $(THREADED)
build-test-fast: build-unit build-op build-schedule build-test-mesh
build-test: build-test-fast build-gpu $(WARP) $(SYSTEM) $(PROGRAM) lib
build-test-fuzz: $(FUZZ)
build-test-first: $(FIRST) $(SHORT_TESTS) $(PROGRAM)
build-test-rest: $(REST.$(CONFIG)) $(if $(filter release,$(CONFIG)),$(PROGRAM))
build-test-whole: $(WHOLE_TESTS)
build-test-fuzz-rest: $(filter-out $(PARSE_FUZZ),$(FUZZ))
build-test-parse: $(PARSE_TESTS)
build-test-parse-fuzz: $(PARSE_FUZZ)
build-test-mpi:
	$(MAKE) MPI=1 $(BUILD)/$(CONFIG)-mpi/switchyard $(MPI_TESTS)

test: build-test
	$Qtools/run_tests $(SYSTEM) $(if $(filter release-all,$(CONFIG)-$(ISA)),tools/check_guides tools/check_planning) $(MESH) $(SCHEDULE) $(OPS) $(UNIT) $(GPU) $(WARP)
test-fast: build-test-fast
	$Qtools/run_tests $(MESH) $(SCHEDULE) $(OPS) $(UNIT)
test-mesh: build-test-mesh
	$Qtools/run_tests $(THREADED)
test-fuzz: build-test-fuzz
	$Qtools/run_fuzz $(FUZZ)
test-first: build-test-first
	$Qtools/run_tests $(FIRST) $(SHORT_TESTS)
test-rest: build-test-rest
	$Qtools/run_tests $(REST.$(CONFIG))
test-whole: build-test-whole
	$Qtools/run_tests $(WHOLE_TESTS)
test-fuzz-rest: build-test-fuzz-rest
	$Qtools/run_fuzz $(filter-out $(PARSE_FUZZ),$(FUZZ))
# with CONFIG=asan PARSE=1: all that parses
test-parse: build-test-parse
	$Qtools/run_tests $(PARSE_TESTS)
test-parse-fuzz: build-test-parse-fuzz
	$Qtools/run_fuzz $(PARSE_FUZZ)
# what this processor computes, beside the tests of ISA=v3; and what is of the users' program
build-test-native: $(NATIVE) $(PROGRAM) lib
test-native: build-test-native
	$Qtools/run_tests tools/check_guides tools/check_planning $(NATIVE)
build-test-tcp: $B/tests/engine/mpi/test_mpi $B/tests/engine/tcp/test_tcp_kill $(PROGRAM)
test-tcp: build-test-tcp
	$Qtools/run_tcp $B
test-aarch64:
	$Qtools/check_aarch64
compilers:
	$Qtools/check_compilers
test-unit: build-unit
	$Qtools/run_tests $(UNIT)
test-mpi: build-test-mpi
	tools/run_mpi $(BUILD)/$(CONFIG)-mpi

N    ?= 1000
SEED ?= 1
KILLS := $(BUILD)/$(CONFIG)$(if $(filter 1,$(CUDA)),-cuda)-mpi
kills:
	$(MAKE) MPI=1 $(KILLS)/switchyard $(KILLS)/tests/engine/mpi/test_mpi_kills
	OMP_WAIT_POLICY=passive $(KILLS)/tests/engine/mpi/test_mpi_kills $N $(SEED) $(if $(filter 1,$(CUDA)),gpu)

BOUND ?= 25
failing-calls: $(PROGRAM) $B/tests/app/system/test_failing_calls
	tools/run_failing_calls $B/tests/app/system/test_failing_calls $(BOUND)

# kernels for AMD's gfx942, interpreted: ops beside the CPU's, and a training step
GFXRUN_RUNS := $(patsubst tests/%.c,$(BUILD)/release-hip/tests/%,$(call share_of,$(wildcard tests/kernels/op/test_*.c)) tests/engine/gpu/test_gpu_memory.c tests/engine/gpu/test_gpu_doctor.c tests/engine/gpu/test_gpu_one_step.c tests/engine/gpu/test_gpu_refused.c \
               $(if $(filter 1,$(LONG)),$(wildcard tests/engine/gpu/test_gpu_st*.c tests/engine/gpu/test_gpu_launches.c tests/engine/gpu/test_gpu_offload.c)))
# once more with hipBLASLt: scripts that find it and run the test of the same name
GFXRUN_BLAS_RUNS := $(addprefix $O/gfxrun-blas/,test_head test_linear test_tune)
$(GFXRUN_BLAS_RUNS): Makefile $(GFXRUN_BLAS)
	@printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:$$LD_LIBRARY_PATH exec %s "$$@"\n' \
	    $(@D) $(BUILD)/release-hip/tests/kernels/op/$(@F) >$@
	@chmod +x $@
build-test-gfxrun: gfxrun $(GFXRUN_BLAS_RUNS)
	$(MAKE) HIP=1 $(BUILD)/release-hip/switchyard $(sort $(GFXRUN_RUNS) $(GFXRUN_BLAS_RUNS:$O/gfxrun-blas/%=$(BUILD)/release-hip/tests/kernels/op/%))
test-gfxrun: build-test-gfxrun
	$QLD_LIBRARY_PATH=$O/gfxrun$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH} $(if $(filter 1,$(LONG)),,TEST_WORK=$(GFXRUN_WORK)) \
	    tools/run_tests $(GFXRUN_RUNS) $(GFXRUN_BLAS_RUNS)
GFXRUN_WORK := 1e6 # of each kind of call in a test, for two minutes in all

asan hostile:
	$(MAKE) CONFIG=$@ test-fast
tsan:
	$(MAKE) CONFIG=tsan test-mesh
MINUTES ?= 10
fuzz:
	$(MAKE) CONFIG=fuzz build-test-fuzz
	$Qtools/run_fuzz --minutes $(MINUTES) $(patsubst $B/%,$(BUILD)/fuzz/%,$(FUZZ))
debug:
	$(MAKE) CONFIG=debug all

bench: $(PROGRAM)
	$(PROGRAM) bench ops
	$(PROGRAM) bench step quickstart

# docs/convergence.md: runs what build/convergence lacks. PYTHON needs torch and PyYAML.
PYTHON ?= python3
convergence: $(PROGRAM)
	tools/quickstart --data
	$(PYTHON) tools/convergence.py

docs: $(PROGRAM) lib $O/tests/app/unit/test_settings_page $O/tests/engine/unit/train/test_compatibility $O/tests/tools/why/test_bench_why
	$O/tests/app/unit/test_settings_page --write >docs/reference/config.md.tmp
	mv docs/reference/config.md.tmp docs/reference/config.md
	tools/make_help $(PROGRAM) page docs/reference/command-line.md
	$O/tests/engine/unit/train/test_compatibility --write >docs/explain/compatibility.md.tmp
	mv docs/explain/compatibility.md.tmp docs/explain/compatibility.md
	$O/tests/tools/why/test_bench_why --write >docs/explain/kernels.table.tmp
	sed -i -e '/^<!-- kernels:/r docs/explain/kernels.table.tmp' -e '/^<!-- kernels:/,/^<!-- end -->/{/^|/d}' docs/explain/kernels.md
	rm docs/explain/kernels.table.tmp
	tools/names page >docs/guides/names.tmp
	sed -i -e '/^<!-- names:/,/^<!-- end -->/{/^<!--/!d}' -e '/^<!-- names:/r docs/guides/names.tmp' docs/guides/coming-from-megatron-or-torchtitan.md
	rm docs/guides/names.tmp
	tools/check_guides --write

# minutes; needs Python 3
# All sections, or with reproduce-PART one of them: a function of tools/reproduce.
reproduce: $(PROGRAM)
	tools/reproduce $(PROGRAM) --write
reproduce-%: $(PROGRAM)
	tools/reproduce $(PROGRAM) --write $*

# a second; needs Python 3
scoreboard: $(PROGRAM)
	tools/scoreboard $(PROGRAM)

# TABLE: another one, for a test of the check
TABLE ?= src/houses
houses: $(OBJ) $(filter $O/src/%,$(LIBRARY_OBJ)) $O/gen/version.c.o
	@tools/check_houses $(TABLE) $^

# what tools/lint gives to clang
flags:
	@echo $(filter-out -M% $(CFLAGS.$(CONFIG)),$(CFLAGS)) $(CLANG_WARN) $(MPI_CFLAGS) $(NCCL_CFLAGS)

# what tools/check_globals reads
library:
	@echo $(LIB)

include packaging/install.mk

lint:
	tools/lint
test-long:
	./test.sh long

mutants:
	tools/mutants

always:

clean:
	rm -rf $(BUILD)
.PHONY: always all check-deps gfxrun build-unit build-op build-schedule build-gpu build-test-mesh build-test-fast build-test build-test-fuzz \
        build-test-mpi build-test-tcp test-tcp build-test-native build-test-gfxrun test-gfxrun test test-first test-rest test-whole build-test-whole test-parse test-fuzz-rest build-test-first build-test-rest build-test-parse build-test-parse-fuzz test-parse-fuzz build-test-fuzz-rest ptx test-fast test-native test-unit test-aarch64 compilers test-mesh test-fuzz test-mpi asan tsan hostile fuzz debug bench convergence docs reproduce scoreboard flags lib library lint test-long houses mutants gfx kills failing-calls clean
-include $(WARP:%=%.d)
-include $(foreach name,$(BESIDE),$(wildcard $O/tools/$(lastword $(subst -, ,$(name)))/*.d)) $O/tools/beside/main.c.d
-include $(OBJ:.o=.d) $(HIP_OBJ:.o=.d) $(foreach s,$(SETS),$(SET_SRC:%=$O/$s/%.d)) $(PIC:.o=.d) $O/src/app/main.c.d
-include $(wildcard $O/tests/*/*.d $O/tests/*/*/*.d $O/tests/*/*/*/*.d $O/short/tests/*/*/*.d) $(PTX:.ptx=.d) $(GFXRUN:.o=.d) $(GFXRUN_PIC:.o=.d) $(GFXRUN_BLAS_PIC:.o=.d)
