/*
 * A module that calls the C interface, for t/c-api.t: a location with `c_api_test` calls the function that
 * its arguments name, and answers with what came of it.
 *
 *     /c?f=increment&h=1&k=key&w=60&v=1        ->   0 rate=1
 *
 * Where processes begin, it calls some functions too, and logs what they return.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <dlfcn.h>

#include "ngx_rate_limiting.h"

static const ngx_rate_limiting_api_t  *api;

typedef struct {
    ngx_http_request_t         *request;
    ngx_rate_limiting_wait_t    wait;
    /* Where `ready` asks again, or 0. */
    ngx_rate_limiting_handle_t  again;
} c_api_ctx_t;

/* The sentinel that says that nothing was written. */
#define UNSET  -77.0

static char *c_api_test(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t c_api_postconfiguration(ngx_conf_t *cf);
static ngx_int_t c_api_init_module(ngx_cycle_t *cycle);
static ngx_int_t c_api_init_process(ngx_cycle_t *cycle);

static ngx_command_t  c_api_commands[] = {
    { ngx_string("c_api_test"), NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS, c_api_test, 0, 0, NULL },
    ngx_null_command
};

static ngx_http_module_t  c_api_ctx = {
    NULL, c_api_postconfiguration, NULL, NULL, NULL, NULL, NULL, NULL
};

ngx_module_t  c_api_module = {
    NGX_MODULE_V1,
    &c_api_ctx,
    c_api_commands,
    NGX_HTTP_MODULE,
    NULL,
    c_api_init_module,
    c_api_init_process,
    NULL,
    NULL,
    NULL,
    NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &c_api_module, NULL };
char          *ngx_module_names[] = { "c_api_module", NULL };
char          *ngx_module_order[] = { NULL };


static ngx_int_t
arg(ngx_http_request_t *r, char *name, ngx_str_t *value)
{
    u_char     *dst, *src;
    ngx_str_t   raw;

    ngx_str_null(value);
    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &raw) != NGX_OK) {
        return NGX_DECLINED;
    }

    dst = ngx_pnalloc(r->pool, raw.len + 1);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    value->data = dst;
    src = raw.data;
    ngx_unescape_uri(&dst, &src, raw.len, 0);
    value->len = dst - value->data;
    *dst = '\0';
    return NGX_OK;
}


static double
number(ngx_http_request_t *r, char *name, double otherwise)
{
    ngx_str_t  value;

    return arg(r, name, &value) == NGX_OK ? strtod((char *) value.data, NULL) : otherwise;
}


static ngx_int_t
answer(ngx_http_request_t *r, int code, char *text, char *error)
{
    u_char       *last;
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_create_temp_buf(r->pool, 2048);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    last = ngx_snprintf(b->last, 2048, "%d%s%s %s", code, *text ? " " : "", text, error);
    b->last = last;
    b->last_buf = 1;
    b->last_in_chain = 1;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = last - b->pos;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;
    return ngx_http_output_filter(r, &out);
}


static void
print_result(char *text, size_t size, ngx_rate_limiting_result_t *result)
{
    snprintf(text, size, "rate=%.15g remaining=%.15g delay=%.15g retry_after=%.15g",
             result->rate, result->remaining, result->delay, result->retry_after);
}


static void
c_api_forget(void *data)
{
    c_api_ctx_t  *ctx = data;

    api->forget(ctx->wait.ticket);
}


static int
c_api_ignore(void *data, int n)
{
    return 0;
}


static int
c_api_ready(void *data, int n)
{
    int                          code, again;
    char                         error[256] = "", text[256] = "";
    c_api_ctx_t                 *ctx = data;
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_rate_limiting_result_t   result = { UNSET, UNSET, UNSET, UNSET };

    r = ctx->request;
    c = r->connection;
    code = api->take(ctx->wait.ticket, &result, error, sizeof(error));
    print_result(text, sizeof(text), &result);
    if (n != 1 || api->take(ctx->wait.ticket, &result, NULL, 0) != NGX_RATE_LIMITING_INVALID) {
        code = 99;
    }

    if (ctx->again) {
        ngx_rate_limiting_wait_t  wait = { c_api_ignore, NULL, 0 };

        again = api->increment_async(ctx->again, "again", 5, 31622400, 1, 0, &wait, &result, NULL, 0);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " again=%d", again);
    }

    ngx_http_finalize_request(r, answer(r, code, text, error));
    ngx_http_run_posted_requests(c);
    return 0;
}


static ngx_int_t
c_api_wait(ngx_http_request_t *r, c_api_ctx_t *ctx)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = c_api_forget;
    cln->data = ctx;
    if (api->take(ctx->wait.ticket, NULL, NULL, 0) != NGX_RATE_LIMITING_INVALID) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->main->count++;
    return NGX_DONE;
}


/* Locks the first zone, as a process does that defines a namespace, or unlocks it. */
static int
c_api_lock(ngx_uint_t lock)
{
    ngx_shm_zone_t   *zones = ngx_cycle->shared_memory.part.elts;
    ngx_slab_pool_t  *pool = (ngx_slab_pool_t *) zones[0].shm.addr;

    if (!lock) {
        ngx_shmtx_unlock(&pool->mutex);
        return 1;
    }

    return ngx_shmtx_trylock(&pool->mutex);
}

static ngx_int_t
c_api_handler(ngx_http_request_t *r)
{
    int                           code = 98;
    char                          error[256] = "", text[256] = "";
    char                         *message = error;
    size_t                        size = sizeof(error);
    double                        window, value, weight, rate = UNSET, diff;
    double                        sizes[4];
    ngx_str_t                     f, key, name, opt;
    c_api_ctx_t                  *ctx;
    ngx_uint_t                    i, n, times;
    ngx_rate_limiting_limit_t     limit = NGX_RATE_LIMITING_LIMIT;
    ngx_rate_limiting_handle_t    h, made = 0;
    ngx_rate_limiting_result_t    result = { UNSET, UNSET, UNSET, UNSET };
    ngx_rate_limiting_options_t   options = NGX_RATE_LIMITING_OPTIONS;

    if (ngx_http_discard_request_body(r) != NGX_OK || arg(r, "f", &f) != NGX_OK) {
        return NGX_HTTP_BAD_REQUEST;
    }

    arg(r, "k", &key);
    if (arg(r, "len", &opt) == NGX_OK) {
        key.len = ngx_atoi(opt.data, opt.len);
        key.data = ngx_pcalloc(r->pool, key.len + 1);
        ngx_memset(key.data, 'k', key.len);
    }

    arg(r, "n", &name);
    h = (ngx_rate_limiting_handle_t) number(r, "h", 0);
    window = number(r, "w", 60);
    value = number(r, "v", 1);
    weight = number(r, "weight", NGX_RATE_LIMITING_SLIDING);
    if (arg(r, "room", &opt) == NGX_OK) {
        size = ngx_atoi(opt.data, opt.len);
        message = size ? error : NULL;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(c_api_ctx_t));
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->request = r;
    ctx->wait.ready = c_api_ready;
    ctx->wait.data = ctx;
    ctx->again = number(r, "again", 0);

#define IS(function)  (f.len == sizeof(function) - 1 && ngx_strncmp(f.data, function, f.len) == 0)

    if (IS("new_instance")) {
        code = api->new_instance(name.data, name.len, &made, message, size);
        snprintf(text, sizeof(text), "%u", made);

    } else if (IS("lock") || IS("unlock")) {
        code = c_api_lock(IS("lock"));

    } else if (IS("find")) {
        code = api->find(h, name.data, name.len, &made, message, size);
        snprintf(text, sizeof(text), "%u", made);

    } else if (IS("new_namespace")) {
        options.name.data = name.data;
        options.name.len = name.len;
        if (arg(r, "dict", &opt) == NGX_OK) {
            options.dict.data = opt.data;
            options.dict.len = opt.len;
        }
        if (arg(r, "store", &opt) == NGX_OK) {
            options.store.data = opt.data;
            options.store.len = opt.len;
        }
        if (arg(r, "strategy", &opt) == NGX_OK) {
            options.strategy.data = opt.data;
            options.strategy.len = opt.len;
        }
        if (arg(r, "opts", &opt) == NGX_OK) {
            /* The first is a name without a value. */
            options.strategy_opts = (ngx_rate_limiting_str_t *) &opt;
            options.strategy_opts_n = 1;
        }
        options.sync_rate = number(r, "sync_rate", -1);
        options.size = number(r, "size", sizeof(options));
        sizes[0] = window;
        options.window_sizes = sizes;
        options.window_sizes_n = arg(r, "w", &opt) == NGX_OK;
        code = api->new_namespace(h, &options, message, size);

    } else if (IS("increment")) {
        times = number(r, "times", 1);
        for (i = 0; i < times; i++) {
            code = api->increment(h, key.data, key.len, window, value, weight, &rate, message, size);
        }
        snprintf(text, sizeof(text), "rate=%.15g", rate);

    } else if (IS("sliding_window")) {
        n = arg(r, "diff", &opt) == NGX_OK;
        diff = number(r, "diff", 0);
        code = api->sliding_window(h, key.data, key.len, window, n ? &diff : NULL, weight, &rate,
                                   message, size);
        snprintf(text, sizeof(text), "rate=%.15g", rate);

    } else if (IS("sync")) {
        code = api->sync(h, message, size);

    } else if (IS("fetch")) {
        code = api->fetch(h, number(r, "time", 0), number(r, "timeout", 0), message, size);

    } else if (IS("new_limiter")) {
        limit.name.data = name.data;
        limit.name.len = name.len;
        limit.limit = number(r, "limit", 0);
        limit.window = number(r, "w", 0);
        limit.rate = number(r, "rate", 0);
        limit.burst = number(r, "burst", 0);
        limit.size = number(r, "size", sizeof(limit));
        if (arg(r, "type", &opt) == NGX_OK) {
            limit.window_type.data = opt.data;
            limit.window_type.len = opt.len;
        }
        code = api->new_limiter(h, &limit, &made, message, size);
        snprintf(text, sizeof(text), "%u", made);

    } else if (IS("incoming")) {
        code = api->incoming(h, key.data, key.len, value, number(r, "commit", 1), &result,
                             message, size);
        print_result(text, sizeof(text), &result);

    } else if (IS("uncommit")) {
        code = api->uncommit(h, key.data, key.len, message, size);

    } else if (IS("increment_async")) {
        code = api->increment_async(h, key.data, key.len, window, value, weight, &ctx->wait, &result,
                                    message, size);
        if (code == NGX_RATE_LIMITING_WAIT) {
            return c_api_wait(r, ctx);
        }
        print_result(text, sizeof(text), &result);

    } else if (IS("incoming_async")) {
        code = api->incoming_async(h, key.data, key.len, value, number(r, "commit", 1), &ctx->wait,
                                   &result, message, size);
        if (code == NGX_RATE_LIMITING_WAIT) {
            return c_api_wait(r, ctx);
        }
        print_result(text, sizeof(text), &result);

    } else if (IS("take")) {
        arg(r, "ticket", &opt);
        code = api->take(opt.len ? strtoull((char *) opt.data, NULL, 10) : 1, &result, message, size);
        print_result(text, sizeof(text), &result);

    } else if (IS("leak")) {
        /* Questions whose answers are not taken. */
        ngx_rate_limiting_wait_t  wait = { c_api_ignore, NULL, 0 };

        times = number(r, "times", 1);
        for (i = 0; i < times; i++) {
            code = api->increment_async(h, "leak", 4, window, 1, 0, &wait, &result, message, size);
        }
        snprintf(text, sizeof(text), "%llu", (unsigned long long) wait.ticket);

    } else if (IS("null")) {
        /* Whatever is a pointer is none. */
        code = api->new_instance(NULL, 1, NULL, NULL, 1)
            == api->new_namespace(0, NULL, NULL, 1)
            && api->find(0, NULL, 1, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->increment(0, NULL, 1, 1, 1, 1, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->sliding_window(0, NULL, 1, 1, NULL, 1, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->new_limiter(0, NULL, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->incoming(0, NULL, 1, 1, 1, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->uncommit(0, NULL, 1, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->increment_async(0, NULL, 1, 1, 1, 1, NULL, NULL, NULL, 1) < 0
            && api->incoming_async(0, NULL, 1, 1, 1, NULL, NULL, NULL, 1) < 0
            && api->take(0, NULL, NULL, 1) == NGX_RATE_LIMITING_INVALID
            && api->sync(0, NULL, 1) == NGX_RATE_LIMITING_STALE
            && api->fetch(0, 0, 0, NULL, 1) == NGX_RATE_LIMITING_STALE;
        api->forget(0);

    } else if (IS("version")) {
        code = api->version;
        snprintf(text, sizeof(text), "size=%d has=%d", api->size == sizeof(*api),
                 NGX_RATE_LIMITING_API_HAS(api, forget));
    }

    return answer(r, code, text, message ? message : "");
}


static char *
c_api_test(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = c_api_handler;
    return NGX_CONF_OK;
}


static void
try(ngx_log_t *log, char *when, char *name)
{
    int                          code, found, incremented;
    char                         error[256] = "";
    double                       rate = UNSET;
    ngx_rate_limiting_handle_t   h = 0;
    ngx_rate_limiting_options_t  options = NGX_RATE_LIMITING_OPTIONS;

    options.name.data = name;
    options.name.len = ngx_strlen(name);
    code = api->new_namespace(0, &options, error, sizeof(error));
    found = api->find(0, "default", 7, &h, NULL, 0);
    incremented = api->increment(h, "k", 1, 31622400, 1, 1, &rate, NULL, 0);
    ngx_log_error(NGX_LOG_NOTICE, log, 0, "c_api %s: new %d, find %d, increment %d (%s)",
                  when, code, found, incremented, error);
}


static ngx_int_t
c_api_postconfiguration(ngx_conf_t *cf)
{
    ngx_cycle_t  *cycle;

    api = dlsym(RTLD_DEFAULT, NGX_RATE_LIMITING_API);
    if (api == NULL || api->version != NGX_RATE_LIMITING_API_VERSION) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "no %s", NGX_RATE_LIMITING_API);
        return NGX_ERROR;
    }

    try(cf->log, "postconfiguration", "early");
    cycle = (ngx_cycle_t *) ngx_cycle;
    ngx_cycle = cf->cycle;
    try(cf->log, "its own cycle", "of-c");
    ngx_cycle = cycle;
    return NGX_OK;
}


static ngx_int_t
c_api_init_module(ngx_cycle_t *cycle)
{
    try(cycle->log, "init_module", "early");
    return NGX_OK;
}


static ngx_int_t
c_api_init_process(ngx_cycle_t *cycle)
{
    try(cycle->log, "init_process", "early");
    return NGX_OK;
}
