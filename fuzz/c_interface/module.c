/*
 * The target `c_interface`: a module of nginx that runs libFuzzer in a worker, whose inputs are calls of the C
 * interface: see calls.c.  The directive `fuzz` has the arguments of libFuzzer; run.sh writes it.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include <dlfcn.h>

#include "calls.h"

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*one)(const uint8_t *data, size_t size));

static char *fuzz(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t init_process(ngx_cycle_t *cycle);

static ngx_command_t  commands[] = {
    { ngx_string("fuzz"), NGX_MAIN_CONF|NGX_DIRECT_CONF|NGX_CONF_1MORE, fuzz, 0, 0, NULL },
    ngx_null_command
};

static ngx_core_module_t  ctx = { ngx_string("fuzz"), NULL, NULL };

ngx_module_t  fuzz_module = {
    NGX_MODULE_V1, &ctx, commands, NGX_CORE_MODULE, NULL, NULL, init_process, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &fuzz_module, NULL };
char          *ngx_module_names[] = { "fuzz_module", NULL };
char          *ngx_module_order[] = { NULL };

static int     argc;
static char  **argv;

static void
run(ngx_event_t *event)
{
    api = dlsym(RTLD_DEFAULT, NGX_RATE_LIMITING_API);
    CHECK(api != NULL && api->version == NGX_RATE_LIMITING_API_VERSION && NGX_RATE_LIMITING_API_HAS(api, window));
    exit(LLVMFuzzerRunDriver(&argc, &argv, one_input));
}


/* Begins in the event loop, when all modules have begun. */
static ngx_int_t
init_process(ngx_cycle_t *cycle)
{
    static ngx_event_t  event;

    event.handler = run;
    event.log = cycle->log;
    ngx_post_event(&event, &ngx_posted_events);
    return NGX_OK;
}


static char *
fuzz(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_uint_t  i;
    ngx_str_t  *words = cf->args->elts;

    argv = ngx_pcalloc(cf->pool, (cf->args->nelts + 1) * sizeof(char *));
    if (argv == NULL) {
        return NGX_CONF_ERROR;
    }
    /* The first argument is the program, which libFuzzer runs again to minimise a corpus. */
    for (i = 1; i < cf->args->nelts; i++) {
        argv[i - 1] = (char *) words[i].data;
    }
    argc = cf->args->nelts - 1;
    return NGX_CONF_OK;
}
