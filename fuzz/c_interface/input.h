/*
 * The input, from which calls.c takes its choices and arguments.  A part of calls.c, for its static functions.
 */

/* What is left of the input. */
static const uint8_t  *next;
static size_t          left;

static uint8_t
byte(void)
{
    return left ? (left--, *next++) : 0;
}


static double
number(void)
{
    static const double  some[] = {
        0, 1, 60, 5, 0.001, 0.0005, 1.5, 10, 100, 1e9, 1e11, 1e12, 9e15, 1e300, 5e-324, 31622400, 31622401, -0.0, -1,
        -0.25, -1e300, 0.25, NGX_RATE_LIMITING_FIXED, NGX_RATE_LIMITING_SLIDING, NAN, INFINITY, -INFINITY, 1700000000
    };
    uint8_t   which = byte();
    uint8_t   raw[sizeof(double)];
    double    value;
    size_t    i;

    if (which < sizeof(some) / sizeof(some[0])) {
        return some[which];
    }
    if (which < 128) {
        return which - 27;
    }

    for (i = 0; i < sizeof(raw); i++) {
        raw[i] = byte();
    }
    memcpy(&value, raw, sizeof(value));
    return value;
}


/* A word that means something, or bytes of the input. */
static ngx_rate_limiting_str_t
str(void)
{
    static const char  *words[] = {
        "default", "listed", "asked", "refused", "other", "counters", "main", "none", "sliding", "fixed", "elastic",
        "moving", "rate", "concurrency", "redis", "server", "127.0.0.1:9", "timeout", "10ms", "password", "prefix",
        "month", "day tz=Europe/Berlin", "hour tz=Nowhere", "a b"
    };
    static u_char            many[70000];
    ngx_rate_limiting_str_t  str;
    uint8_t                  which = byte();

    if (which < sizeof(words) / sizeof(words[0])) {
        str.data = words[which];
        str.len = strlen(words[which]);
    } else if (which == 255) {
        str.data = NULL;
        str.len = byte();
    } else if (which == 254) {
        str.data = many;
        str.len = ngx_min(byte() * 300, sizeof(many));
    } else {
        str.data = next;
        str.len = ngx_min(which % 8, left);
        next += str.len;
        left -= str.len;
    }

    return str;
}
