/*
 * The calls that read a clock, for libraries that are preloaded into nginx (lib/Preload.pm). Each defines
 * `clock_gettime`, which the other calls use, and a constructor that calls `find_clock`.
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

/* The number that a test has written to the file; NULL without a file. */
static volatile int64_t *order;
static int (*libc_clock_gettime)(clockid_t clock, struct timespec *time);

/* Finds libc's clock, and the file that this variable of the environment names. */
static void find_clock(const char *variable) {
    const char *name = getenv(variable);
    int file = name ? open(name, O_RDONLY) : -1;

    libc_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *map = mmap(NULL, sizeof *order, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            order = map;
        }
        close(file);
    }
}

static int is_real_time(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
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
