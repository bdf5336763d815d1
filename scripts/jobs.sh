# Sourced by scripts/test.sh and scripts/loop.sh: runs jobs in parallel, and prints the time of each.
#
# A job has a name, the names of the jobs that it follows, and a command. It is started as soon as
# these have ended well and a slot is free; of several, the one that was named first. The first job
# that fails ends all others, unless TEST_GO_ON is set. A job finds
#
#   TMPDIR   a directory of its own, which is removed in the end
#   JOBS     the directory with those of services, which have the services' names
#   PORT     the first of 20 ports that are its own, even if the tests run several times at once
# shellcheck shell=bash

# More than processors, since many tests mostly wait.
slots=$(($(nproc) + 4))

names=()               # of all jobs, as they were named
declare -A kind=()     # step, service, check or tests
declare -A after=()    # the names of those that it follows
declare -A command=()  # in words that `eval` takes
declare -A state=()    # '', running or ended
passed=0
failed=()              # the names of those that have failed

# step NAME AFTER COMMAND...: a job without tests. A name has no space; AFTER may be several names.
step() { add_job step "$@"; }

# service NAME AFTER COMMAND...: a job without tests, which starts processes for the jobs that follow it. The
# processes run until all jobs have ended.
service() { add_job service "$@"; }

# check NAME AFTER COMMAND...: a job that is one test.
check() { add_job check "$@"; }

# tests NAME AFTER COMMAND...: a job whose output lists the tests that it ran, at least one.
tests() { add_job tests "$@"; }

add_job() {
    local other
    [ -z "${kind[$2]:-}" ] || die "two jobs are called $2"
    # A job follows only jobs that were named before it, so no jobs wait for each other.
    for other in $3; do
        [ -n "${kind[$other]:-}" ] || die "$2 follows $other, which is no job so far"
    done
    names+=("$2")
    kind[$2]=$1 after[$2]=$3 state[$2]=
    command[$2]=$(printf '%q ' "${@:4}")
}

# run_jobs DIR: runs all jobs. Writes their output, and the table of their times, to files in DIR.
run_jobs() {
    local job status
    kept=$1
    rm -rf "$kept"
    mkdir -p "$kept"
    work=$(mktemp -d)
    chmod 755 "$work"
    trap 'end_jobs "$work/*"; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    # Jobs report their end here.
    mkfifo "$work/ended"
    exec {ended}<>"$work/ended"
    start_jobs
    while [ -n "$(running)" ]; do
        if read -r -t 60 status job <&"$ended"; then
            finish_job "$job" "$status"
            start_jobs
        else
            say "$(clock)  still: $(running)"
        fi
    done
    # They keep nothing.
    for job in "${names[@]}"; do
        [ "${kind[$job]}" != service ] || end_jobs "$(dir_of "$job")" KILL
    done
    print_table | tee "$kept/table"
    [ ${#failed[@]} = 0 ] || end_failed
    printf '%d passed, 0 failed\n' "$passed"
}

start_jobs() {
    local job
    for job in "${names[@]}"; do
        [ "$(running | wc -w)" -lt "$slots" ] || return 0
        if [ -z "${state[$job]}" ] && is_ready "$job"; then
            state[$job]=running
            start_job "$job"
        fi
    done
}

running() {
    local job
    for job in "${names[@]}"; do
        [ "${state[$job]}" != running ] || printf '%s ' "$job"
    done
}

is_ready() {
    local other
    for other in ${after[$1]}; do
        [ "${state[$other]}" = ended ] || return 1
    done
}

# In a process group of its own, so that ctrl-C reaches only the script, which ends all in order.
start_job() {
    local dir
    dir=$(dir_of "$1")
    mkdir -m 755 "$dir"
    set -m
    job_process "$1" "$dir" </dev/null >"$(log_of "$1")" 2>&1 &
    set +m
}

dir_of() { printf '%s\n' "$work/${1//\//-}"; }
log_of() { printf '%s\n' "$kept/${1//\//-}.log"; }

# Everything that the job starts, daemons too, has its file `held` open: so `end_jobs` finds it.
job_process() {
    local TIMEFORMAT='%R %U %S'
    job=$1 status=1
    exec {held}>"$2/held"
    trap 'exec {held}>&-; printf "%s %s\n" "$status" "$job" >&"$ended"' EXIT
    export TMPDIR=$2 JOBS=$work PORT
    take_ports
    printf '%s ' $SECONDS >"$2/times"
    # `set -e` has no effect in a command whose status is tested.
    set +e
    { time { (set -e; eval "${command[$1]}") 2>&1; }; } 2>>"$2/times"
    status=$?
}

# Sets PORT to the first of 20 ports which no other job has, and on which nobody listens. They are
# the job's as long as one of its processes has the locked file open. Below 10,000 more, the ports of
# a Redis Cluster's own connections, none is one that the system gives to clients.
take_ports() {
    local port locks=/tmp/ratelimit-test-ports
    mkdir -p -m 1777 $locks
    for ((PORT = 19000; PORT < 22000; PORT += 20)); do
        exec {lock}>>"$locks/$PORT" || continue
        if flock -n "$lock"; then
            for ((port = PORT; port < PORT + 20; port++)); do
                ! port_in_use "$port" || break
            done
            [ $port -lt $((PORT + 20)) ] || return 0
        fi
        exec {lock}>&-
    done
    die "no 20 free ports from 19000 to 22000"
}

finish_job() {
    local job=$1 count=0 dir started took user system
    dir=$(dir_of "$job")
    state[$job]=ended
    [ "${kind[$job]}" = service ] || end_jobs "$dir"
    [ "$2" = 0 ] || { fail "$job" "exit status $2"; return; }
    read -r started took user system <"$dir/times"
    case ${kind[$job]} in
        check) count=1 ;;
        tests)
            count=$(awk '/^test result: ok\. / { n += $4 }
                         /^Files=[0-9]+, Tests=/ { sub(/.*Tests=/, ""); n += $1 + 0 }
                         /^ok - / { n++ }
                         END { print n + 0 }' "$(log_of "$job")")
            [ "$count" -gt 0 ] || fail "$job" "no test was run"
            ! grep -qaE '^t/.* skipped|; [1-9][0-9]* ignored;' "$(log_of "$job")" ||
                fail "$job" "a test was skipped"
            ;;
    esac
    passed=$((passed + count))
    printf '%s %s %s %s %s %s\n' "$started" "$took" "$user" "$system" "$count" "$job" >>"$work/table"
    say "$(clock)  $job: $([ "$count" = 0 ] || echo "$count passed, ")${took%.*} s"
    [ "${kind[$job]}" = service ] || rm -rf "$dir"
}

fail() {
    tail -n 200 "$(log_of "$1")" >&2
    say "FAILED: $1: $2; all that it printed is in ${kept#"$root"/}"
    failed+=("$1")
    [ -n "${TEST_GO_ON:-}" ] || end_failed
}

end_failed() {
    say "FAILED: ${failed[*]}"
    printf '%d passed, %d failed\n' "$passed" ${#failed[@]}
    exit 1
}

clock() { printf '%3d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }

# One line for each job: its start, its duration, and its processor time.
print_table() {
    local line='%8s %8s %8s %8s  %s\n'
    # shellcheck disable=SC2059
    printf "$line" start seconds CPU passed job
    sort -n "$work/table" | awk -v line="$line" '
        { cpu = $3 + $4; all += cpu; passed += $5
          printf line, sprintf("%d:%02d", $1 / 60, $1 % 60), sprintf("%.1f", $2), sprintf("%.1f", cpu), $5, $6 }
        END { printf line, "", sprintf("%.1f", '$SECONDS'), sprintf("%.1f", all), passed, "all" }'
}

# end_jobs PATTERN [SIGNAL]: ends all processes of the jobs whose directories match: at first as they
# wish, or by this signal.
end_jobs() {
    local signal processes i
    for signal in ${2:-TERM KILL}; do
        for ((i = 0; i < 50; i++)); do
            # Processes may end meanwhile, and others' cannot be looked into.
            processes=$(find /proc/[0-9]*/fd -lname "$1/held" 2>/dev/null | cut -d / -f 3 | sort -u || true)
            [ -n "$processes" ] || return 0
            # shellcheck disable=SC2086 # some may have ended
            [ $i != 0 ] || kill -$signal $processes 2>/dev/null || true
            sleep 0.1
        done
    done
}
