/* Shifts the clock of an nginx: preloaded into it, this adds the microseconds in the file SHIFT_CLOCK to real time. */

#include "clock_calls.h"

__attribute__((constructor)) static void begin(void) { find_clock("SHIFT_CLOCK"); }

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = libc_clock_gettime(clock, time);

    if (result == 0 && order != NULL && is_real_time(clock)) {
        int64_t shifted = time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + *order;
        time->tv_nsec = shifted % 1000000 * 1000 + time->tv_nsec % 1000;
        time->tv_sec = shifted / 1000000;
    }
    return result;
}
