/*
 * A module that asks nginx's own limit_req and a limiter of ours about the same hits at the same moments, for
 * t/limit-req.t: a location with `limit_req_replay` and a `limit_req` makes random arrivals, and answers
 * with how many there were, and of how many either said something else.
 *
 *     /t?namespace=a&rate=10&burst=20&n=100000  ->   arrivals=100000 refused=... delayed=... differ=0
 *
 * The times are not those of a clock: nginx's are set before each arrival, those that both modules read.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <dlfcn.h>

#include "ngx_rate_limiting.h"

#define KEYS  8

extern ngx_module_t  ngx_http_limit_req_module;

static ngx_http_handler_pt  limit_req;

static char *replay_command(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t replay_find_limit_req(ngx_conf_t *cf);

static ngx_command_t  replay_commands[] = {
    { ngx_string("limit_req_replay"), NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS, replay_command, 0, 0, NULL },
    ngx_null_command
};

static ngx_http_module_t  replay_ctx = {
    NULL, replay_find_limit_req, NULL, NULL, NULL, NULL, NULL, NULL
};

ngx_module_t  replay_module = {
    NGX_MODULE_V1,
    &replay_ctx,
    replay_commands,
    NGX_HTTP_MODULE,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &replay_module, NULL };
char          *ngx_module_names[] = { "replay_module", NULL };
char          *ngx_module_order[] = { NULL };


/* Xorshift: the same numbers in every run. */
static uint64_t
random_below(uint64_t below)
{
    static uint64_t  state = 0x9e3779b97f4a7c15;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}


static double
number(ngx_http_request_t *r, char *name)
{
    u_char     text[32];
    ngx_str_t  value;

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &value) != NGX_OK) {
        return 0;
    }

    *ngx_cpystrn(text, value.data, ngx_min(sizeof(text), value.len + 1)) = '\0';
    return strtod((char *) text, NULL);
}


static void
set_clocks(uint64_t now)
{
    ngx_time_t  *tp;

    tp = (ngx_time_t *) ngx_cached_time;
    tp->sec = now / 1000;
    tp->msec = now % 1000;
    ngx_current_msec = now;
}


/* What limit_req says: the delay in milliseconds, or -1 where it refuses. */
static int64_t
ask_limit_req(ngx_http_request_t *r, char key)
{
    int64_t       delay;
    u_char        args[] = "k=x";
    ngx_int_t     rc;
    ngx_str_t     before;
    ngx_event_t  *wev;

    before = r->args;
    args[2] = key;
    r->args.data = args;
    r->args.len = sizeof(args) - 1;
    r->main->limit_req_status = 0;
    rc = limit_req(r);
    r->args = before;

    if (rc == NGX_DECLINED) {
        return 0;
    }

    if (rc != NGX_AGAIN) {
        return -1;
    }

    /* It holds the request back, and is not to. */
    wev = r->connection->write;
    delay = wev->timer.key - ngx_current_msec;
    ngx_del_timer(wev);
    wev->delayed = 0;
    return delay;
}


static ngx_int_t
replay(ngx_http_request_t *r)
{
    int                              code;
    char                             key, error[256];
    double                           rate;
    int64_t                          theirs, ours;
    uint64_t                         now, mean, what;
    ngx_buf_t                       *b;
    ngx_int_t                        rc;
    ngx_str_t                        name;
    ngx_uint_t                       i, n, is_held, refused, delayed, differ;
    ngx_chain_t                      out;
    ngx_rate_limiting_limit_t        limit = NGX_RATE_LIMITING_LIMIT;
    ngx_rate_limiting_handle_t       limiter;
    ngx_rate_limiting_result_t       result;
    const ngx_rate_limiting_api_t   *api;
    ngx_http_event_handler_pt        reads, writes;

    b = ngx_create_temp_buf(r->pool, 512);
    api = dlsym(RTLD_DEFAULT, NGX_RATE_LIMITING_API);
    if (b == NULL || api == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rate = number(r, "rate");
    n = number(r, "n");
    is_held = number(r, "held");
    limit.rate = rate;
    limit.burst = number(r, "burst");
    if (ngx_http_arg(r, (u_char *) "namespace", 9, &name) != NGX_OK) {
        return NGX_HTTP_BAD_REQUEST;
    }

    limit.name.data = name.data;
    limit.name.len = name.len;
    code = api->new_limiter(0, &limit, &limiter, error, sizeof(error));
    if (code != NGX_RATE_LIMITING_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "new_limiter: %d %s", code, error);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    reads = r->read_event_handler;
    writes = r->write_event_handler;
    now = (uint64_t) ngx_time() * 1000;
    mean = 1000 / rate;
    refused = delayed = differ = 0;

    for (i = 0; i < n; i++) {
        /* About as many as the rate admits, in bursts, and now and then a long pause. */
        what = random_below(1000);
        if (what == 0) {
            now += random_below(300 * mean + 2);
        } else if (what >= 700) {
            now += random_below(mean / 2 + 2);
        } else if (what >= 400) {
            now += random_below(3);
        }

        set_clocks(now);
        key = 'a' + random_below(KEYS);
        theirs = ask_limit_req(r, key);
        code = api->incoming(limiter, &key, 1, 1, 1, &result, error, sizeof(error));
        ours = code == NGX_RATE_LIMITING_REJECTED ? -1 : is_held ? result.delay * 1000 + 0.5 : 0;

        refused += theirs < 0;
        delayed += theirs > 0;
        if (code < 0 || ours != theirs) {
            if (differ++ == 0) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "arrival %ui at %uL: limit_req %L, ours %L (%d)",
                              i, now, theirs, ours, code);
            }
        }
    }

    ngx_time_update();
    r->read_event_handler = reads;
    r->write_event_handler = writes;
    r->main->limit_req_status = 0;

    b->last = ngx_sprintf(b->last, "arrivals=%ui refused=%ui delayed=%ui differ=%ui",
                          n, refused, delayed, differ);
    b->last_buf = 1;
    b->last_in_chain = 1;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;
    return ngx_http_output_filter(r, &out);
}


static char *
replay_command(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = replay;
    return NGX_CONF_OK;
}


/* limit_req adds its handler to those of its phase: has it do that once more, and takes that one away. */
static ngx_int_t
replay_find_limit_req(ngx_conf_t *cf)
{
    ngx_array_t                *handlers;
    ngx_http_module_t          *module;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    handlers = &cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers;
    module = ngx_http_limit_req_module.ctx;
    if (module->postconfiguration(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    limit_req = ((ngx_http_handler_pt *) handlers->elts)[--handlers->nelts];
    return NGX_OK;
}
