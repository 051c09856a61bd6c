#!/bin/sh
# quickstart.sh: from a fresh Debian 12 to a trained Mixture-of-Experts language model and its
# report: packages, build, English text of two domains, tokenizer, n-gram models to compare with,
# training, a sample. At most five minutes on two cores once the packages are there.
# Writes to build/ and runs/quickstart/ only; a second start keeps text and tokenizer and trains anew.
set -eu
cd "$(dirname "$0")"
PRESET=src/config/presets/quickstart.yaml
RUN=runs/quickstart
DATA=$RUN/data
DOMAINS='postgres bible'
PROMPTS='In the beginning|The table is'
program=build/switchyard

tools/packages
started=$(date +%s)
step() { printf '\n== %s (%s s)\n' "$1" "$(($(date +%s) - started))"; }

step 'build'
make -s -j "$(nproc)"

step 'text: the PostgreSQL manual and the King James Bible'
tools/corpus "$RUN/corpus"

step 'tokenizer and token shards'
mkdir -p "$DATA"
texts='' sources=''
for domain in $DOMAINS; do
    texts="$texts $RUN/corpus/$domain.jsonl"
    sources="$sources $domain=$DATA/$domain"
done
if [ ! -e "$DATA/complete" ]; then
    vocab=$(sed -n 's/^ *vocab: //p' "$PRESET")
    # shellcheck disable=SC2086
    $program data tokenizer train --vocab "$vocab" --out "$DATA/tokenizer.json" $texts
    for domain in $DOMAINS; do
        $program data prepare --tokenizer "$DATA/tokenizer.json" --out "$DATA/$domain" \
            "$RUN/corpus/$domain.jsonl"
    done
    : >"$DATA/complete"
fi

step 'byte n-gram models of the training text'
# shellcheck disable=SC2086
$program data ngram --tokenizer "$DATA/tokenizer.json" --order 2 --order 5 $sources >"$RUN/ngram.txt"
cat "$RUN/ngram.txt"

step 'training'
rm -rf "$RUN/checkpoints" "$RUN/metrics.jsonl"
$program train quickstart >"$RUN/train.txt"

step 'text from the model'
echo "$PROMPTS" | tr '|' '\n' | while read -r prompt; do
    $program generate "$RUN" --prompt "$prompt" --tokens 60 --seed 1 </dev/null
    echo
done >"$RUN/sample.txt"

step 'result'
sed -n '/^held-out/p' "$RUN/train.txt"
awk '$1 == "all" { printf "of byte n-grams       %.3f bigram, %.3f 5-gram\n", $4, $5 }' "$RUN/ngram.txt"
sed -n '/^least/p' "$RUN/train.txt"
printf '\n'
cat "$RUN/sample.txt"
sed -n '/^report/p' "$RUN/train.txt"
