-- The texts of sessions that were to be forgotten and were closed long enough ago.
-- $1 closed at the latest   $2 most sessions
BEGIN IMMEDIATE;

DELETE FROM content
WHERE session IN (SELECT id FROM session WHERE texts = 'to_go' AND closed_ms <= $1 ORDER BY closed_ms, id LIMIT $2);

UPDATE session
SET texts = 'gone'
WHERE id IN (SELECT id FROM session WHERE texts = 'to_go' AND closed_ms <= $1 ORDER BY closed_ms, id LIMIT $2)
RETURNING id;

COMMIT;
