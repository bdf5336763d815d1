/*
 * Calls of the C interface, as an input selects them: for each, a byte that selects a function, and its arguments.
 *
 * Whatever they are, within the contract of the header, a call returns a code that the header has, writes nothing but
 * what that says, and explains each error.  `ready` is called once for each question, and never for one that was forgotten.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include <math.h>

#include "calls.h"
#include "input.h"

/* What places of results have before a call. */
#define UNSET  -77.0
/* What the text of an error is surrounded by. */
#define GUARD  0x5a

const ngx_rate_limiting_api_t  *api;

/* Handles that were returned to this input; the last one is the newest. */
static ngx_rate_limiting_handle_t  handles[8];

typedef enum { FREE, ASKED, READY } state_t;

/* Questions; `data` of each points to it. */
static struct { ngx_rate_limiting_wait_t wait; state_t state; } questions[8];
/* The question that is being asked. */
static ngx_uint_t  asking;

static u_char  text[512];
static size_t  text_size;


static ngx_rate_limiting_handle_t
handle(void)
{
    uint8_t  which = byte();

    if (which < 128) {
        return handles[which % 8];
    }
    return which == 255 ? UINT32_MAX : which == 254 ? (uint32_t) byte() << 24 | byte() : which - 128;
}


/* Where the text of an error goes; `text_size` is its size. */
static char *
error(void)
{
    static const size_t  sizes[] = { 256, 256, 256, 0, 1, 2, 20, 0 };
    uint8_t              which = byte() % 8;

    memset(text, GUARD, sizeof(text));
    text_size = sizes[which];
    return which == 7 ? NULL : (char *) text + 64;
}


/* Checks what every function returns, and the text of its error. */
static int
returned(int code)
{
    size_t   i;
    u_char  *end, *start = text + 64;

    CHECK(code >= NGX_RATE_LIMITING_STALE && code <= NGX_RATE_LIMITING_WAIT);
    for (i = 0; i < sizeof(text); i++) {
        if (i < 64 || i >= 64 + text_size || code >= 0) {
            CHECK(text[i] == GUARD);
        }
    }
    if (code < 0 && text_size > 0) {
        end = memchr(start, '\0', text_size);
        CHECK(end != NULL && (text_size == 1 || end > start));
    }
    return code;
}


static void
found(ngx_rate_limiting_handle_t handle, int code)
{
    CHECK((code >= 0) == (handle != 0));
    if (handle != 0) {
        memmove(handles, handles + 1, sizeof(handles) - sizeof(handles[0]));
        handles[7] = handle;
    }
}


static void
counted(double rate, int code)
{
    CHECK(code == NGX_RATE_LIMITING_OK ? rate >= 0 && isfinite(rate) : rate == UNSET);
}


static void
decided(const ngx_rate_limiting_result_t *result, int code)
{
    if (code != NGX_RATE_LIMITING_OK && code != NGX_RATE_LIMITING_REJECTED) {
        CHECK(result->rate == UNSET && result->remaining == UNSET && result->delay == UNSET);
        return;
    }
    CHECK(result->rate >= 0 && isfinite(result->rate));
    CHECK(result->remaining >= 0 && isfinite(result->remaining));
    CHECK(result->delay >= 0 && isfinite(result->delay));
    CHECK(result->retry_after == -1 || (result->retry_after >= 0 && isfinite(result->retry_after)));
}


static void
take(ngx_uint_t i)
{
    int                         code;
    char                       *at = error();
    ngx_rate_limiting_result_t  result = { UNSET, UNSET, UNSET, UNSET };

    code = returned(api->take(questions[i].wait.ticket, &result, at, text_size));
    decided(&result, code);
    /* Whether there is an answer. It is taken once. */
    CHECK((code >= 0) <= (questions[i].state == READY));
    if (questions[i].state == READY) {
        questions[i].state = FREE;
    }
}


static int
ready(void *data, int n)
{
    ngx_uint_t  i = (ngx_uint_t) data;

    CHECK(n == 1 && i < 8 && asking != i + 1 && questions[i].state == ASKED);
    questions[i].state = READY;
    if (byte() % 2) {
        take(i);
    }
    return 0;
}


static void
forget(ngx_uint_t i)
{
    api->forget(questions[i].wait.ticket);
    questions[i].state = FREE;
}


/* Begins a question, in a place of its own. */
static ngx_rate_limiting_wait_t *
ask(ngx_uint_t i)
{
    if (questions[i].state != FREE) {
        forget(i);
    }
    questions[i].wait.ready = ready;
    questions[i].wait.data = (void *) i;
    questions[i].wait.ticket = 0;
    asking = i + 1;
    return &questions[i].wait;
}


static void
asked(ngx_uint_t i, int code)
{
    asking = 0;
    CHECK((code == NGX_RATE_LIMITING_WAIT) == (questions[i].wait.ticket != 0));
    if (code == NGX_RATE_LIMITING_WAIT) {
        questions[i].state = ASKED;
    }
}


static void
new_namespace(void)
{
    char                        *at;
    double                       sizes[4];
    uint8_t                      given;
    ngx_uint_t                   i;
    ngx_rate_limiting_str_t      opts[6];
    ngx_rate_limiting_handle_t   instance = handle();
    static const size_t          ends[] = { 0, 8, offsetof(ngx_rate_limiting_options_t, strategy_opts) };
    ngx_rate_limiting_options_t  options = NGX_RATE_LIMITING_OPTIONS;

    options.name = str();
    given = byte();
    if (given & 1) {
        options.dict = str();
    }
    if (given & 2) {
        options.sync_rate = number();
    }
    if (given & 4) {
        options.store = str();
    }
    if (given & 8) {
        for (i = 0; i < 4; i++) {
            sizes[i] = number();
        }
        options.window_sizes = given & 16 ? NULL : sizes;
        options.window_sizes_n = byte() % 5;
    }
    if (given & 32) {
        options.strategy = str();
        for (i = 0; i < 6; i++) {
            opts[i] = str();
        }
        options.strategy_opts = given & 64 ? NULL : opts;
        options.strategy_opts_n = byte() % 7;
    }
    if (given & 128) {
        options.size = ends[byte() % 3];
    }
    at = error();
    returned(api->new_namespace(instance, &options, at, text_size));
}


static void
new_limiter(void)
{
    int                          code;
    char                        *at;
    uint8_t                      given;
    ngx_rate_limiting_limit_t    limit = NGX_RATE_LIMITING_LIMIT;
    ngx_rate_limiting_handle_t   instance = handle(), made = 0;
    static const size_t          ends[] = { 0, 8, offsetof(ngx_rate_limiting_limit_t, concurrent) };

    limit.name = str();
    given = byte();
    if (given & 1) {
        limit.limit = number();
    }
    if (given & 2) {
        limit.window = number();
    }
    if (given & 4) {
        limit.window_type = str();
    }
    if (given & 8) {
        limit.rate = number();
    }
    if (given & 16) {
        limit.burst = number();
    }
    if (given & 32) {
        limit.concurrent = number();
    }
    if (given & 64) {
        limit.size = ends[byte() % 3];
    }
    at = error();
    code = returned(api->new_limiter(instance, &limit, &made, at, text_size));
    found(made, code);
}


static void
woken(ngx_event_t *event)
{
}


/* Lets the event loop do what there is to do, for a millisecond. */
static void
turn(void)
{
    static ngx_event_t  timer;

    timer.handler = woken;
    timer.log = ngx_cycle->log;
    ngx_add_timer(&timer, 1);
    ngx_process_events_and_timers((ngx_cycle_t *) ngx_cycle);
}


static void
call(void)
{
    int                          code;
    char                        *at;
    double                       a, b, c, rate = UNSET;
    uint8_t                      function = byte();
    ngx_uint_t                   i;
    ngx_rate_limiting_str_t      key;
    ngx_rate_limiting_result_t   result = { UNSET, UNSET, UNSET, UNSET };
    ngx_rate_limiting_handle_t   of, made = 0;

    switch (function % 16) {
    case 0:
        key = str();
        at = error();
        code = returned(api->new_instance(key.data, key.len, &made, at, text_size));
        found(made, code);
        break;

    case 1:
        new_namespace();
        break;

    case 2:
        of = handle();
        key = str();
        at = error();
        code = returned(api->find(of, key.data, key.len, &made, at, text_size));
        found(made, code);
        break;

    case 3:
        of = handle();
        key = str();
        a = number(), b = number(), c = number();
        at = error();
        code = returned(api->increment(of, key.data, key.len, a, b, c, &rate, at, text_size));
        counted(rate, code);
        break;

    case 4:
        of = handle();
        key = str();
        a = number(), b = number(), c = number();
        i = byte();
        at = error();
        code = returned(api->sliding_window(of, key.data, key.len, a, i % 2 ? &b : NULL, c, &rate, at, text_size));
        counted(rate, code);
        break;

    case 5:
        of = handle();
        at = error();
        returned(api->sync(of, at, text_size));
        break;

    case 6:
        of = handle();
        a = number(), b = number();
        at = error();
        returned(api->fetch(of, a, b, at, text_size));
        break;

    case 7:
        new_limiter();
        break;

    case 8:
    case 9:
        of = handle();
        key = str();
        a = number();
        i = byte() % 2;
        at = error();
        code = returned(api->incoming(of, key.data, key.len, a, i, &result, at, text_size));
        decided(&result, code);
        break;

    case 10:
        of = handle();
        key = str();
        at = error();
        returned(api->uncommit(of, key.data, key.len, at, text_size));
        break;

    case 11:
        i = byte() % 8;
        of = handle();
        key = str();
        a = number(), b = number(), c = number();
        at = error();
        code = returned(api->increment_async(of, key.data, key.len, a, b, c, ask(i), &result, at, text_size));
        asked(i, code);
        decided(&result, code);
        break;

    case 12:
        i = byte();
        of = handle();
        key = str();
        a = number();
        at = error();
        code = returned(api->incoming_async(of, key.data, key.len, a, i >> 3 & 1, ask(i % 8), &result, at, text_size));
        asked(i % 8, code);
        decided(&result, code);
        break;

    case 13:
        take(byte() % 8);
        break;

    case 14:
        i = byte();
        if (i < 128) {
            forget(i % 8);
        } else {
            turn();
        }
        break;

    default:
        key = str();
        at = error();
        code = returned(api->window(key.data, key.len, &rate, at, text_size));
        CHECK((code == NGX_RATE_LIMITING_OK) == (rate != UNSET));
    }
}


int
one_input(const uint8_t *data, size_t size)
{
    ngx_uint_t  i;

    next = data;
    left = size;
    memset(handles, 0, sizeof(handles));
    for (i = 0; i < 200 && left > 0; i++) {
        call();
    }
    for (i = 0; i < 8; i++) {
        if (questions[i].state != FREE) {
            forget(i);
        }
    }

    return 0;
}
