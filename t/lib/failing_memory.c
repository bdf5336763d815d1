/*
 * Has nginx find no memory where a test says so: preloaded into it, this fails one allocation of those
 * that nginx makes for the module.
 *
 * The environment names a file, FAILING_MEMORY, of three numbers of 64 bits: which allocation is to fail,
 * from 1, or 0; how many there were; and whether it has failed.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEPTH = 64 };

struct orders {
    volatile int64_t fails;
    volatile int64_t seen;
    volatile int64_t failed;
};

static struct orders *orders;
static __thread int is_looking;

void *__libc_malloc(size_t size);
static int (*libc_posix_memalign)(void **place, size_t alignment, size_t size);

__attribute__((constructor)) static void begin(void) {
    void *frames[DEPTH];
    const char *name = getenv("FAILING_MEMORY");
    int file = name ? open(name, O_RDWR) : -1;

    libc_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    /* The first time, it allocates. */
    backtrace(frames, DEPTH);
    if (file >= 0) {
        void *map = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            orders = map;
        }
        close(file);
    }
}

/* Where the program or library begins that an address is in. */
static void *base_of(void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Whether nginx, which the caller is, is at work for the module. */
static int is_for_the_module(void *caller) {
    void *frames[DEPTH], *module = base_of(dlsym(RTLD_DEFAULT, "ngx_rate_limiting_api"));
    int count, i;

    if (base_of(caller) != base_of((void *)getauxval(AT_ENTRY))) {
        return 0;
    }
    count = backtrace(frames, DEPTH);
    for (i = 0; i < count; i++) {
        if (base_of(frames[i]) == module) {
            return 1;
        }
    }
    return 0;
}

static int fails(void *caller) {
    int result = 0;

    if (!orders || !orders->fails || is_looking) {
        return 0;
    }
    is_looking = 1;
    if (is_for_the_module(caller)) {
        orders->seen++;
        if (orders->seen == orders->fails) {
            orders->failed = 1;
            result = 1;
        }
    }
    is_looking = 0;
    return result;
}

void *malloc(size_t size) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

int posix_memalign(void **place, size_t alignment, size_t size) {
    if (fails(__builtin_return_address(0))) {
        return ENOMEM;
    }
    return libc_posix_memalign(place, alignment, size);
}
