/*
 * Has the thread that syncs be late: preloaded into nginx, this keeps an answer of the store from it until
 * the process has destroyed all that it has, and is about to end. Then the thread goes on, and the process
 * ends when the thread has done what it does with the answer, or has ended itself.
 *
 * The environment names a file, LATE_THREAD, of three numbers of 64 bits: whether this is to be done;
 * whether the thread was held; and whether it went on, as far as that.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TICK = 1000000, TICKS = 10000 };

struct orders {
    volatile int64_t is_on;
    volatile int64_t was_held;
    volatile int64_t went_on;
};

static struct orders *orders;
static volatile int is_over, has_answer;

static void *libc(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("LATE_THREAD");
    int file = name ? open(name, O_RDWR) : -1;
    void *map;

    if (file < 0) {
        return;
    }
    map = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) {
        orders = map;
    }
    close(file);
}

static int is_thread(void) {
    return orders && orders->is_on && syscall(SYS_gettid) != getpid();
}

static void tick(void) {
    struct timespec time = {0, TICK};
    nanosleep(&time, NULL);
}

ssize_t recv(int socket, void *bytes, size_t length, int flags) {
    ssize_t (*next)(int, void *, size_t, int) = libc("recv");
    ssize_t got = next(socket, bytes, length, flags);

    if (got > 0 && is_thread()) {
        orders->was_held = 1;
        while (!is_over) {
            tick();
        }
        has_answer = 1;
    }
    return got;
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
    int (*next)(int, struct epoll_event *, int, int) = libc("epoll_wait");

    if (has_answer && is_thread()) {
        orders->went_on = 1;
    }
    return next(epoll, events, count, timeout);
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = -2;

    while (tasks && readdir(tasks)) {
        count++;
    }
    if (tasks) {
        closedir(tasks);
    }
    return count;
}

void exit(int status) {
    void (*next)(int) = libc("exit");
    int ticks;

    is_over = 1;
    if (orders && orders->is_on && orders->was_held) {
        for (ticks = 0; ticks < TICKS && !orders->went_on; ticks++) {
            if (threads() == 1) {
                orders->went_on = 1;
            }
            tick();
        }
    }
    next(status);
    __builtin_unreachable();
}
