#!/bin/sh
# quickstart.sh: from a fresh Debian 12 to a trained Mixture-of-Experts language model and its
# report: packages, build, then tools/quickstart, which takes its options. At most three minutes on two
# cores once the packages are there, four with other work on them: the model fits the machine. Writes to
# build/ and runs/quickstart/ only; a second start keeps text and tokenizer.
set -eu
cd "$(dirname "$0")"
tools/packages
QUICKSTART_STARTED=$(date +%s)
export QUICKSTART_STARTED
printf '\n== build (0 s)\n'
# Ops for AVX-512 take a sixth of the build.
sets=''
grep -q avx512vl /proc/cpuinfo || sets=SETS=
# shellcheck disable=SC2086
make -s -j "$(nproc)" $sets
exec tools/quickstart "$@"
