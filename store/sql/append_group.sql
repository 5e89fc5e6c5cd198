-- A group of appends is one INSERT into this view, and so one statement: SQLite itself makes it all or nothing, it is a
-- transaction of its own, and it costs one trip to the connection's thread. Made anew on each connection that writes.
--   node      who writes                      bytes     all bodies and texts, one behind the other
--   creates   new sessions                    leases    [session, epoch] of every append
--   keys      [session, tenant, kind, scope, key, begin of the hash, now, lease until]
--   entries   [session, seq, kind, at, fingerprint, begin, length]
--   contents  [session, begin of the digest, length of the text]
--   updates   [session, columns.., begin, length, release, key's fate, key's end]      heard     ids of messages
CREATE TEMP VIEW append_group AS
SELECT NULL AS node, NULL AS bytes, NULL AS creates, NULL AS keys, NULL AS leases, NULL AS entries, NULL AS contents, NULL AS updates, NULL AS heard;

CREATE TEMP TRIGGER append_group_commit INSTEAD OF INSERT ON append_group
BEGIN
    INSERT INTO session (id, agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata, texts, owner,
                         epoch)
    SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, n.value ->> 3, n.value ->> 4, n.value ->> 5, n.value ->> 6, n.value ->> 7,
           n.value ->> 8, n.value ->> 9, NEW.node, 1
    FROM json_each(NEW.creates) AS n;

    -- A key whose time is over is free; one that is taken fails the group, and then whoever asked for it alone.
    DELETE FROM idempotency
    WHERE rowid IN (
        SELECT i.rowid
        FROM json_each(NEW.keys) AS k CROSS JOIN idempotency AS i
        WHERE i.tenant = k.value ->> 1 AND i.kind = k.value ->> 2 AND i.scope = k.value ->> 3 AND i.key = k.value ->> 4
          AND i.expires_ms <= k.value ->> 6
    );
    INSERT INTO idempotency (tenant, kind, scope, key, hash, generation, owner, lease_until_ms, state, session, created_ms)
    SELECT k.value ->> 1, k.value ->> 2, k.value ->> 3, k.value ->> 4, substr(NEW.bytes, k.value ->> 5, 32), 1, k.value ->> 0,
           k.value ->> 7, 'running', k.value ->> 0, k.value ->> 6
    FROM json_each(NEW.keys) AS k;

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

    -- What a key stands for is done with the verdict, and the key ends some time after the close. Where nothing was done,
    -- the key is free again at once.
    UPDATE idempotency
    SET state = 'done', expires_ms = coalesce(u.value ->> 11, expires_ms)
    FROM json_each(NEW.updates) AS u
    WHERE idempotency.session = u.value ->> 0 AND u.value ->> 10 = 'done';
    DELETE FROM idempotency WHERE session IN (SELECT u.value ->> 0 FROM json_each(NEW.updates) AS u WHERE u.value ->> 10 = 'released');

    DELETE FROM inbox WHERE id IN (SELECT value FROM json_each(NEW.heard));

    -- A closed session hears nothing any more.
    DELETE FROM inbox WHERE session IN (SELECT u.value ->> 0 FROM json_each(NEW.updates) AS u WHERE u.value ->> 6 IS NOT NULL);

    -- A session that was deleted while it ran: its texts go with the append that closes it, whoever owns it by then.
    DELETE FROM content
    WHERE session IN (
        SELECT s.id
        FROM json_each(NEW.updates) AS u CROSS JOIN session AS s
        WHERE s.id = u.value ->> 0 AND u.value ->> 6 IS NOT NULL AND s.deleted_ms IS NOT NULL
    );
    UPDATE session
    SET texts = 'gone'
    WHERE deleted_ms IS NOT NULL AND id IN (SELECT u.value ->> 0 FROM json_each(NEW.updates) AS u WHERE u.value ->> 6 IS NOT NULL);
END;
