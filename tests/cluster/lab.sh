# lab.sh: read with `.` by the scripts of this folder: a folder with data and the configuration of a
# tiny model, and what two runs must share. $program is the program, $lab the folder.
set -u
program=$(realpath "${1:?the program is missing}")
lab=$(mktemp -d /tmp/switchyard_cluster_XXXXXX)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# A script that cannot run where it is says why; tools/run_mpi counts it as skipped.
skip_all() {
    echo "skip: $1"
    rm -rf "$lab"
    exit 77
}

die() {
    echo "$1"
    exit 1
}

[ "$(id -u)" -eq 0 ] || skip_all 'this takes root'

make_lab() {
    cd "$lab" || exit 1
    awk 'BEGIN { srand(7); for (i = 0; i < 4000; i++) {
        n = 4 + int(rand() * 12)
        for (j = 0; j < n; j++) printf "w%d ", int(rand() * rand() * 300)
        print "" } }' >text.txt
    "$program" data tokenizer train --vocab 512 --out tokenizer.json text.txt >/dev/null 2>&1 &&
        "$program" data prepare --tokenizer tokenizer.json --split line --out text text.txt \
            >/dev/null 2>&1 || die 'the data was not made'
    cat >tiny.yaml <<'YAML'
run: {threads: 1}
model: {vocab: 512, hidden: 32, layers: 4, ffn: 48}
attention: {heads: 2, kv_rank: 16, nope_dim: 8, rope_dim: 4, v_dim: 8}
moe: {experts: 4, ffn: 24, buffers: worst}
mesh: {pp: 2, ep: 2, zero: 2}
comm: {timeout_s: 60}
data: {sequence: 32, tokenizer: tokenizer.json, sources: [{name: text, path: text}]}
train: {batch: 8, micro_batch: 2, steps: 20}
YAML
}

# losses RUN: of each step, to the last digit.
losses() { sed -n 's/.*"kind":"step","step":\([0-9]*\),\("loss":[^,]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

# same_losses A B STEPS
same_losses() {
    losses "$1" >"$1.losses"
    losses "$2" >"$2.losses"
    [ "$(wc -l <"$1.losses")" -eq "$3" ] || die "$1 has no $3 steps"
    cmp "$1.losses" "$2.losses" || die "the losses of $1 and $2 differ"
}
