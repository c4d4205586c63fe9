#!/bin/sh
# Compares a new build of a program with its baseline, for any CI that runs a shell.
#
#     compare.sh BASELINE.json PROGRAM [ARGUMENT...]
#
# The first run writes the baseline, and ends with status 0. Later runs end with
#     0  within the limits
#     1  a limit is exceeded
#     2  not comparable, or something failed
# and leave a summary in comparison.md, all figures in comparison.json, and in next-baseline.json what becomes the
# baseline once the change is accepted.
set -u

if [ $# -lt 2 ]; then
    echo "usage: $0 BASELINE.json PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
baseline=$1
shift

if [ ! -e "$baseline" ]; then
    folder=$(mktemp -d) || exit 2
    trap 'rm -rf "$folder"' EXIT
    pagelab record --quiet -o "$folder/baseline.trace" -- "$@" >"$folder/output" || exit 2
    pagelab run --quiet "$folder/baseline.trace" --profile --json "$baseline" >/dev/null || exit 2
    echo "$baseline: written; there is nothing to compare with yet"
    exit 0
fi

pagelab compare "$baseline" \
    --fail-if 'cycles>+5%' --fail-if 'walks>+10%' --fail-if 'faults>+10%' \
    --markdown comparison.md --json comparison.json --save next-baseline.json --quiet -- "$@"
status=$?
# GitHub shows what is appended to this file on the page of the run.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -e comparison.md ]; then
    cat comparison.md >>"$GITHUB_STEP_SUMMARY"
fi
exit $status
