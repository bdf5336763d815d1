/*
 * Sets the clocks of an nginx: preloaded into it, this stops all clocks at the time when nginx started, plus the
 * milliseconds that a test has written to a file (lib/Preload.pm). Two nginxes with one file see the same time pass.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *milliseconds;
static struct timespec begin_real, begin_monotonic;
static int (*libc_clock_gettime)(clockid_t clock, struct timespec *time);

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SET_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;

    libc_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    libc_clock_gettime(CLOCK_REALTIME, &begin_real);
    libc_clock_gettime(CLOCK_MONOTONIC, &begin_monotonic);
    if (file >= 0) {
        void *map = mmap(NULL, 3 * sizeof *milliseconds, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            milliseconds = map;
        }
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int64_t passed;

    if (milliseconds == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE
        && clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE))
    {
        return libc_clock_gettime(clock, time);
    }

    passed = *milliseconds;
    *time = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? begin_real : begin_monotonic;
    time->tv_nsec += passed % 1000 * 1000000;
    time->tv_sec += passed / 1000 + time->tv_nsec / 1000000000;
    time->tv_nsec %= 1000000000;
    return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;

    (void) zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (place != NULL) {
        *place = now.tv_sec;
    }
    return now.tv_sec;
}
