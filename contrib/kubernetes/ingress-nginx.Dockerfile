# An image from which ingress-nginx copies the module into its controller (extraModules of its Helm chart). From the top
# of the repository, with the version of nginx that the controller has (`nginx -v` in it; v1.15.1 has 1.27.1), and the
# Alpine of its image:
#
#   docker build -f contrib/kubernetes/ingress-nginx.Dockerfile -t nginx-rate-limiting-module:1.27.1 .
ARG NGINX=1.27.1
ARG ALPINE=3.23

FROM rust:1-alpine AS rust

FROM alpine:${ALPINE} AS build
ARG NGINX
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
# As in contrib/docker/Dockerfile.alpine.
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH \
    RUSTFLAGS="-C target-feature=-crt-static"
SHELL ["/bin/ash", "-euo", "pipefail", "-c"]
# hadolint ignore=DL3018
RUN apk add --no-cache build-base clang-libclang curl linux-headers openssl-dev pcre2-dev zlib-dev
WORKDIR /build
RUN curl -fsSL "https://nginx.org/download/nginx-$NGINX.tar.gz" | tar -xz --strip-components=1 && \
    ./configure --with-compat
WORKDIR /module
COPY . .
RUN NGINX_SOURCE_DIR=/build NGINX_BUILD_DIR=/build/objs cargo rustc --profile release --locked --lib \
        --crate-type cdylib && \
    strip --strip-unneeded target/release/libngx_http_rate_limiting_module.so

FROM alpine:${ALPINE}
COPY --from=build --chmod=644 /module/target/release/libngx_http_rate_limiting_module.so \
    /modules/ngx_http_rate_limiting_module.so
# The chart runs this file as an init container.
RUN printf '#!/bin/sh\nset -e\ncp /modules/* /modules_mount/\n' >/usr/local/bin/init_module.sh && \
    chmod 755 /usr/local/bin/init_module.sh
USER 65534
