/*
 * The C interface of ngx_http_rate_limiting_module, for other modules of the same nginx and for the
 * FFI of languages.  docs/c.md explains it.
 *
 * The functions are in a structure that the module exports under the name `ngx_rate_limiting_api`.
 * A module that may be loaded without ours finds it when it needs it:
 *
 *     const ngx_rate_limiting_api_t  *api;
 *
 *     api = dlsym(RTLD_DEFAULT, NGX_RATE_LIMITING_API);
 *     if (api == NULL || api->version != NGX_RATE_LIMITING_API_VERSION) { ... }
 *
 * Later versions of the same number only append functions: `api->size` says how many bytes there are
 * (NGX_RATE_LIMITING_API_HAS).
 *
 * All functions are called in the thread of nginx's event loop, in workers, in any phase.  None blocks,
 * and none keeps what it is passed a pointer to.
 *
 * Each returns a code.  With a code below zero, it writes to `error`, unless that is NULL, a text of at
 * most `error_size` bytes, the terminating zero included, and nothing to other places.
 */

#ifndef NGX_RATE_LIMITING_H_INCLUDED_
#define NGX_RATE_LIMITING_H_INCLUDED_

#include <stddef.h>
#include <stdint.h>

#define NGX_RATE_LIMITING_API          "ngx_rate_limiting_api"
#define NGX_RATE_LIMITING_API_VERSION  1

#define NGX_RATE_LIMITING_API_HAS(api, function)                              \
    ((api)->size >= offsetof(ngx_rate_limiting_api_t, function)               \
                    + sizeof((api)->function))

/* What functions return. */
#define NGX_RATE_LIMITING_OK            0
#define NGX_RATE_LIMITING_REJECTED      1  /* the limit does not admit the hits */
#define NGX_RATE_LIMITING_WAIT          2  /* the store decides: `ready` will be called */
#define NGX_RATE_LIMITING_INVALID      -1  /* an argument, which the text names */
#define NGX_RATE_LIMITING_UNKNOWN      -2  /* no such namespace, zone or store */
#define NGX_RATE_LIMITING_DEFINED      -3  /* defined already */
#define NGX_RATE_LIMITING_PHASE        -4  /* not now: too early or too late */
#define NGX_RATE_LIMITING_NOT_HERE     -5  /* this build cannot */
#define NGX_RATE_LIMITING_FULL         -6  /* no room in the zone */
#define NGX_RATE_LIMITING_UNAVAILABLE  -7  /* the store does not answer, and `on_error deny` */
#define NGX_RATE_LIMITING_STALE        -8  /* a handle of another configuration, or of none */
#define NGX_RATE_LIMITING_FAULT        -9  /* a fault of the module, which is in the error log */

/*
 * Instances, namespaces and limiters are named by numbers, which are never 0.  They belong to the
 * configuration: after a reload, find them anew (as each new worker does); those of another one are
 * NGX_RATE_LIMITING_STALE.
 */
typedef uint32_t  ngx_rate_limiting_handle_t;

/* Any bytes; an ngx_str_t has the same layout. */
typedef struct {
    size_t       len;
    const void  *data;
} ngx_rate_limiting_str_t;

/*
 * How a previous window counts, the `weight` of the specification: the share of it that counts, from 0 (a
 * fixed window) to 1 (all of it); or that of a sliding window, which depends on the time.
 */
#define NGX_RATE_LIMITING_FIXED    0.0
#define NGX_RATE_LIMITING_SLIDING  (-1.0)

/* What a namespace is defined by. */
typedef struct {
    size_t                          size;           /* of this structure */
    ngx_rate_limiting_str_t         name;           /* empty: "default" */
    ngx_rate_limiting_str_t         dict;           /* a ratelimit_zone; empty: the only one */
    double                          sync_rate;      /* seconds; 0: synchronous; negative: off */
    ngx_rate_limiting_str_t         store;          /* a ratelimit_store of nginx.conf, or ... */
    ngx_rate_limiting_str_t         strategy;       /* ... "redis", "etcd" */
    /* with its directives: name, value, name, value, ... */
    const ngx_rate_limiting_str_t  *strategy_opts;
    size_t                          strategy_opts_n;    /* twice the number of pairs */
    const double                   *window_sizes;   /* seconds */
    size_t                          window_sizes_n; /* 0: any, if sync_rate is off */
} ngx_rate_limiting_options_t;

#define NGX_RATE_LIMITING_OPTIONS                                             \
    { sizeof(ngx_rate_limiting_options_t), { 0, NULL }, { 0, NULL }, -1.0,    \
      { 0, NULL }, { 0, NULL }, NULL, 0, NULL, 0 }

/* What a limiter is made of: `limit` and `window`, or `rate`, or `concurrent`. */
typedef struct {
    size_t                   size;         /* of this structure */
    ngx_rate_limiting_str_t  name;         /* of a namespace; empty: "default" */
    double                   limit;        /* hits in a window */
    double                   window;       /* seconds */
    ngx_rate_limiting_str_t  window_type;  /* as of nginx.conf; empty: "sliding" */
    double                   rate;         /* hits a second */
    double                   burst;        /* hits above the rate */
    double                   concurrent;   /* requests at the same time */
} ngx_rate_limiting_limit_t;

#define NGX_RATE_LIMITING_LIMIT                                               \
    { sizeof(ngx_rate_limiting_limit_t), { 0, NULL }, 0.0, 0.0, { 0, NULL },  \
      0.0, 0.0, 0.0 }

/* What came of hits.  For increments, all but the rate is 0. */
typedef struct {
    double  rate;         /* after the hits; of a rate, the excess of limit_req is one hit less */
    double  remaining;    /* hits that the limit leaves, at least 0 */
    double  delay;        /* seconds until the hits are within the rate; else 0 */
    double  retry_after;  /* seconds until as many hits would be admitted; -1: never */
} ngx_rate_limiting_result_t;

/*
 * Called once, in the event loop, when the answer to a question is there, with the number 1.  The answer
 * is then taken by `take`, in this call or later.  (ngx_http_lua_ffi_sema_post has this type.)
 */
typedef int (*ngx_rate_limiting_ready_pt)(void *data, int n);

/* A question to a store. */
typedef struct {
    ngx_rate_limiting_ready_pt  ready;
    void                       *data;      /* for `ready` */
    uint64_t                    ticket;    /* set if NGX_RATE_LIMITING_WAIT is returned */
} ngx_rate_limiting_wait_t;

typedef struct {
    uint32_t  version;
    uint32_t  size;

    /* The instance of this name, which is made if there is none: a set of definitions of namespaces. */
    int (*new_instance)(const void *name, size_t name_len,
        ngx_rate_limiting_handle_t *instance, char *error, size_t error_size);

    /*
     * Defines a namespace in an instance (0: the default one).  What nginx.conf says of a namespace of this
     * name wins, with a warning.  One with a store has sizes of windows.  In a worker, it is defined for that
     * worker: see docs/c.md.
     */
    int (*new_namespace)(ngx_rate_limiting_handle_t instance,
        const ngx_rate_limiting_options_t *options, char *error, size_t error_size);

    /*
     * Finds a namespace that the instance (0: the default one) or nginx.conf defines.
     * NGX_RATE_LIMITING_WAIT, with a handle, if its store decides: then `increment_async` counts.
     */
    int (*find)(ngx_rate_limiting_handle_t instance, const void *name, size_t name_len,
        ngx_rate_limiting_handle_t *found, char *error, size_t error_size);

    /* Counts `value` hits of a key, at least 0; tells the rate afterwards. */
    int (*increment)(ngx_rate_limiting_handle_t found, const void *key, size_t key_len,
        double window_size, double value, double weight, double *rate,
        char *error, size_t error_size);

    /*
     * Tells the rate of a key, as if `cur_diff`, unless that is NULL, had been counted here and not
     * sent to the store, in place of what is.
     */
    int (*sliding_window)(ngx_rate_limiting_handle_t found, const void *key, size_t key_len,
        double window_size, const double *cur_diff, double weight, double *rate,
        char *error, size_t error_size);

    /*
     * Has the namespace synced, in the background: a cycle of this worker begins now, or when the one has
     * ended that is under way in any worker.  Of a namespace that `new_namespace` has defined, the first
     * call starts the timer of this worker.  A local one needs no sync.
     */
    int (*sync)(ngx_rate_limiting_handle_t found, char *error, size_t error_size);

    /* The same: a sync fetches, too.  `time` is the Unix time, `timeout` seconds, or 0. */
    int (*fetch)(ngx_rate_limiting_handle_t found, double time, double timeout,
        char *error, size_t error_size);

    /*
     * Makes a limiter of a namespace that the instance (0: the default one) or nginx.conf defines; one of
     * the same limit is the same.
     * NGX_RATE_LIMITING_WAIT, with a handle, if its store decides: then `incoming_async` asks it.
     */
    int (*new_limiter)(ngx_rate_limiting_handle_t instance,
        const ngx_rate_limiting_limit_t *limit, ngx_rate_limiting_handle_t *limiter,
        char *error, size_t error_size);

    /*
     * Asks a limiter for `cost` hits of a key, and counts them if it admits them and `commit` is not 0.
     * NGX_RATE_LIMITING_OK or NGX_RATE_LIMITING_REJECTED, with a result.
     */
    int (*incoming)(ngx_rate_limiting_handle_t limiter, const void *key, size_t key_len,
        double cost, int commit, ngx_rate_limiting_result_t *result,
        char *error, size_t error_size);

    /*
     * Gives back what this worker last committed of a key, if its window has not ended since.  Of a limiter
     * of `concurrent`: a request of the key, which this worker has committed, ends.
     */
    int (*uncommit)(ngx_rate_limiting_handle_t limiter, const void *key, size_t key_len,
        char *error, size_t error_size);

    /*
     * `increment` and `incoming` in a namespace with sync_rate 0, where the store decides: they return
     * NGX_RATE_LIMITING_WAIT, and `ready` will be called; or, in any other namespace or if there is
     * nothing to wait for, as `increment` and `incoming` do.
     */
    int (*increment_async)(ngx_rate_limiting_handle_t found, const void *key, size_t key_len,
        double window_size, double value, double weight, ngx_rate_limiting_wait_t *wait,
        ngx_rate_limiting_result_t *result, char *error, size_t error_size);
    int (*incoming_async)(ngx_rate_limiting_handle_t limiter, const void *key, size_t key_len,
        double cost, int commit, ngx_rate_limiting_wait_t *wait,
        ngx_rate_limiting_result_t *result, char *error, size_t error_size);

    /* Takes the answer: what the function that asked would have returned.  Once. */
    int (*take)(uint64_t ticket, ngx_rate_limiting_result_t *result,
        char *error, size_t error_size);

    /* Nobody wants the answer any more, and `ready` is not called.  Of any ticket, at any time. */
    void (*forget)(uint64_t ticket);

    /*
     * Tells the number that stands for a window of the calendar, such as "month" (of UTC) or
     * "day tz=Europe/Berlin", wherever a window's seconds are expected.  If `size` of the table ends before
     * this member, the module is older and has none.
     */
    int (*window)(const void *text, size_t text_len, double *window_size,
        char *error, size_t error_size);
} ngx_rate_limiting_api_t;

#endif /* NGX_RATE_LIMITING_H_INCLUDED_ */
