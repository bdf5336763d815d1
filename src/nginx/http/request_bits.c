/* Bit fields of a request, for request_bits.rs. */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

ngx_uint_t
ngx_http_rate_limiting_discards_body(ngx_http_request_t *r)
{
    return r->discard_body;
}

ngx_uint_t
ngx_http_rate_limiting_can_redirect_error(ngx_http_request_t *r)
{
    return !r->error_page && r->uri_changes != 0;
}

ngx_uint_t
ngx_http_rate_limiting_is_header_only(ngx_http_request_t *r)
{
    return r->header_only;
}

void
ngx_http_rate_limiting_make_header_only(ngx_http_request_t *r)
{
    r->header_only = 1;
}
