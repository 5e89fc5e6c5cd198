-- A group of appends is one INSERT into this view, and so one statement: SQLite itself makes it all or nothing, it is a
-- transaction of its own, and it costs one trip to the connection's thread. Made anew on each connection that writes.
--   node      who writes                      bytes     all bodies and texts, one behind the other
--   creates   new sessions                    leases    [session, epoch] of every append
--   entries   [session, seq, kind, at, fingerprint, begin, length]
--   contents  [session, begin of the digest, length of the text]
--   updates   [session, columns.., begin, length, release]      heard     ids of messages
CREATE TEMP VIEW append_group AS
SELECT NULL AS node, NULL AS bytes, NULL AS creates, NULL AS leases, NULL AS entries, NULL AS contents, NULL AS updates, NULL AS heard;

CREATE TEMP TRIGGER append_group_commit INSTEAD OF INSERT ON append_group
BEGIN
    INSERT INTO session (id, agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata, owner, epoch)
    SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, n.value ->> 3, n.value ->> 4, n.value ->> 5, n.value ->> 6, n.value ->> 7,
           n.value ->> 8, NEW.node, 1
    FROM json_each(NEW.creates) AS n;

    -- One stale lease fails the group; what follows needs no look at the leases.
    SELECT RAISE(ABORT, 'stale lease')
    FROM json_each(NEW.leases) AS l LEFT JOIN session AS s ON s.id = l.value ->> 0
    WHERE s.owner IS NOT NEW.node OR s.epoch IS NOT l.value ->> 1;

    INSERT INTO entry (session, seq, kind, at_ms, fingerprint, body)
    SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4,
           CAST(substr(NEW.bytes, e.value ->> 5, e.value ->> 6) AS TEXT)
    FROM json_each(NEW.entries) AS e;

    INSERT OR IGNORE INTO content (session, digest, text)
    SELECT c.value ->> 0, substr(NEW.bytes, c.value ->> 1, 32), CAST(substr(NEW.bytes, (c.value ->> 1) + 32, c.value ->> 2) AS TEXT)
    FROM json_each(NEW.contents) AS c;

    UPDATE session
    SET status      = coalesce(u.value ->> 1, status),
        reason      = coalesce(u.value ->> 2, reason),
        settlement  = coalesce(u.value ->> 3, settlement),
        deadline_ms = coalesce(u.value ->> 4, deadline_ms),
        verdict_ms  = coalesce(u.value ->> 5, verdict_ms),
        closed_ms   = coalesce(u.value ->> 6, closed_ms),
        summary     = CASE WHEN u.value ->> 7 IS NULL THEN summary ELSE CAST(substr(NEW.bytes, u.value ->> 7, u.value ->> 8) AS TEXT) END,
        owner       = CASE WHEN u.value ->> 9 THEN NULL ELSE owner END
    FROM json_each(NEW.updates) AS u
    WHERE session.id = u.value ->> 0;

    DELETE FROM inbox WHERE id IN (SELECT value FROM json_each(NEW.heard));

    -- A closed session hears nothing any more.
    DELETE FROM inbox WHERE session IN (SELECT u.value ->> 0 FROM json_each(NEW.updates) AS u WHERE u.value ->> 6 IS NOT NULL);
END;
