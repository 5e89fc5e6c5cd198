-- One group of appends in one transaction. Every write goes through the session's row, so that a stale lease writes
-- nothing; the SELECT names the stale ones.
-- $1 this node   $2 bytes of all bodies and texts   $3 new sessions   $4 leases   $5 entries   $6 contents   $7 row updates   $8 messages heard
BEGIN IMMEDIATE;

INSERT INTO session (id, agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata, owner, epoch)
SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, n.value ->> 3, n.value ->> 4, n.value ->> 5, n.value ->> 6, n.value ->> 7, n.value ->> 8, $1, 1
FROM json_each($3) AS n;

-- `CROSS JOIN` and `+` fix the order of the loops: the few rows of the group outside, one look-up by id inside.
SELECT l.key
FROM json_each($4) AS l LEFT JOIN session AS s ON s.id = l.value ->> 0
WHERE s.owner IS NOT $1 OR s.epoch IS NOT l.value ->> 1;

INSERT INTO entry (session, seq, kind, at_ms, fingerprint, body)
SELECT s.id, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, CAST(substr($2, e.value ->> 6, e.value ->> 7) AS TEXT)
FROM json_each($5) AS e CROSS JOIN session AS s
WHERE s.id = e.value ->> 0 AND +s.owner = $1 AND s.epoch = e.value ->> 1;

INSERT OR IGNORE INTO content (session, digest, text)
SELECT s.id, substr($2, c.value ->> 2, 32), CAST(substr($2, (c.value ->> 2) + 32, c.value ->> 3) AS TEXT)
FROM json_each($6) AS c CROSS JOIN session AS s
WHERE s.id = c.value ->> 0 AND +s.owner = $1 AND s.epoch = c.value ->> 1;

DELETE FROM inbox
WHERE id IN (
    SELECT h.value ->> 2
    FROM json_each($8) AS h CROSS JOIN session AS s
    WHERE s.id = h.value ->> 0 AND +s.owner = $1 AND s.epoch = h.value ->> 1
);

UPDATE session
SET status      = coalesce(r.value ->> 2, status),
    reason      = coalesce(r.value ->> 3, reason),
    settlement  = coalesce(r.value ->> 4, settlement),
    deadline_ms = coalesce(r.value ->> 5, deadline_ms),
    verdict_ms  = coalesce(r.value ->> 6, verdict_ms),
    closed_ms   = coalesce(r.value ->> 7, closed_ms),
    summary     = CASE WHEN r.value ->> 8 IS NULL THEN summary ELSE CAST(substr($2, r.value ->> 8, r.value ->> 9) AS TEXT) END,
    owner       = CASE WHEN r.value ->> 10 THEN NULL ELSE owner END
FROM json_each($7) AS r
WHERE session.id = r.value ->> 0 AND +session.owner = $1 AND session.epoch = r.value ->> 1;

COMMIT;
