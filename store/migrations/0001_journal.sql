-- The journal and what belongs to it. Ids are bare ULIDs (26 characters), times are milliseconds since 1970.
-- Tables keep their rowid and index their natural key: appends of many sessions then share the last pages of a table
-- instead of dirtying one page a session.

-- A running process. Its lease is the lease of every session that it owns, so that renewing costs one row.
CREATE TABLE node (
    id             TEXT    NOT NULL PRIMARY KEY,
    started_ms     INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a session: what is listed and shown without reading its journal, and who may append to it.
CREATE TABLE session (
    id          TEXT    NOT NULL PRIMARY KEY,
    agent       TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    previous    TEXT,
    status      TEXT    NOT NULL,
    reason      TEXT,
    settlement  TEXT,
    created_ms  INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,
    verdict_ms  INTEGER,
    closed_ms   INTEGER,
    metadata    TEXT    NOT NULL,
    summary     TEXT,
    owner       TEXT,
    epoch       INTEGER NOT NULL
) STRICT;
CREATE INDEX session_owner ON session (owner) WHERE owner IS NOT NULL;

-- One row a record of the journal: ids, digests, sizes and codes, never content.
CREATE TABLE entry (
    session     TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('event', 'note')),
    at_ms       INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT;

-- Texts, arguments and results, once a session, named by the SHA-256 of their text.
CREATE TABLE content (
    session TEXT NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    text    TEXT NOT NULL,
    PRIMARY KEY (session, digest)
) STRICT;

-- Wishes of others for a session (cancel, tighten, approve), until its owner has journalled them.
CREATE TABLE inbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    at_ms   INTEGER NOT NULL
) STRICT;
CREATE INDEX inbox_session ON inbox (session);
