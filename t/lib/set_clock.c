/*
 * Sets the clocks of an nginx: preloaded into it, this stops all clocks at the time when nginx started, plus the
 * milliseconds that a test has written to the file SET_CLOCK. Two nginxes with one file see the same time pass.
 */

#include "clock_calls.h"

static struct timespec begin_real, begin_monotonic;

__attribute__((constructor)) static void begin(void) {
    find_clock("SET_CLOCK");
    libc_clock_gettime(CLOCK_REALTIME, &begin_real);
    libc_clock_gettime(CLOCK_MONOTONIC, &begin_monotonic);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int64_t passed;

    if (order == NULL || !(is_real_time(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
        return libc_clock_gettime(clock, time);
    }

    passed = *order;
    *time = is_real_time(clock) ? begin_real : begin_monotonic;
    time->tv_nsec += passed % 1000 * 1000000;
    time->tv_sec += passed / 1000 + time->tv_nsec / 1000000000;
    time->tv_nsec %= 1000000000;
    return 0;
}
