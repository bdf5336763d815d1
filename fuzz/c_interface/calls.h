/*
 * Shared by module.c and calls.c.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ngx_rate_limiting.h"

/* Ends the process, which libFuzzer reports, if something does not hold. */
#define CHECK(holds)                                                          \
    do {                                                                      \
        if (!(holds)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);       \
            abort();                                                          \
        }                                                                     \
    } while (0)

/* The functions, which module.c finds. */
extern const ngx_rate_limiting_api_t  *api;

/* Makes the calls of an input. */
int one_input(const uint8_t *data, size_t size);
