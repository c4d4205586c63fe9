#!/bin/sh
# Compares a new build of a program with its baseline, for any CI that runs a shell.
#
#     compare.sh BASELINE PROGRAM [ARGUMENT...]
#
# ends with
#     0      within the limits
#     1      a limit is exceeded
#     other  2 if there is no baseline or the two cannot be compared; 127, for example, without pagelab
# and leaves next-baseline.json, the results of this build. To accept a change, commit that file as the baseline. A first
# baseline is made in the same way. A comparison leaves its tables in comparison.md and all figures in comparison.json.
#
# A program with threads, or one that does not do the same each time, is recorded several times: with REPEAT=6 in the
# environment, baselines are folders of six files, here next-baseline, and limits are judged by intervals.
set -u

if [ $# -lt 2 ]; then
    echo "usage: $0 BASELINE PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
baseline=$1
shift
repeat=${REPEAT:-1}
next=next-baseline.json
[ "$repeat" = 1 ] || next=next-baseline

# What an earlier run left would pass for results of this one.
rm -rf comparison.md comparison.json "$next" || exit 2

if [ ! -e "$baseline" ]; then
    # Compared with itself, a program is recorded and replayed as all later ones are.
    pagelab compare --quiet --repeat "$repeat" --save "$next" -- "$@" -- "$@" >/dev/null || exit
    echo "$0: $baseline does not exist, so nothing was compared. Commit $next as $baseline" >&2
    exit 2
fi

pagelab compare "$baseline" --repeat "$repeat" \
    --fail-if 'cycles>+5%' --fail-if 'walks>+10%' --fail-if 'faults>+10%' \
    --markdown comparison.md --json comparison.json --save "$next" --quiet -- "$@"
status=$?
# GitHub shows what is appended to this file on the page of the run.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -e comparison.md ]; then
    cat comparison.md >>"$GITHUB_STEP_SUMMARY"
fi
exit $status
