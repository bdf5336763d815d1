-- One row for each epoch of a shard of a namespace. One without an end is the present one.
CREATE UNLOGGED TABLE {epochs} (
    epoch     bigint      PRIMARY KEY,
    namespace text        NOT NULL,
    shard     integer     NOT NULL,
    changes   bigint      NOT NULL,
    ended_at  timestamptz
);
CREATE UNIQUE INDEX ON {epochs} (namespace, shard) WHERE ended_at IS NULL;

-- The last batch of each node that has pushed any: its number, then 24 random bits.
CREATE UNLOGGED TABLE {nodes} (
    epoch      bigint      NOT NULL,
    node       uuid        NOT NULL,
    number     bigint      NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (epoch, node)
);

-- The counters, by window: its size in milliseconds, and its number, which is Unix time divided by
-- the size. The count is in thousandths of a hit.
CREATE UNLOGGED TABLE {counters} (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch         bigint      NOT NULL,
    window_size   bigint      NOT NULL,
    window_number bigint      NOT NULL,
    key           bytea       NOT NULL,
    thousandths   bigint      NOT NULL,
    expires_at    timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ON {counters} (epoch, window_size, window_number, sha256(key));
-- The condition keeps it for the purge: nothing else is to be found by it.
CREATE INDEX ON {counters} (expires_at) WHERE expires_at IS NOT NULL;

-- The latest batches, in the order in which they were applied: whose, and of which counters.
CREATE UNLOGGED TABLE {changes} (
    epoch    bigint   NOT NULL,
    number   bigint   NOT NULL,
    node     uuid     NOT NULL,
    counters bigint[] NOT NULL,
    PRIMARY KEY (epoch, number)
);

-- Levels of counters that are no windows: of which kind (1: elastic windows, 4: rates) and size, in
-- milliseconds, or of a rate, hits a second as the bits of a double; thousandths of a hit, and in milliseconds of Unix time when they changed last, and when they
-- began, or of a rate, when they are empty.
CREATE UNLOGGED TABLE {levels} (
    epoch       bigint      NOT NULL,
    kind        smallint    NOT NULL,
    size        bigint      NOT NULL,
    key         bytea       NOT NULL,
    thousandths bigint      NOT NULL,
    changed_at  bigint      NOT NULL,
    began_at    bigint      NOT NULL,
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ON {levels} (epoch, kind, size, sha256(key));
CREATE INDEX ON {levels} (expires_at) WHERE expires_at IS NOT NULL;

-- Logs of moving windows, in blocks: when hits were counted, in milliseconds of Unix time, and the sums of all
-- hits up to then, in thousandths. Of a block, its first time, how many entries its log had before, and
-- their last sum. A key's logs are numbered: one begins anew when the clock was set back.
CREATE UNLOGGED TABLE {logs} (
    epoch      bigint      NOT NULL,
    size       bigint      NOT NULL,
    key        bytea       NOT NULL,
    log        bigint      NOT NULL,
    at         bigint      NOT NULL,
    number     bigint      NOT NULL,
    base       bigint      NOT NULL,
    times      bigint[]    NOT NULL,
    sums       bigint[]    NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ON {logs} (epoch, size, sha256(key), log, at);
CREATE INDEX ON {logs} (epoch, size, sha256(key), log, base);
CREATE INDEX ON {logs} (expires_at) WHERE expires_at IS NOT NULL;
