#!/bin/sh
# Compares a new build of a program with its baseline, for any CI that runs a shell.
#
#     compare.sh BASELINE.json PROGRAM [ARGUMENT...]
#
# ends with
#     0  within the limits
#     1  a limit is exceeded
#     2  there is no baseline, the two cannot be compared, or something failed
# and leaves next-baseline.json, the results of this build. To accept a change, commit that file as the baseline. A first
# baseline is made in the same way. A comparison leaves its tables in comparison.md and all figures in comparison.json.
set -u

if [ $# -lt 2 ]; then
    echo "usage: $0 BASELINE.json PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
baseline=$1
shift

# What an earlier run left would pass for results of this one.
rm -f comparison.md comparison.json next-baseline.json || exit 2

if [ ! -e "$baseline" ]; then
    # Compared with itself, a program is recorded and replayed as all later ones are.
    pagelab compare --quiet --save next-baseline.json -- "$@" -- "$@" >/dev/null || exit 2
    echo "$0: $baseline does not exist, so nothing was compared. Commit next-baseline.json as $baseline" >&2
    exit 2
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
