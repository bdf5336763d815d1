/* Preloaded into an nginx, adds the microseconds in the file SHIFT_CLOCK to its real-time clock: see Clock.pm. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *microseconds;
static int (*libc_clock_gettime)(clockid_t clock, struct timespec *time);

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SHIFT_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;

    libc_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *map = mmap(NULL, sizeof *microseconds, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            microseconds = map;
        }
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = libc_clock_gettime(clock, time);

    if (result == 0 && microseconds != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t shifted = time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + *microseconds;
        time->tv_nsec = shifted % 1000000 * 1000 + time->tv_nsec % 1000;
        time->tv_sec = shifted / 1000000;
    }
    return result;
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
