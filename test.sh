#!/bin/sh
# test.sh: installs what the tests need, and runs what finds most in a short time: unit, op, schedule,
# mesh and system tests in release with AVX2 alone, so that all processors compute the same; what
# parses, with the fuzzers' corpora, under the address and undefined sanitizers; lints that compile
# nothing; GPU code as far as PTX. The longest meshes are short, and system tests that wait are left out.
# test.sh more: the rest of what a change must pass (.ci/run does both). The tests that were left out;
# what computes otherwise with what this processor has; GPU code linked; ranks as processes of MPI;
# clang-tidy; and a share of what takes long, which the commit draws (SHARE, tools/drawn): all else under the
# address and undefined sanitizers; comm and mesh tests under the thread sanitizer; GPU code assembled;
# kernels for AMD, interpreted; a planted bug.
# Each lint, each corpus and each planted bug counts as a test. A table says what each stage took; the
# last line adds everything up; success is when nothing failed.
# test.sh long (make test-long): what takes too long for every change. All tests that were short,
# whole; all of what was drawn; the meshes with all of their steps under both sanitizers; small limits and failing allocations;
# library calls that fail in every command; 2,000 drawn models on drawn meshes; trainings with 8-bit
# products; 100 MB of text beside other tokenizers; members of config.json beside transformers; the server
# in lm-evaluation-harness beside transformers; cppcheck,
# and clang's analyzer on every path.
cd "$(dirname "$0")" || exit 1
tools/packages test || exit 1
tools/packages browser || echo "test.sh: without Chromium the page of a trace is not looked at in a browser"
[ -z "${1:-}" ] || tools/packages gfx || echo "test.sh: without clang 19 no kernel is compiled for AMD's GPUs"
[ -z "${1:-}" ] || tools/packages aarch64 || echo 'test.sh: nothing is compiled for aarch64'
export WERROR=1

log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
passed=0 failed=0 skipped=0 started=$(date +%s)

seconds() { echo "$(($(date +%s) - started)) s"; }

# CPU seconds of all children so far, tenths.
cpu_tenths() {
    times >"$log.times"
    tr 'ms' '  ' <"$log.times" | awk 'NR == 2 { print int(600 * ($1 + $3) + 10 * ($2 + $4)) }'
}

# stage TITLE COMMAND...: runs it and adds up its last line of sums; without one it broke off, which
# counts as one failure.
stage() {
    title=$1 since=$(date +%s)
    cpu_tenths >"$log.cpu"
    echo "== $title ($(seconds))"
    shift
    "$@" 2>&1 | tee "$log"
    sums=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" |
        tail -n 1)
    # shellcheck disable=SC2086
    set -- ${sums:-0 1 0}
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    read -r cpu <"$log.cpu"
    cpu_tenths >"$log.cpu"
    read -r now <"$log.cpu"
    printf '%6s s %7s s CPU  %5s passed %3s failed %4s skipped  %s\n' $(($(date +%s) - since)) \
        $(((now - cpu) / 10)) "$1" "$2" "$3" "$title" >>"$log.table"
}

# drawn N COMMAND...: on the share of one of N that the commit draws
drawn() {
    SHARE=$1
    export SHARE
    shift
    "$@"
    rc=$?
    unset SHARE
    return $rc
}

# in_config CONFIG TARGET
in_config() {
    make -s -j "$(nproc)" CONFIG="$1" "build-$2" && make -s CONFIG="$1" "$2"
}

# The program first, to say how long its build takes: in a fresh clone, a clean one.
release() {
    built=$(date +%s)
    make -s -j "$(nproc)" || return
    echo "release build of the program: $(($(date +%s) - built)) s"
    ISA=v3 in_config release test-first
}

in_v3() { ISA=v3 in_config release "$1"; }

parse() { PARSE=1 in_config asan "$1"; }

amd() { make -s -j "$(nproc)" build-test-gfxrun && make -s test-gfxrun; }

# The examples that send a run's figures to Weights & Biases and MLflow, and the notebook: it installs into build/peers.
followers() {
    [ -x build/peers/bin/python3 ] || python3 -m venv build/peers
    build/peers/bin/python3 -m pip install -q wandb mlflow-skinny sqlalchemy alembic numpy matplotlib ||
        echo 'test.sh: wandb, mlflow and matplotlib cannot be installed into build/peers, so their tests are skipped'
    set -- build/release/tests/app/system/test_follow build/release/tests/library/system/test_library
    make -s -j "$(nproc)" "$@" && tools/run_tests "$@"
}

# Ids of 100 MB of text beside those of other programs, which it installs into build/peers.
tokenizers() { make -s -j "$(nproc)" build/release/tests/peer/tokenize && tools/check_tokenizers; }

# Each member of config.json, for every family, beside transformers, which it installs into build/peers.
folders() { make -s -j "$(nproc)" && tools/check_folders; }

# The server beside transformers in lm-evaluation-harness, which it installs into build/peers; then 4,000 requests.
server() {
    [ -x build/peers/bin/python3 ] || python3 -m venv build/peers
    build/peers/bin/python3 -m pip install -q 'lm_eval[api]' transformers torch accelerate || {
        echo 'test.sh: lm_eval cannot be installed into build/peers, so the server is not compared'
        echo '0 passed, 0 failed, 1 skipped'
        return
    }
    make -s -j "$(nproc)" && rm -rf build/served &&
        build/peers/bin/python3 tools/check_lm_eval.py build/switchyard build/served 2>build/served.log || {
        tail -n 20 build/served.log
        return 1
    }
    (cd build/served && python3 ../../tools/soak_server.py ../switchyard deepseek_v2)
}

# What 576 patterns and 3,000 random ones cut, beside the same programs.
patterns() { make -s -j "$(nproc)" build/release/tests/peer/cut_patterns && tools/check_patterns; }

# begin NAME COMMAND...: runs it in the background with the lowest priority. ended NAME waits for its end
# and prints what it said.
begin() {
    name=$1
    shift
    { nice -n 19 "$@" 2>&1; echo "# end"; } >"$log.$name" &
}

ended() {
    until grep -q '^# end$' "$log.$1"; do sleep 0.2; done
    sed '$d' "$log.$1"
}

# A planted bug that is alive is a failed test.
ended_mutants() {
    ended mutants | sed 's/^\([0-9]*\) killed, \([0-9]*\) alive$/\1 passed, \2 failed, 0 skipped/'
}

corpus() {
    make -j"$(nproc)" build/release/tests/corpus/unit/test_blend &&
        CORPUS_MB=1000 TEST_FILTER='every_byte*' tools/run_tests build/release/tests/corpus/unit/test_blend
}

drawn_models() {
    make -s -j"$(nproc)" build/release/tests/engine/mesh/test_drawn &&
        DRAWN=0:2000 TEST_FILTER='drawn_models*' tools/run_tests build/release/tests/engine/mesh/test_drawn
}

if [ "${1:-}" = long ]; then
    export LONG=1
    stage 'release, AVX2: tests that are short in test.sh, whole' in_v3 test-whole
    stage 'address, undefined: all unit, op, schedule and mesh tests but what parses' in_config asan test-rest
    stage 'thread: comm and mesh tests, all steps' in_config tsan test-mesh
    stage 'small limits, failing allocations: unit, op, schedule and mesh tests' in_config hostile test-fast
    stage 'library calls that fail, in every command' make -s failing-calls
    stage '2,000 drawn models on drawn meshes' drawn_models
    stage 'fifty steps of the quickstart with each recipe' tools/check_recipes
    stage 'a corpus of 1 GB, every byte once an epoch' corpus
    command -v clang-19 >/dev/null && stage 'kernels for AMD, interpreted: all cases, whole trainings' amd
    stage 'tokenizers: 100 MB of text beside tokenizers and tiktoken' tokenizers
    stage 'Hugging Face folders: 19,000 inputs beside transformers' folders
    stage 'server: lm-evaluation-harness beside transformers; 4,000 requests' server
    stage 'examples in Python, with wandb, mlflow and matplotlib' followers
    stage 'patterns: pieces beside tokenizers and tiktoken' patterns
    stage 'aarch64 under qemu: all unit tests that run there' tools/check_aarch64 units
    stage 'lints, the analyzer on every path' tools/lint
elif [ "${1:-}" = more ]; then
    stage 'release, AVX2: system tests that wait, GPU code without a GPU' in_v3 test-rest
    stage 'release, this processor: products, trajectories, meshes; guides' in_config release test-native
    stage 'address, undefined: a fourth of unit, op, schedule and mesh tests' drawn 4 in_config asan test-rest
    stage 'address, undefined: corpora of fuzzers that use the engine' in_config asan test-fuzz-rest
    stage 'thread: a fourth of comm and mesh tests' drawn 4 in_config tsan test-mesh
    # Tests of ranks that are lost wait for deadlines: compilers and lints have the processors meanwhile.
    begin kernels env SHARE=8 tools/run_kernels
    begin lints tools/lint rest
    # after the kernels, with which it shares objects of tests
    ! command -v clang-19 >/dev/null || begin amd env SHARE=4 sh -c \
        "until grep -q '^# end\$' '$log.kernels'; do sleep 1; done; make -s -j $(nproc) test-gfxrun"
    stage 'TCP: ranks as processes without a launcher, of srun, on two hosts' in_config release test-tcp
    stage 'MPI: ranks as processes, of srun, on two hosts' in_config release test-mpi
    begin mutants tools/mutants --draw 1
    stage 'kernels: everything links, an eighth is assembled, begun beside MPI' ended kernels
    command -v clang-19 >/dev/null && stage 'kernels for AMD, interpreted: a fourth of the ops, a training step' ended amd
    stage 'clang-tidy, a trainer alone, begun beside MPI' ended lints
    stage 'aarch64 under qemu: tokens, losses, a few unit tests' tools/check_aarch64
    stage 'a planted bug, begun beside clang-tidy' ended_mutants
elif [ -z "${1:-}" ]; then
    stage 'release, AVX2: unit, op, schedule, mesh and system tests' release
    stage 'address, undefined: unit tests of what parses' parse test-parse
    stage 'address, undefined: corpora of the fuzzers' parse test-parse-fuzz
    stage 'GPU code, compiled to PTX' tools/run_kernels ptx
    stage 'lints that compile nothing' tools/lint light
else
    echo "test.sh: there is no $1: more, long, or nothing" >&2
    exit 2
fi

cat "$log.table"
echo "total $(seconds)"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
