#!/usr/bin/env bash
# Measures how exactly each algorithm limits: runs traffic through the module's own counter table and
# evaluation, with a simulated clock, and compares each decision with an exact moving window's.
#
#   scripts/accuracy.sh            less than two minutes; prints tables, and keeps them in
#                                  docs/accuracy/, with the figures as JSON and as plots, and the
#                                  first in docs/accuracy.md
#   scripts/accuracy.sh --quick    some seconds: less of the traffic, in a build that checks more;
#                                  nothing is kept
#
# Fails if a figure is not within the bounds (scripts/accuracy/bounds.rs). The figures are the same at
# each run and on each machine. docs/accuracy.md explains them.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

simulate=(cargo run --quiet --locked --no-default-features --example accuracy)
case $* in
    --quick)
        # The same build as in scripts/test.sh.
        exec "${simulate[@]}" --profile checked --features stores,conformance,convert -- --quick
        ;;
    '') ;;
    *) die "usage: scripts/accuracy.sh [--quick]" ;;
esac

kept=docs/accuracy
mkdir -p $kept
# A target directory of its own, as in scripts/bench.sh.
CARGO_TARGET_DIR=target/bench "${simulate[@]}" --release -- $kept

# The first table is part of the page.
table=$(<$kept/traffic.txt) perl -0pi -e 's/(## Figures\n\n```\n).*?(```)/$1$ENV{table}\n$2/s' docs/accuracy.md

# plot NAME PROGRAM RESULTS TITLE FIGURE...
plot() { "scripts/$2" "$kept/$3.json" "${@:4}" >"$kept/$1.svg"; }

plot wrong bench/plot.pl traffic 'requests decided wrongly, %' wrong
plot far bench/plot.pl traffic 'requests decided wrongly by more than a tenth of the limit, %' far
plot worst bench/plot.pl traffic 'most hits in any stretch of a window, of the limit' worst
plot load accuracy/curves.pl load 'Poisson, limit 100/1m: requests decided wrongly, %, by load' \
    wrongly_admitted wrongly_rejected
plot load-far accuracy/curves.pl load \
    'Poisson, limit 100/1m: requests decided wrongly by more than a tenth of it, %, by load' far
plot limit accuracy/curves.pl limit \
    'Poisson, load 1: admitted, of what an exact window admits, by limit in a minute' of_exact
