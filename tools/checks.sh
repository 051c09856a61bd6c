# checks.sh: read with `.` by scripts whose steps count as tests. check NAME COMMAND... runs one;
# checks_end prints the line that test.sh adds up, and fails if any step did.
passed=0 failed=0 skipped=0
checks_log=$(mktemp)
trap 'rm -f "$checks_log"' EXIT

tenths() { echo $(($(date +%s%N) / 100000000)); }

# took SINCE: "1.5 s"
took() {
    now=$(tenths)
    echo "$(((now - $1) / 10)).$(((now - $1) % 10)) s"
}

check() {
    name=$1 since=$(tenths)
    shift
    if "$@" >"$checks_log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "ok     $name  ($(took "$since"))"
    else
        failed=$((failed + 1))
        echo "FAILED $name  ($(took "$since"))"
        head -n 200 "$checks_log"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "skip   $1: $2"
}

checks_end() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
}
