# Shortcuts for contributors. Everything else in the repository works without make.
#
#   make                   lists the targets
#   make test T=t/limit.t  runs one file of t/

# nginx to build and test with: debian (the installed one), or second (the one that scripts/lib.sh compiles).
NGINX ?= second

.DEFAULT_GOAL := help
.PHONY: help build test unit lint bench debug all

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## build the module as users install it, for Debian's nginx
	scripts/build.sh

test: ## run one file of t/ with a quickly built module: make test T=t/limit.t [NGINX=debian]
	@test -n "$(T)" || { echo 'usage: make test T=t/limit.t [NGINX=debian]'; exit 2; }
	scripts/dev.sh test $(NGINX) $(T)

unit: ## run the Rust tests whose names contain F: make unit F=lease
	cargo test --locked --profile checked --no-default-features --features stores,conformance,convert --lib -- $(F)

lint: ## run rustfmt, clippy, and the checks of layers and links
	scripts/dev.sh lint

bench: ## count the instructions of requests, and compare with scripts/bench/allowed
	scripts/bench.sh --gate

debug: ## start nginx with debug symbols and the debug log, one process, under gdb
	scripts/dev.sh debug

all: ## run every test, as CI does
	scripts/test.sh
