-- Keys under which the same thing may be asked for again without being done again. One row a key, made in the
-- transaction that begins what it stands for; its primary key is what decides who comes first.
CREATE TABLE idempotency (
    tenant         TEXT    NOT NULL,
    kind           TEXT    NOT NULL, -- what is done once: 'session'
    scope          TEXT    NOT NULL, -- within what the key is unique: for sessions the principal
    key            TEXT    NOT NULL,
    hash           BLOB    NOT NULL CHECK (length(hash) = 32), -- of what is asked for
    generation     INTEGER NOT NULL, -- from 1; the next one begins after an undoing
    owner          TEXT    NOT NULL, -- who began, to compare at the end: for sessions the session
    lease_until_ms INTEGER NOT NULL, -- when the owner is to have ended
    state          TEXT    NOT NULL CHECK (state IN ('running', 'done', 'unknown')),
    session        TEXT,
    result         TEXT,             -- JSON of the owner; a session's result is its journal
    created_ms     INTEGER NOT NULL,
    expires_ms     INTEGER,          -- from when the key is free again; NULL while its session is open
    PRIMARY KEY (tenant, kind, scope, key)
) STRICT;
CREATE INDEX idempotency_session ON idempotency (session) WHERE session IS NOT NULL;
CREATE INDEX idempotency_expires ON idempotency (expires_ms) WHERE expires_ms IS NOT NULL;
